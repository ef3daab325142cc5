# SPDX-License-Identifier: Apache-2.0
"""`idiolect explain`: settings, what theory chooses on the example, what it promises, and what it refuses."""

from __future__ import annotations

import json

import pytest

from idiolect.algorithms import ALGORITHMS
from idiolect.objectives import OBJECTIVES

SOLVERS = sorted(name for name, method in ALGORITHMS.items() if method.theory and method.theory.derive)
PREDICTED = {"acd_pfl", "asvrcd_pfl", "l2sgd_plus", "scafflix", "i_scaffnew", "scaffnew", "flix_gd"}


@pytest.fixture
def facts(idiolect):
    """`facts('acd_pfl', '--rows', 10)` -> the explanation as JSON."""

    def look_up(*arguments):
        answer = idiolect("explain", *arguments, "--format", "json")
        assert answer.code == 0, answer.err
        return json.loads(answer.out)

    return look_up


def test_acd_pfl_on_the_example(idiolect, facts):
    """Unified 2023's image data at lam = 1: mu = 0.01/60, L^w = 1/20, L^beta = 2/20, p_w = 1/(1 + sqrt 2)."""
    text = idiolect("explain", "acd_pfl", "--objective", "mx2").out
    assert "Theory, for 20 clients of 100 rows, L' = 1, mu' = 0.01, Lc' = 1" in text
    assert "mu 0.000167, L^w 0.05, L^beta 0.1, Lc^w 0.05, Lc^beta 0.1" in text
    assert "shared_probability = 0.4142  sqrt(L^w)/(sqrt(L^w)+sqrt(L^beta))" in text
    assert "strong_convexity = from theory (above 0)" in text
    assert "Settings of mx2" in text
    assert "at least: Unified 2023, theorem 6, up to a constant factor" in text
    assert "E002-1: algorithm 2 updates w with probability p_w" in text
    assert "(docs/errata.md#e002-1)" in text
    assert [one["number"] for one in facts("acd_pfl")["errata"]] == list(ALGORITHMS["acd_pfl"].errata)
    theory = facts("acd_pfl")["theory"]
    predicted, least = theory["predicted"], theory["at_least"]
    # sqrt(0.05/(0.01/60)) * ln(1e6) = 17.32 * 13.816
    assert least["rounds"] == pytest.approx(239.3, abs=0.1)
    assert theory["ratio"]["rounds"] == pytest.approx(predicted["rounds"] / least["rounds"])
    assert set(theory["ratio"]) == {"rounds", "full_shared_gradients", "full_personal_gradients"}
    assert predicted["rounds"] < theory["gradient_descent"]["rounds"] / 10
    assert f"{predicted['rounds']:,.0f}" in text


@pytest.mark.parametrize("name", SOLVERS)
def test_every_solver_shows_what_theory_chooses(idiolect, facts, name):
    found = facts(name)
    theory = found["theory"]
    assert theory["silent"] is None
    asked = {entry["name"] for entry in found["settings"] if entry["theory"]}
    chosen = {entry["name"]: entry for entry in theory["parameters"]}
    assert asked <= set(chosen)
    preset = ALGORITHMS[name].preset
    assert all(entry["value"] > 0 and entry["formula"] for entry in chosen.values())
    assert {key for key, entry in chosen.items() if entry["by_hand"]} == asked & set(preset)
    text = idiolect("explain", name).out
    for entry in chosen.values():
        how = "set by hand" if entry["by_hand"] else entry["formula"]
        assert f"{entry['name']} = {entry['value']:.4g}  {how}" in text
    assert ("no prediction" in text) is (theory["predicted"] is None)
    assert (theory["predicted"] is None) is (name not in PREDICTED)


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_an_objective_shows_its_settings_and_its_limits(idiolect, facts, name):
    found = facts(name)
    text = idiolect("explain", name).out
    assert {"client_loss", "clients"}.isdisjoint(entry["name"] for entry in found["settings"])
    for entry in found["settings"]:
        assert entry["doc"]
        assert f"  {entry['name']} = " in text
    assert (found["theory"]["constants"] is None) is (name == "maml")
    assert found["theory"]["predicted"] is None
    assert "no prediction" not in text
    curved = found["theory"]["at_least"] is not None
    assert curved is (name not in ("maml", "additive"))


def test_options_are_the_example(facts):
    numbers = {"clients": 10, "rows": 50, "smoothness": 2, "convexity": 0.5, "component-smoothness": 4, "epsilon": 0.01}
    options = [part for name, number in numbers.items() for part in (f"--{name}", number)]
    theory = facts("asvrcd_pfl", *options, "--set", "penalty = 1.0", "--set", "refresh_probability = 0.1")["theory"]
    constants = theory["constants"]
    # M = 10, lam = 1: 0.5/30, 1/10, 3/10, 1/10, 5/10
    assert [constants[symbol] for symbol in ("mu", "L^w", "L^beta", "Lc^w", "Lc^beta")] == pytest.approx(
        [0.5 / 30, 0.1, 0.3, 0.1, 0.5]
    )
    chosen = {entry["name"]: entry for entry in theory["parameters"]}
    assert chosen["shared_probability"]["value"] == pytest.approx(1 / 6)
    assert chosen["refresh_probability"]["value"] == 0.1
    assert chosen["refresh_probability"]["by_hand"]
    assert set(theory["ratio"]) == {"rounds", "shared_gradients", "personal_gradients"}
    assert theory["example"]["epsilon"] == 0.01


def test_a_refusal_is_told_and_the_rest_still_printed(idiolect, facts):
    answer = idiolect("explain", "acd_pfl", "--convexity", "0")
    assert answer.code == 0
    assert "Not chosen: acd_pfl.strong_convexity is left to theory, which needs F to be strongly convex" in answer.out
    assert "down: 2612 bytes" in answer.out
    theory = facts("acd_pfl", "--convexity", "0", "--set", "strong_convexity = 0.001")["theory"]
    assert theory["silent"] is None
    assert theory["predicted"]["rounds"] > 0
    broken = idiolect("explain", "asvrcd_pfl", "--objective", "mt2").out
    assert "Warning: MT2.relaxation must be at least 3 lam/(2 mu') = 150" in broken


def test_a_step_is_recommended_where_a_rule_exists(facts):
    theory = facts("fedavg", "--smoothness", "4", "--component-smoothness", "4")["theory"]
    assert [(entry["name"], entry["value"]) for entry in theory["parameters"]] == [("step_size", 0.25)]
    assert facts("fedavg", "--set", "step_size = 0.1")["theory"]["parameters"] == []
    assert facts("scaffold")["theory"]["parameters"] == []


def test_weight_sharing_takes_a_model_that_has_the_part(facts):
    layer = facts("lsgd_pfl", "--objective", "ws2", "--set", "personal_part = 'dense_1'")
    assert layer["example"].startswith("a network")
    part = facts("lsgd_pfl", "--objective", "ws2", "--set", "personal_part = 'bias'")
    assert part["example"].startswith("softmax regression")
    assert part["wire"]["download_bytes"] == 64 * 10 * 4  # weights alone


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("acd_pfl", "--set", "penalti = 1"), "acd_pfl has no setting 'penalti'. Did you mean 'penalty'?"),
        (("mx2", "--set", "relaxation = 1.0"), "mx2 has no setting 'relaxation'."),
        (("acd_pfl", "--set", "penalty = -1.0"), "acd_pfl.penalty must be at least 0, got -1."),
        (("acd_pfl", "--set", "penalty"), "--set needs one line of TOML such as 'penalty = 0.1', got 'penalty'"),
        (("acd_pfl", "--epsilon", "2"), "Example.epsilon must be above 0 and below 1, got 2."),
        (("acd_pfl", "--clients", "0"), "Example.clients must be at least 1, got 0."),
        (("acd_pfl", "--convexity", "3"), "An example needs mu' <= L' <= Lc'"),
        (("acd_pfl", "--objective", "maml"), "acd_pfl cannot minimise maml: it needs a convex objective"),
        (
            ("acd_pfl", "--objective", "apfl2", "--set", "mixing = [0.1, 0.2]"),
            "acd_pfl.mixing must be one number or have an entry for each of the 20 clients, got 2;",
        ),
    ],
)
def test_a_wrong_question_is_refused(idiolect, arguments, sentence):
    answer = idiolect("explain", *arguments)
    assert answer.code == 2
    assert sentence in answer.error
