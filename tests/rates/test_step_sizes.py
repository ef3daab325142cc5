# SPDX-License-Identifier: Apache-2.0
"""Step sizes: the theorems' numbers, the table of rules, and the sentences a user reads."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from idiolect.algorithms import (
    ALGORITHMS,
    LSGDPFL,
    AllForAll,
    AllForAllNaive,
    AllForOne,
    Local,
    LocalSGD,
    MinibatchSGD,
    PersonalizedLocalSGD,
    find,
)
from idiolect.core import own_code
from idiolect.models import MLP
from idiolect.objectives import Additive, ClientLoss, GlobalModel, LocalOnly
from idiolect.theory import advise, client_constants, from_theory, local_optima, rates, step_sizes, step_warnings

STEPPING = [name for name, method in ALGORITHMS.items() if method.theory and method.theory.step]


def test_regime_of_equation_16():
    # for M = R = 10 about 201 K <= kappa <= 400 K; 1/(2(1-exp(-1/400))) = 200.25
    low, high = step_sizes.tuned_condition_range(10, 7, 10)
    assert low / 7 == pytest.approx(200.25, abs=0.01)
    assert math.ceil(low / 7) == 201
    assert high == 400 * 7
    # at the regime's upper end the tuned step reaches theorem 1's 1/(2L)
    assert step_sizes.tuned_step(0.5, 10, 7, 10) == pytest.approx(step_sizes.theorem_1_step(0.5 * high, 1.0))


def test_equation_16_follows_from_equation_14():
    # alpha = 1, sigma = 0 and kappa at the regime's lower end, where both exponents agree
    low, _ = step_sizes.tuned_condition_range(4, 3, 5)
    tuned = rates.theorem_1_tuned_bound(
        condition_number=low, strong_convexity=0.1, local_steps=3, rounds=5, clients=4, radius=2.0, noise=0.0
    )
    general = rates.theorem_1_bound(
        personal_step_scale=1.0,
        server_step_size=1.0,
        step_size=step_sizes.tuned_step(0.1, 4, 3, 5),
        local_steps=3,
        rounds=5,
        clients=4,
        strong_convexity=0.1,
        radius=2.0,
    )
    assert tuned == pytest.approx(general, rel=1e-12)


@pytest.mark.parametrize("scale", [0.0, 0.5, 1.0, 4.0])
@pytest.mark.parametrize("local_steps", [1, 3, 50])
def test_server_bound_is_the_edge_of_stability(scale, local_steps):
    settings = {"personal_step_scale": scale, "step_size": 0.4 / (1 + scale), "local_steps": local_steps}
    edge = step_sizes.server_step_bound(2.0, scale, settings["step_size"], local_steps)
    for factor, stable in ((0.999, True), (1.001, False)):
        beta = factor * edge
        assert rates.is_stable(**settings, server_step_size=beta, curvature=2.0) is stable
        multiplier = rates.mean_multiplier(**settings, server_step_size=beta, curvature=2.0)
        assert (abs(multiplier) < 1) is stable
        # flatter directions are never the ones that break first
        assert stable <= rates.is_stable(**settings, server_step_size=beta, curvature=0.1)
    assert edge > 1  # beta = 1 is always safe inside theorem 1


def test_lsgd_pfl_step():
    # min{1/(4*2), 1/(8 sqrt(3e) * 4 * 1)} with sqrt(3e) = 2.855677: 1/91.3817
    assert step_sizes.lsgd_pfl_step(1.0, 2.0, 5) == pytest.approx(0.0109431, abs=1e-7)
    assert step_sizes.lsgd_pfl_step(1.0, 50.0, 5) == pytest.approx(1 / 200)
    assert step_sizes.lsgd_pfl_step(1.0, 0.0, 1) == pytest.approx(1 / 4)
    assert step_sizes.lsgd_pfl_step(0.0, 0.5, 5) == pytest.approx(1 / 2)


@pytest.fixture
def problem(quadratic):
    """L = 4, mu = 1, two clients."""
    return quadratic([[4.0, 1.0], [2.0, 2.0]], [[1.0, -1.0], [2.0, 0.5]])


@pytest.mark.parametrize("name", STEPPING)
def test_recommended_steps_lie_inside_their_bounds_and_converge(name, regression, train, squared_distance):
    loss, rows = regression(3)
    algorithm = {
        "personalized_local_sgd": lambda: PersonalizedLocalSGD(Additive(loss), local_steps=4),
        "lsgd_pfl": lambda: LSGDPFL(LocalOnly(loss), local_steps=4, clients=rows.clients),
        "local": lambda: Local(LocalOnly(loss), local_steps=4),
        "minibatch_sgd": lambda: MinibatchSGD(GlobalModel(loss), local_steps=4),
        "all_for_all": lambda: AllForAll(LocalOnly(loss), own_share=0.9, clients=rows.clients),
        "all_for_all_naive": lambda: AllForAllNaive(LocalOnly(loss), own_share=1.0, clients=rows.clients),
        "all_for_one": lambda: AllForOne(GlobalModel(loss), clients=rows.clients),
    }.get(name, lambda: LocalSGD(GlobalModel(loss), local_steps=4))()
    advice = advise(ALGORITHMS[name].theory, algorithm, client_constants(loss, rows))
    assert 0 < advice.recommended <= advice.bound
    assert advice.warning(advice.bound) is None
    assert f"{advice.bound:.3g}" in advice.explanation()
    advised = dataclasses.replace(algorithm, step_size=advice.recommended)
    settled, further = (train(advised, rows, rounds) for rounds in (400, 401))
    assert squared_distance(settled, further) < 1e-8
    if not algorithm.objective.has_shared or name == "personalized_local_sgd":
        assert squared_distance(settled, local_optima(loss, rows)) < 1e-3


def test_a_step_too_large_is_named_with_its_theorem(problem):
    loss, rows = problem
    algorithm = PersonalizedLocalSGD(Additive(loss), step_size=3.0, personal_step_scale=1.0)
    (sentence,) = step_warnings(ALGORITHMS["personalized_local_sgd"].theory, algorithm, client_constants(loss, rows))
    # (1+1) L = 8
    assert sentence.startswith("step_size 3 is beyond 1/((1+alpha)L) = 0.125 (PLSGD 2023, theorem 1): ")
    assert sentence.endswith('write step_size = "theory" for 0.0625.')


def test_an_outer_step_too_large_is_named(problem):
    loss, rows = problem
    constants = client_constants(loss, rows)
    settings = {"step_size": 0.1, "local_steps": 20, "personal_step_scale": 1.0}
    fine = PersonalizedLocalSGD(Additive(loss), **settings, server_step_size=2.9)
    # nu = 1 - 0.1*2*4 = 0.2, nu^20 = 0: beta < 4 - 1 = 3
    wild = PersonalizedLocalSGD(Additive(loss), **settings, server_step_size=4.0)
    assert step_warnings(ALGORITHMS["personalized_local_sgd"].theory, fine, constants) == []
    (sentence,) = step_warnings(ALGORITHMS["personalized_local_sgd"].theory, wild, constants)
    assert "server_step_size 4 is beyond" in sentence
    assert "= 3," in sentence


def test_local_sgd_counts_batches_and_the_proximal_term(regression):
    loss, rows = regression(5)
    constants = client_constants(loss, rows)
    exact = advise(ALGORITHMS["local_sgd"].theory, LocalSGD(GlobalModel(loss)), constants)
    assert exact.recommended == exact.bound == pytest.approx(1 / constants.smoothness)
    batch = advise(ALGORITHMS["local_sgd"].theory, LocalSGD(GlobalModel(loss), batch_size=2), constants)
    assert batch.recommended == pytest.approx(0.5 / constants.batch_smoothness(2))
    prox = advise(ALGORITHMS["fedprox"].theory, LocalSGD(GlobalModel(loss), penalty=3.0), constants)
    assert prox.bound == pytest.approx(1 / (constants.smoothness + 3))
    larger = advise(
        ALGORITHMS["minibatch_sgd"].theory, MinibatchSGD(GlobalModel(loss), batch_size=2, local_steps=5), constants
    )
    assert larger.recommended == pytest.approx(0.5 / constants.batch_smoothness(10))


def test_theory_is_silent_where_it_knows_nothing(problem):
    _, rows = problem
    loss = ClientLoss(model=MLP(2, 2), criterion="squared")
    algorithm = LocalSGD(GlobalModel(loss), step_size=1e9)
    constants = client_constants(loss, rows)
    assert advise(ALGORITHMS["local_sgd"].theory, algorithm, constants) is None
    assert step_warnings(ALGORITHMS["local_sgd"].theory, algorithm, constants) == []
    known = client_constants(problem[0], rows)
    assert advise(None, algorithm, known) is None
    assert advise(ALGORITHMS["scafflix"].theory, algorithm, known) is None  # it has a rule, of other settings


def test_a_loss_without_curvature_bounds_nothing(quadratic):
    assert step_sizes.gradient_descent_step(0.0) == np.inf
    loss, rows = quadratic([[0.0]], [[1.0]])
    assert advise(ALGORITHMS["local_sgd"].theory, LocalSGD(GlobalModel(loss)), client_constants(loss, rows)) is None


def test_an_own_file_brings_its_own_rule(tmp_path, problem):
    """By its path alone: the one row of METHODS that has the class; theory has no table of names."""
    (tmp_path / "careful_method.py").write_text(
        """
from idiolect.algorithms.local_sgd import LocalSGD
from idiolect.core import settings
from idiolect.core.method import Method
from idiolect.theory import Rule, StepAdvice


@settings
class Careful(LocalSGD):
    pass


def tenth(algorithm, constants):
    bound = 1 / constants.smoothness
    return StepAdvice(bound / 10, bound, "1/L", "descent lemma", "a tenth of it", "it may diverge")


METHODS = {"careful": Method(Careful, "global_model", {"local_steps": 3}, "own", "small", theory=Rule(step=tenth))}
"""
    )
    with own_code(plugins=tmp_path):
        method = find("careful_method:Careful")
    loss, rows = problem
    constants = client_constants(loss, rows)
    filled, advice = from_theory(method.theory, method(GlobalModel(loss)), constants, 2, wanted=["step_size"])
    assert (filled.step_size, filled.local_steps) == (0.1 / constants.smoothness, 3)
    assert advice.theorem == "descent lemma"


def test_every_rule_belongs_to_an_algorithm():
    assert {ALGORITHMS[name].algorithm for name in STEPPING} >= {
        LocalSGD,
        LSGDPFL,
        Local,
        MinibatchSGD,
        PersonalizedLocalSGD,
    }


@pytest.mark.parametrize("output", ["bound", "option_three"])
def test_without_personalization_paper_000_promises_nothing(output):
    common = {"personal_step_scale": 0.0, "step_size": 0.1, "clients": 2, "radius": 1.0}
    if output == "bound":
        bound = rates.theorem_1_bound(**common, server_step_size=1.0, local_steps=1, rounds=5, strong_convexity=1.0)
    else:
        bound = rates.theorem_2_bound(**common, total_steps=5)
    assert bound == np.inf
