# SPDX-License-Identifier: Apache-2.0
"""Parameters from theory: the formulas' numbers, what is kept, what is refused, and the sentences."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from idiolect.algorithms import ALGORITHMS, LSGDPFL, LocalSGD
from idiolect.core.checks import RequestError, unset
from idiolect.models import MLP, Linear
from idiolect.objectives import APFL2, MT2, MX2, Additive, ClientLoss, GlobalModel, LocalOnly
from idiolect.theory import Constants, block_constants, client_constants, from_theory
from idiolect.theory import solver_rules as solvers
from idiolect.theory.constants import BlockConstants
from idiolect.theory.solver_rules import Drawn

LOSS = ClientLoss(model=Linear(3), criterion="squared")
CLIENTS = 20
DERIVED = [name for name, method in ALGORITHMS.items() if method.theory and method.theory.derive]


def constants(smoothness=1.0, convexity=0.01, component=1.0, clients=CLIENTS):
    values = (np.full(clients, value) for value in (smoothness, convexity, component))
    return Constants(*values, True, "given")


def blocks(mu=0.001, shared=0.04, personal=0.09, component_shared=0.1, component_personal=0.3):
    return BlockConstants(mu, shared, personal, component_shared, component_personal, "given")


def values(parameters):
    return {parameter.name: parameter.value for parameter in parameters}


def mx2(penalty=0.5, **settings):
    return MX2(LOSS, penalty=penalty, clients=CLIENTS, **settings)


def solver(name, objective=None, **settings):
    return ALGORITHMS[name].algorithm(objective or mx2(), clients=CLIENTS, **settings)


def test_acd_pfl():
    # sqrt(0.04) / (sqrt(0.04) + sqrt(0.09)) = 0.2 / 0.5
    found = values(solvers.acd_pfl(blocks()))
    assert found == pytest.approx(
        {"strong_convexity": 0.001, "shared_smoothness": 0.04, "personal_smoothness": 0.09, "shared_probability": 0.4}
    )


def test_asvrcd_pfl():
    # p_w = 0.1/0.4 = 1/4; Lx = 2 max(0.1/0.25, 0.3/0.75) = 0.8; eta = 1/3.2 = 0.3125; rho = 0.25/50 = 0.005;
    # theta1 = min{1/2, sqrt(0.3125 * 0.001 * max{1/2, 0.5/0.005 = 100})} = sqrt(0.03125) = 0.1767767;
    # gamma = 1/max{0.002, 4 * 0.1767767/0.3125 = 2.2627417} = 0.4419417
    found = values(solvers.asvrcd_pfl(Drawn(blocks(), 50)))
    assert found == pytest.approx(
        {
            "shared_probability": 0.25,
            "step_size": 0.3125,
            "refresh_probability": 0.005,
            "strong_convexity": 0.001,
            "momentum": 0.1767767,
            "mirror_step": 0.4419417,
        },
        rel=1e-6,
    )
    # optimal in beta: rho = 0.75/50 and theta1 = sqrt(0.3125 * 0.001 * 0.5/0.015) = 0.1020621
    personal = values(solvers.asvrcd_pfl(Drawn(blocks(), 50, optimal_for="personal")))
    assert personal["refresh_probability"] == pytest.approx(0.015)
    assert personal["momentum"] == pytest.approx(0.1020621, rel=1e-6)


def test_theta1_stops_at_one_half_and_gamma_at_one_half_over_mu():
    # eta mu theta2/rho = 0.3125 * 1 * 100 > 1/4; gamma = 1/max{2, 4 * 0.5/0.3125 = 6.4}
    found = values(solvers.asvrcd_pfl(Drawn(blocks(mu=1.0), 50)))
    assert found["momentum"] == 0.5
    assert found["mirror_step"] == pytest.approx(1 / 6.4)
    # with eta = 2 by hand, 4 * 0.5/2 = 1 < 2 mu
    assert values(solvers.asvrcd_pfl(Drawn(blocks(mu=1.0), 50, given={"step_size": 2.0})))["mirror_step"] == 0.5


def test_batches_lie_between_components_and_exact_gradients():
    # b = 5: Lc^w = 0.04 + 0.06/5 = 0.052, Lc^beta = 0.09 + 0.21/5 = 0.132, 50/5 = 10 draws to a pass
    assert blocks().of_batches(50, 5) == pytest.approx((0.052, 0.132, 10))
    assert blocks().of_batches(50, 0) == pytest.approx((0.04, 0.09, 1))
    assert blocks().of_batches(50, 1) == pytest.approx((0.1, 0.3, 50))
    assert blocks().of_batches(50, 80).draws == 1  # a pass is never less than one draw
    steps = [values(solvers.svrcd_pfl(Drawn(blocks(), 50, batch_size=size)))["step_size"] for size in (1, 5, 0)]
    assert steps == sorted(steps)


def test_solvers_without_a_step_theory_take_the_safe_one():
    asvrcd = values(solvers.asvrcd_pfl(Drawn(blocks(), 50)))
    svrcd = values(solvers.svrcd_pfl(Drawn(blocks(), 50)))
    scd = values(solvers.scd_pfl(Drawn(blocks(), 50)))
    assert svrcd == {name: asvrcd[name] for name in ("shared_probability", "step_size", "refresh_probability")}
    assert scd == {name: asvrcd[name] for name in ("shared_probability", "step_size")}


def test_ascd_pfl_borrows_from_asvrcd():
    asvrcd, ascd = values(solvers.asvrcd_pfl(Drawn(blocks(), 50))), values(solvers.ascd_pfl(Drawn(blocks(), 50)))
    assert ascd.pop("momentum") == 0.8  # min{0.8, 1/0.3125 = 3.2}
    assert ascd == {name: asvrcd[name] for name in ascd}
    # eta = 1/(4 * 2 * 0.01 * 4) = 3.125: theta = 1/3.125
    flat = blocks(component_shared=0.01, component_personal=0.03, shared=0.004, personal=0.009)
    assert values(solvers.ascd_pfl(Drawn(flat, 50)))["momentum"] == pytest.approx(0.32)
    both = values(solvers.ascd_then_asvrcd(Drawn(blocks(), 50)))
    assert both.pop("early_momentum") == 0.8
    assert both == asvrcd


def test_l2sgd_plus_and_l2gd():
    # mu' = 0.1, L' = 1, Lc' = 2, lam = 0.5, n = 10, M = 20: p* = 2.1/(2 + 8 + 1.1) = 2.1/11.1,
    # a = 20 min{(9/11.1)/(8 + 1), (2.1/11.1)/2.1} = 20/11.1: both coins bind at p*
    own = constants(1.0, 0.1, 2.0)
    found = values(solvers.l2sgd_plus(own, 10, 0.5))
    assert found == pytest.approx({"averaging_probability": 2.1 / 11.1, "step_size": 20 / 11.1})
    # p = 1/2 by hand: the gradient coin binds, 20 * 0.5/9
    by_hand = solvers.l2sgd_plus(own, 10, 0.5, given={"averaging_probability": 0.5})
    assert values(by_hand) == pytest.approx({"averaging_probability": 0.5, "step_size": 10 / 9})
    # exact gradients, n = 1 and L' for Lc': p* = 2.1/(2 + 4 + 0.2), a = 20/6.2
    assert values(solvers.l2gd(own, 0.5)) == pytest.approx({"averaging_probability": 2.1 / 6.2, "step_size": 20 / 6.2})


def test_pfedme():
    own = constants(1.0, 0.1, 2.0)
    assert values(solvers.pfedme(own, 0.5)) == {"inner_step": pytest.approx(1 / 1.5)}
    assert values(solvers.pfedme(own, 0.5, batch_size=5)) == {"inner_step": pytest.approx(1 / 2.5)}


@pytest.mark.parametrize(
    ("objective", "printed"),
    [
        (MT2(LOSS, penalty=0.5, relaxation=1.0, clients=CLIENTS), 0.5),  # 1.5/(1.5 + 1.5)
        (MX2(LOSS, penalty=0.5, clients=CLIENTS), 0.25),  # 0.5/(0.5 + 1.5)
        (APFL2(LOSS, relaxation=1.0, mixing=0.1, clients=CLIENTS), 0.55),  # 1.01/(1.01 + 0.81) = 0.555, printed 0.55
    ],
    ids=["mt2", "mx2", "apfl2"],
)
def test_the_paper_s_image_experiments(objective, printed):
    """Unified 2023, section 6.2, K = 2: L' = 1, lam = 1/K, Lam = 1, a = 0.05 K."""
    known = block_constants(objective, constants())
    assert values(solvers.asvrcd_pfl(Drawn(known, 100)))["shared_probability"] == pytest.approx(printed, abs=0.006)


@pytest.mark.parametrize("name", ["acd_pfl", "asvrcd_pfl", "svrcd_pfl"])
@pytest.mark.parametrize(("objective", "chance"), [(GlobalModel(LOSS), 1.0), (LocalOnly(LOSS), 0.0)])
def test_a_block_that_is_absent_is_never_sampled(name, objective, chance):
    filled, advice = from_theory(ALGORITHMS[name].theory, solver(name, objective), constants(), 100)
    assert values(advice.parameters)["shared_probability"] == chance
    assert unset(filled) == []
    if name != "acd_pfl":
        # Lx = 2 Lc of the one block; every draw is of it, so 1 refresh in n
        curvature = 1.0 if chance else 1.0 / CLIENTS
        assert filled.step_size == pytest.approx(1 / (8 * curvature))
        assert filled.refresh_probability == pytest.approx(0.01)
    kept, _ = from_theory(ALGORITHMS[name].theory, solver(name, objective, shared_probability=0.5), constants(), 100)
    assert getattr(kept, "step_size", None) == getattr(filled, "step_size", None)


def test_what_is_set_by_hand_is_kept_and_used():
    algorithm = solver("asvrcd_pfl", shared_probability=0.5, strong_convexity=1e-4)
    filled, advice = from_theory(ALGORITHMS["asvrcd_pfl"].theory, algorithm, constants(), 100)
    # Lc^w = 0.025, Lc^beta = 0.075: Lx = 2 * 0.075/0.5 = 0.3, rho = 0.5/100
    assert filled.shared_probability == 0.5
    assert filled.strong_convexity == 1e-4
    assert filled.step_size == pytest.approx(1 / 1.2)
    assert filled.refresh_probability == pytest.approx(0.005)
    assert filled.momentum == pytest.approx(math.sqrt(1e-4 / 1.2 * 100))
    assert set(advice.chosen) == {"step_size", "refresh_probability", "momentum", "mirror_step"}
    assert "shared_probability 0.5 (set by hand)" in advice.explanation()
    assert advice.warnings == ()


@pytest.mark.parametrize("name", DERIVED)
def test_every_solver_is_filled_and_explained(name):
    if name not in ALGORITHMS:
        pytest.skip("not registered")
    filled, advice = from_theory(ALGORITHMS[name].theory, solver(name), constants(), 100)
    assert unset(filled) == []
    assert advice.theorem
    for field, value in advice.chosen.items():
        assert 0 < getattr(filled, field) == value < math.inf
        assert f"{field} {value:.3g} = " in advice.explanation()
    assert advice.explanation().count("Constants: ") == 1
    again, silent = from_theory(ALGORITHMS[name].theory, filled, constants(), 100)
    assert {field: getattr(again, field) for field in advice.chosen} == advice.chosen
    assert silent.chosen == {}
    assert silent.sentences == ()
    assert silent.warnings == ()  # its own choice is never beyond itself


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("asvrcd_pfl", {"step_size": 9.0}, "step_size 9 is above 1.25, from 1/(4 Lx)"),
        ("scd_pfl", {"step_size": 9.0}, "it may diverge. Leave it out"),
        ("acd_pfl", {"strong_convexity": 0.1}, "strong_convexity 0.1 is above 0.000167, from mu of F"),
        ("acd_pfl", {"shared_smoothness": 0.01}, "shared_smoothness 0.01 is below 0.025, from L^w of F"),
    ],
)
def test_a_value_beyond_theory_is_named(name, settings, words):
    _, advice = from_theory(ALGORITHMS[name].theory, solver(name, **settings), constants(), 100)
    (sentence,) = advice.warnings
    assert words in sentence


def test_existing_rules_say_what_they_said():
    algorithm = LocalSGD(GlobalModel(LOSS), clients=CLIENTS)
    filled, advice = from_theory(ALGORITHMS["fedavg"].theory, algorithm, constants(2.0), 100, wanted=["step_size"])
    assert filled.step_size == 0.5
    assert advice.explanation() == ("step_size 0.5: 1/L, gradients are exact; descent lemma allows up to 1/L = 0.5.")
    untouched, advice = from_theory(ALGORITHMS["fedavg"].theory, algorithm, constants(2.0), 100)
    assert untouched.step_size == algorithm.step_size
    assert advice.sentences == advice.warnings == ()
    _, advice = from_theory(
        ALGORITHMS["fedavg"].theory, LocalSGD(GlobalModel(LOSS), step_size=3.0), constants(2.0), 100
    )
    assert 'write step_size = "theory" for 0.5.' in advice.warnings[0]


def test_lsgd_pfl_weighs_its_average_with_mu():
    algorithm = LSGDPFL(mx2(), clients=CLIENTS, output="weighted_average")
    filled, advice = from_theory(
        ALGORITHMS["lsgd_pfl"].theory, algorithm, constants(), 100, wanted=["step_size"], defaulted=["strong_convexity"]
    )
    # eta = 1/(4 * 0.075), mu = 0.01/60
    assert filled.step_size == pytest.approx(1 / 0.3)
    assert filled.strong_convexity == pytest.approx(0.01 / 60)
    assert "strong_convexity 0.000167: mu of F" in advice.explanation()
    given, _ = from_theory(ALGORITHMS["lsgd_pfl"].theory, algorithm, constants(), 100, wanted=["step_size"])
    assert given.strong_convexity == 0.0  # given as 0: equal weights
    flat = LSGDPFL(Additive(LOSS), clients=CLIENTS, output="weighted_average")
    equal, _ = from_theory(ALGORITHMS["lsgd_pfl"].theory, flat, constants(), 100, defaulted=["strong_convexity"])
    assert equal.strong_convexity == 0.0  # mu = 0: theorem 2, equal weights
    last, _ = from_theory(
        ALGORITHMS["lsgd_pfl"].theory, LSGDPFL(mx2(), clients=CLIENTS), constants(), 100, defaulted=["strong_convexity"]
    )
    assert last.strong_convexity == 0.0


REFUSALS = {
    "a network": (
        "acd_pfl",
        MX2(ClientLoss(model=MLP(3, 2)), clients=CLIENTS),
        None,
        {},
        "acd_pfl leaves strong_convexity, shared_smoothness, personal_smoothness to theory, and theory knows the "
        "constants of linear models with a convex loss only, and this model is not one; set them by hand.",
    ),
    "no curvature": (
        "scd_pfl",
        mx2(),
        constants(0.0, 0.0, 0.0),
        {"shared_probability": 0.5},
        "scd_pfl leaves step_size to theory, and this loss has no curvature at all; set it by hand.",
    ),
    "mu' = 0": (
        "acd_pfl",
        mx2(),
        constants(1.0, 0.0),
        {},
        "acd_pfl.strong_convexity is left to theory, which needs F to be strongly convex, and mu = 0 here (",
    ),
    "mu' = 0, way out": ("asvrcd_pfl", mx2(), constants(1.0, 0.0), {}, "set model.l2, or strong_convexity by hand."),
    "additive": ("ascd_pfl", Additive(LOSS), constants(), {}, "changes nothing), L', L'/M; given); set strong_conv"),
    "never w": (
        "svrcd_pfl",
        mx2(),
        constants(),
        {"shared_probability": 0.0},
        "svrcd_pfl.shared_probability must be between 0 and 1, got 0, which never samples w; leave it out",
    ),
    "never beta": ("ascd_pfl", mx2(), constants(), {"shared_probability": 1.0}, "got 1, which never samples beta;"),
}


@pytest.mark.parametrize(("name", "objective", "known", "settings", "sentence"), REFUSALS.values(), ids=REFUSALS)
def test_what_theory_cannot_choose_is_refused_in_one_sentence(name, objective, known, settings, sentence):
    with pytest.raises(RequestError) as refusal:
        from_theory(ALGORITHMS[name].theory, solver(name, objective, **settings), known, 100, owner=name)
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_refusal_names_its_place_in_the_spec():
    with pytest.raises(RequestError, match=r"^methods\.mine\.strong_convexity is left to theory"):
        from_theory(ALGORITHMS["acd_pfl"].theory, solver("acd_pfl"), constants(1.0, 0.0), 100, owner="methods.mine")
    with pytest.raises(RequestError, match=r'^methods\.it\.step_size = "theory" needs a rule and known constants, and'):
        from_theory(
            ALGORITHMS["scaffold"].theory,
            LocalSGD(GlobalModel(LOSS)),
            None,
            100,
            wanted=["step_size"],
            owner="methods.it",
        )


def test_an_algorithm_without_a_rule_must_be_set_by_hand():
    with pytest.raises(
        RequestError, match=r"^ACDPFL leaves .* to theory, which has no rule for it; set numbers by hand"
    ):
        from_theory(None, solver("acd_pfl"), constants(), 100)


def test_numbers_set_by_hand_need_no_theory():
    settings = {"strong_convexity": 0.1, "shared_smoothness": 1.0, "personal_smoothness": 1.0}
    network = MX2(ClientLoss(model=MLP(3, 2)), clients=CLIENTS)
    algorithm = solver("acd_pfl", network, **settings)
    filled, advice = from_theory(ALGORITHMS["acd_pfl"].theory, algorithm, None, 100)
    assert filled.strong_convexity == 0.1
    assert advice.parameters == advice.warnings == advice.sentences == ()
    # without l2 a mu by hand is taken as it is
    filled, advice = from_theory(
        ALGORITHMS["acd_pfl"].theory, solver("acd_pfl", strong_convexity=1e-3), constants(1.0, 0.0), 100
    )
    assert filled.strong_convexity == 1e-3
    assert filled.shared_smoothness == pytest.approx(0.025)


def test_a_broken_condition_is_said():
    """MT2 at Lam = 1 needs 3 * 0.5/(2 * 0.01) = 75; a smaller mu holds without it."""
    objective = MT2(LOSS, penalty=0.5, relaxation=1.0, clients=CLIENTS)
    filled, advice = from_theory(ALGORITHMS["asvrcd_pfl"].theory, solver("asvrcd_pfl", objective), constants(), 100)
    (sentence,) = advice.warnings
    assert "MT2.relaxation must be at least 3 lam/(2 mu') = 75" in sentence
    # smallest eigenvalue of [[0.51, -0.5], [-0.5, 0.51]] is 0.01; lam/(2M) = 0.0125 does not hold
    assert filled.strong_convexity == pytest.approx(0.01 / CLIENTS)
    # SCD relies on no mu
    assert from_theory(ALGORITHMS["scd_pfl"].theory, solver("scd_pfl", objective), constants(), 100)[1].warnings == ()


def test_whatever_asks_theory_has_a_rule():
    asking = {
        name
        for name, method in ALGORITHMS.items()
        if any(field.metadata.get("theory") for field in dataclasses.fields(method.algorithm))
    }
    assert "acd_pfl" in asking
    assert asking <= set(DERIVED)


def test_real_constants_fill_real_solvers(regression):
    loss, rows = regression(3)
    known = client_constants(loss, rows)
    filled, _ = from_theory(
        ALGORITHMS["asvrcd_pfl"].theory, ALGORITHMS["asvrcd_pfl"].algorithm(MX2(loss, clients=4), clients=4), known, 12
    )
    own = block_constants(filled.objective, known)
    assert filled.step_size == pytest.approx(
        1 / (8 * (own.component_shared_smoothness + own.component_personal_smoothness))
    )  # at the best p_w both blocks bind: Lx = 2 (Lc^w + Lc^beta)
