# SPDX-License-Identifier: Apache-2.0
"""The logistic reproductions of Scafflix 2023: exact optima and gaps, the released p, every slug at a small size."""

from __future__ import annotations

import math

import numpy as np
import pytest

from idiolect.core.checks import RequestError
from idiolect.data.dataset_files import VARIABLE
from idiolect.data.federation import Federation
from idiolect.data.split import Split
from idiolect.theory.joint import joint_problem
from papers import (
    scafflix,
    scafflix_condition,
    scafflix_inexact,
    scafflix_logistic,
    scafflix_stepsizes,
)
from papers.catalogue import find_entry, load_expected, load_spec, read_me
from papers.drawing import drawing, to_bytes
from papers.outcome import Outcome
from papers.runner import make_spec
from papers.scafflix import Problem, communications_to, flix, released_probability
from papers.verdicts import compare

SLUGS = ("scafflix-logistic", "scafflix-stepsizes", "scafflix-inexact", "scafflix-condition", "scafflix-exact")
SPEC = {"clients": 4, "l2": 0.1, "tolerance": 1e-13, "data_seed": 0}


def small_federation(*_):
    """Four clients of 12 to 30 rows and five features, whose curvatures differ."""
    draw = np.random.default_rng(5)
    counts = (12, 30, 20, 15)
    owner = np.repeat(np.arange(4), counts)
    inputs = draw.normal(size=(len(owner), 5)) * np.array([0.5, 1.0, 2.0, 3.0])[owner][:, None]
    labels = (inputs @ draw.normal(size=5) + draw.normal(size=len(owner)) > 0).astype(np.int32)
    return Federation.from_arrays(
        inputs.astype(np.float32), labels, owner, classes=("no", "yes"), split=Split(1.0, 0.0, 0.0)
    )


@pytest.fixture(scope="module")
def problem():
    return Problem.of(small_federation().train, 0.1)


@pytest.mark.parametrize("alpha", [1.0, 0.3, 1e-4])
def test_optimum_gap_and_gradient_agree_with_theory(problem, alpha):
    federation = small_federation()
    theory = joint_problem(flix(federation, SPEC, alpha), federation.train)
    best = theory.optimum()
    flat = np.concatenate([best.shared["weights"].ravel(), np.ravel(best.shared["bias"])])
    assert problem.optimum(alpha) == pytest.approx(alpha * flat, abs=1e-9)
    points = np.random.default_rng(1).normal(size=(3, 6))
    gaps, gradients = problem.gaps(alpha, points), problem.squared_gradients(alpha, points)
    for point, gap, gradient in zip(points, gaps, gradients):
        params = {
            "weights": point[:5].reshape(best.shared["weights"].shape),
            "bias": point[5].reshape(np.shape(best.shared["bias"])),
        }
        value = theory.value(params, ())
        assert gap == pytest.approx(value - best.value, rel=1e-6, abs=1e-15)
        assert gradient == pytest.approx(theory.gradient_norm(params, ()) ** 2, rel=1e-6)


def test_gaps_are_true_below_the_precision_of_the_loss(problem):
    # near its minimum F is a quadratic: half of the way is a quarter of the gap
    alpha, way = 0.01, np.ones(6)
    steps = np.array([1e-3, 5e-4, 1e-9, 5e-10])
    gaps = problem.gaps(alpha, problem.optimum(alpha) / alpha + steps[:, None] * way)
    assert gaps[1] / gaps[0] == pytest.approx(0.25, rel=1e-4)
    assert gaps[3] / gaps[2] == pytest.approx(0.25, rel=1e-4)
    assert gaps[2] / gaps[0] == pytest.approx(1e-12, rel=1e-3)
    # a squared distance: rounding of entries of order one leaves 1e-32 at most
    assert problem.distances(alpha, problem.optimum(alpha) + (1 - alpha) * problem.own) < 1e-32


def test_the_released_probability():
    # one client, one feature, four rows of 2 beside the column of ones: X'X = [[16, 8], [8, 4]], largest eigenvalue 20
    federation = small_federation()
    rows = type(federation.train)(np.full((4, 1), 2.0), np.zeros(4, np.int32), np.array([0, 4]))
    assert released_probability(rows, 0.1) == pytest.approx(1 / math.sqrt((20.1 / 16) / 0.1))


def test_communications_are_read_between_records():
    rounds, gaps = np.array([0, 10, 20]), np.array([1.0, 1e-2, 1e-4])
    assert communications_to(rounds, gaps, 1e-3) == pytest.approx(15)
    assert communications_to(rounds, gaps, 1.0) == 0
    assert math.isnan(communications_to(rounds, gaps, 1e-5))


def test_smaller_alpha_out_of_order_is_counted():
    gaps = np.array([[[4.0, 2.0]], [[3.0, 2.0]], [[1.0, 1.0]]])
    assert scafflix_logistic._out_of_order(gaps) == 1  # 2 against 2


def test_logistic_at_a_small_size(monkeypatch):
    monkeypatch.setattr(scafflix_logistic, "deal", small_federation)
    spec = load_spec("scafflix-logistic") | SPEC
    spec |= {"data_sets": ["a"], "splits": ["iid"], "alphas": [1.0, 0.1], "seeds": 2, "record_every": 20}
    spec |= {"gd_rounds": {"a": 400}, "scafflix_rounds": {"a": 100}}
    heard = []
    measured = scafflix_logistic.measure(spec, lambda *news: heard.append(news[1:]))
    assert heard == [(1, 2), (2, 2)]
    numbers = measured.numbers
    assert numbers["a_iid_least_gain"] > 1
    assert abs(numbers["a_iid_optimum_minus_scikit_learn"]) < 1e-10
    rows = small_federation().train
    assert (
        abs(scafflix_logistic.solve_by_scikit_learn(rows, 0.2) - scafflix_logistic.solve_by_scikit_learn(rows, 0.1))
        > 1e-3
    )
    assert numbers["a_iid_alphas_out_of_order"] == 0
    course = measured.curves["a", "iid"]["scafflix"]
    assert course.relative[..., -1].max() < 1e-6
    assert course.gaps.shape == (2, 2, 6)
    assert np.ptp(course.gaps[:, :, 0], axis=1) == pytest.approx([0, 0])  # all seeds start at x = 1
    assert not np.allclose(course.relative[0, 0, 1:], course.relative[0, 1, 1:], rtol=1e-3)
    with drawing("scafflix-logistic"):
        assert b"Scafflix" in to_bytes(scafflix_logistic.draw(spec, measured.curves), "svg")


def test_stepsizes_at_a_small_size(monkeypatch):
    monkeypatch.setattr(scafflix_stepsizes, "deal", small_federation)
    spec = load_spec("scafflix-stepsizes") | SPEC
    spec |= {"splits": ["iid"], "alphas": [0.5], "seeds": 2, "rounds": 150, "record_every": 5}
    measured = scafflix_stepsizes.measure(spec, lambda *news: None)
    assert measured.curves["iid"].spread > 1.5
    assert measured.numbers["iid_alpha_0.5_gain"] > 1
    with drawing("scafflix-stepsizes"):
        assert b"common" in to_bytes(scafflix_stepsizes.draw(spec, measured.curves), "svg")


def test_inexact_at_a_small_size(monkeypatch):
    monkeypatch.setattr(scafflix_inexact, "deal", small_federation)
    spec = load_spec("scafflix-inexact") | {key: SPEC[key] for key in ("clients", "l2", "data_seed")}
    spec |= {"alphas": [0.5], "tolerances": [1e-1, 1e-3, 1e-6], "steps": [2, 20], "rounds": 150, "record_every": 50}
    measured = scafflix_inexact.measure(spec, lambda *news: None)
    numbers = measured.numbers
    assert numbers["alpha_0.5_tolerance_least_improvement"] > 10
    assert numbers["alpha_0.5_steps_least_improvement"] > 2
    assert measured.curves[0.5, "steps"].gradients.tolist() == [2, 20]
    assert numbers["1e-01_gradients"] < numbers["1e-06_gradients"]
    assert numbers["price_from_0"] > numbers["price_from_100"] > 1
    with drawing("scafflix-inexact"):
        assert to_bytes(scafflix_inexact.draw(spec, measured.curves), "png").startswith(b"\x89PNG")


def test_condition_at_a_small_size():
    spec = load_spec("scafflix-condition") | {"kappas": [4.0, 25.0], "seeds": 2, "target": 1e-6}
    measured = scafflix_condition.measure(spec, lambda *news: None)
    numbers = measured.numbers
    assert numbers["kappa_25_gd"] > 1.5 * numbers["kappa_25_scafflix"]
    assert numbers["kappa_25_bound_over_gap"] > 1
    assert numbers["scafflix_exponent"] < 0.75 < numbers["gd_exponent"]
    course = measured.curves[25.0]["scafflix"]
    bound = scafflix_condition.family(spec, 25.0).bound(np.array([course.promised]))
    assert bound == pytest.approx(spec["target"], rel=0.1)  # the promise is where the bound meets the target
    with drawing("scafflix-condition"):
        assert b"theorem 4" in to_bytes(scafflix_condition.draw(spec, measured.curves), "svg")


def test_theorem_4_from_the_start(problem):
    # one iteration in each round, so that the bound is start (1 - 1/kappa)^k; Psi^0/(2 gmin) is above the first gap
    federation = small_federation()
    own = scafflix.constants_of(flix(federation, SPEC, 0.3), federation)
    algorithm = scafflix.solver("flix_gd", flix(federation, SPEC, 0.3), own)
    bound = problem.theorem_4(0.3, own, algorithm, np.arange(3))
    assert bound[1] / bound[0] == pytest.approx(1 - 1 / own.condition_number)
    assert bound[0] > problem.gaps(0.3, np.ones((1, 6)))[0]
    assert problem.value(0.3) < problem.value(1.0)  # the more personal, the better the fit


@pytest.mark.parametrize("slug", SLUGS)
def test_every_slug_is_registered_documented_and_can_fail(slug):
    assert find_entry(slug).shows.startswith(("figure", "theorem"))
    text = read_me(slug)
    for part in ("Claim", "Data", "Hardware", "Hyperparameters", "Command", "Expected result", "Errata that apply"):
        assert f"**{part}" in text
    assert f"idiolect reproduce {slug}" in text
    expected = load_expected(slug)
    rows = compare(slug, expected, {one.name: math.nan for one in expected})
    assert all(row.verdict == "changed" and row.source for row in rows)


@pytest.mark.parametrize("slug", ["scafflix-logistic", "scafflix-exact"])
def test_data_sets_that_are_not_here_are_left_out_and_named(monkeypatch, tmp_path, slug):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    spec = make_spec(slug)
    assert (spec["data_sets"], spec["left_out"]) == (["mushrooms", "a6a"], ["w6a"])  # the bundled ones remain
    kept = [one.name for one in load_expected(slug) if one.belongs_to(spec)]
    assert kept
    assert not any(name.startswith("w6a") for name in kept)
    rows = compare(slug, [load_expected(slug)[0]], {load_expected(slug)[0].name: 0.0})
    text = Outcome(slug, *find_entry(slug), rows, tmp_path, left_out=("w6a",)).to_text()
    assert "idiolect datasets fetch w6a" in text
    with pytest.raises(RequestError, match="idiolect datasets fetch w6a"):
        make_spec(slug, overrides=('data_sets = ["w6a"]',))


def test_the_printed_p_comes_out_in_the_files_order():
    # the released script's p for mushrooms, with its constants, equal parts of the file and a column of ones
    spec = load_spec("scafflix-logistic")
    rows = scafflix.deal("mushrooms", scafflix.IN_ORDER, spec).train
    assert set(rows.counts.tolist()) == {1015, 1016}
    assert released_probability(rows, 0.1) == pytest.approx(0.1688, abs=5e-5)
