# SPDX-License-Identifier: Apache-2.0
"""Every reproduction of PLSGD 2023 at its real size, and a comparison that can fail."""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from idiolect.core.checks import RequestError
from idiolect.experiments.strict import fill
from idiolect.record import standing
from papers import runner
from papers.catalogue import SLUGS as EVERY_SLUG
from papers.catalogue import find_code, load_expected, load_spec, read_me, sized
from papers.outcome import Outcome, count_line
from papers.reproduction import Measured
from papers.runner import reproduce
from papers.verdicts import Expectation, Row, compare

SLUGS = ("plsgd-consensus", "plsgd-trajectory", "plsgd-rates")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Each slug is run once for the whole file."""
    done = {}

    def run(slug):
        if slug not in done:
            heard = []
            folder = tmp_path_factory.mktemp(slug) / "run"
            done[slug] = (reproduce(slug, folder, lambda *news: heard.append(news)), heard)
        return done[slug]

    return run


@pytest.fixture
def cheap(monkeypatch):
    """Replace what one slug measures by given numbers, so that only the comparison runs."""

    def replace(slug, numbers):
        code, measured = find_code(slug), Measured(numbers, None)
        monkeypatch.setattr(code, "measure", lambda spec, progress: measured)
        monkeypatch.setattr(code, "draw", lambda spec, curves: _blank())

    return replace


def _blank():
    from matplotlib.figure import Figure

    return Figure(figsize=(1, 1))


@pytest.mark.parametrize("slug", SLUGS)
def test_reproduces(outcomes, slug):
    outcome, heard = outcomes(slug)
    assert not outcome.changed, outcome.to_text()
    assert len(outcome.rows) == len(load_expected(slug))
    _, done, total = heard[-1]
    assert done == total == len(heard)


@pytest.mark.parametrize("slug", SLUGS)
def test_the_folder_is_complete(outcomes, slug):
    outcome, _ = outcomes(slug)
    names = {path.name for path in outcome.folder.iterdir()}
    assert names == {
        "numbers.json", "numbers.parquet", "spec.toml", "machine.json", "figure.png", "figure.svg", "done",
        "manifest.json", "request.json", "curves.json",
    }  # fmt: skip
    written = json.loads((outcome.folder / "numbers.json").read_text())
    assert written["changed"] == []
    assert written["numbers"] == [dataclasses.asdict(row) for row in outcome.rows]
    assert pq.read_table(outcome.folder / "numbers.parquet").to_pylist() == written["numbers"]
    assert tomllib.loads((outcome.folder / "spec.toml").read_text()) == load_spec(slug)
    assert (outcome.folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert "</svg>" in (outcome.folder / "figure.svg").read_text()
    assert "time_model" not in json.loads((outcome.folder / "machine.json").read_text())
    with pytest.raises(RequestError, match="choose another --out"):
        reproduce(slug, outcome.folder)


@pytest.mark.parametrize("slug", SLUGS)
def test_every_expectation_can_change(outcomes, slug):
    outcome, _ = outcomes(slug)
    expected = load_expected(slug)
    numbers = {row.name: row.measured for row in outcome.rows}
    for place, one in enumerate(expected):
        away = 3 * one.slack + 1e-9
        beyond = one.value - away if one.kind == "at_least" else one.value + away
        other = one.value if one.outcome == "miss" else beyond  # a documented miss changes when it holds
        rows = compare(slug, expected, numbers | {one.name: other})
        assert rows[place].verdict == "changed"
        rows = compare(slug, expected, numbers | {one.name: math.nan})
        assert rows[place].verdict == "changed"


def test_a_perturbed_expectation_is_a_change_and_no_exception(outcomes, cheap, monkeypatch, tmp_path):
    slug = "plsgd-consensus"
    outcome, _ = outcomes(slug)
    cheap(slug, {row.name: row.measured for row in outcome.rows})
    assert not reproduce(slug, tmp_path / "right").changed
    first, *others = load_expected(slug)
    moved = (dataclasses.replace(first, value=first.value + 1e-6), *others)
    monkeypatch.setattr(runner, "load_expected", lambda slug: moved)
    changed = reproduce(slug, tmp_path / "wrong")
    assert [row.name for row in changed.changed] == [first.name]
    assert json.loads((tmp_path / "wrong" / "numbers.json").read_text())["changed"] == [first.name]
    assert f"Changed: {first.name}." in changed.to_text()


def test_numbers_and_expectations_name_the_same_things(outcomes, cheap, tmp_path):
    slug = "plsgd-consensus"
    outcome, _ = outcomes(slug)
    numbers = {row.name: row.measured for row in outcome.rows}
    cheap(slug, {name: value for name, value in numbers.items() if name != "equation_20_3_steps"})
    with pytest.raises(RequestError, match="expects 'equation_20_3_steps', which was not measured"):
        reproduce(slug, tmp_path / "fewer")
    cheap(slug, numbers | {"equation_22": 1.0})
    with pytest.raises(RequestError, match="measured 'equation_22', of which its expected"):
        reproduce(slug, tmp_path / "more")
    assert not (tmp_path / "fewer" / "done").exists()
    twice = (*load_expected(slug), load_expected(slug)[0])
    with pytest.raises(RequestError, match="'local_sgd_step_1' twice"):
        compare(slug, twice, numbers)


def test_unknown_names_are_refused_with_the_nearest(tmp_path):
    with pytest.raises(RequestError, match="Did you mean 'plsgd-rates'"):
        reproduce("plsgd-rate", tmp_path / "run")
    with pytest.raises(RequestError, match="Did you mean 'plsgd-rates'"):
        read_me("plsgd-rate")
    with pytest.raises(RequestError, match=r"local_sgd\] has no setting 'stepsize'. Did you mean 'step_size'"):
        reproduce("plsgd-consensus", tmp_path / "run", overrides=("local_sgd.stepsize = 1.0",))
    with pytest.raises(RequestError, match=r"rounds must be of type int like 8, got 2\.5"):
        load_spec("plsgd-consensus", ("rounds = 2.5",))
    assert not (tmp_path / "run").exists()


def test_after_an_interruption_nothing_is_said_to_be_kept_where_all_starts_again(monkeypatch, tmp_path):
    def interrupt(spec, progress):
        raise KeyboardInterrupt

    monkeypatch.setattr(find_code("plsgd-rates"), "measure", interrupt)
    standing.forget()
    with pytest.raises(KeyboardInterrupt):
        reproduce("plsgd-rates", tmp_path / "run")
    assert "kept" not in standing.way_on()
    assert standing.way_on().endswith(f"--out {tmp_path / 'run'} starts again.")


def test_the_quick_size_may_be_named_where_it_is_the_only_one():
    assert sized("plsgd-rates", ["quick"]) == []
    assert sized("flow-table2", ["quick"]) == ['size = "quick"']


@pytest.mark.parametrize(
    ("slug", "override", "sentence"),
    [
        ("plsgd-consensus", "rounds = 0", "plsgd-consensus.rounds must be at least 1, got 0"),
        ("plsgd-consensus", "rounds = -3", "rounds must be at least 1, got -3"),
        ("plsgd-consensus", "rounds = 99999999999999999999", r"rounds must be below 2\^31, got 99999999999999999999"),
        ("plsgd-consensus", "equation_21.rounds = 0", "equation_21.rounds must be at least 1, got 0"),
        ("plsgd-consensus", "spread = nan", "spread must be a finite number, got nan"),
        ("plsgd-consensus", "spread = -inf", "spread must be a finite number, got -inf"),
        ("plsgd-consensus", "spread = 0", "spread must be above 0, got 0"),
        ("plsgd-consensus", "center = 1e308", "center must be at most 3.40282e[+]38 in size, got 1e[+]308"),
        ("plsgd-consensus", "equation_20.local_steps = ['a']", r"must be a list of whole numbers, got \['a'\]"),
        ("plsgd-consensus", "equation_20.local_steps = []", r"local_steps must have at least one entry, got \[\]"),
        ("plsgd-rates", "noise.clients = [4, 0]", "noise.clients must be at least 1, got 0"),
        ("plsgd-rates", "threshold.server_step_size = [1.0]", r"server_step_size must have 2 entries, got \[1.0\]"),
        ("afa-bernoulli", "first_seed = -1", "first_seed must be at least 0, got -1"),
        ("afa-continuum", "counted.cases = [[1, 1], [1]]", r"cases must have 2 entries, got \[1\]"),
        ("afa-continuum", "counted.cases = [1]", "cases must be a list of entries like"),
        ("afa-continuum", "measured.cases = [{dimension = 1}]", "must have 'accuracy' in each of its tables"),
        (
            "afa-continuum",
            "measured.cases = [{dimension = 0, accuracy = [0.1]}]",
            "dimension must be at least 1, got 0",
        ),
        ("unified-mx2", "heterogeneity = [0.1, 0.0]", "heterogeneity must be above 0, got 0"),
        ("scafflix-condition", "alphas = [2.0]", "alphas must be above 0 and at most 1, got 2"),
        ("unified-images", "data_sets = []", "data_sets must have at least one entry"),
        ("flow-gains", "gpu.half.steps = {flow = inf}", "half.steps.flow must be a finite number, got inf"),
    ],
)
def test_a_number_out_of_range_is_refused_before_anything_is_computed(tmp_path, slug, override, sentence):
    with pytest.raises(RequestError, match=sentence):
        reproduce(slug, tmp_path / "run", overrides=[override])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "error", [IndexError("no such place"), ZeroDivisionError("by nothing"), ValueError("two\nlines")]
)
@pytest.mark.parametrize("part", ["measure", "draw"])
def test_what_fails_with_overrides_is_said_to_be_their_fault(cheap, monkeypatch, tmp_path, part, error):
    def fail(*given):
        raise error

    cheap("plsgd-rates", expected_values("plsgd-rates"))
    monkeypatch.setattr(find_code("plsgd-rates"), part, fail)
    with pytest.raises(RequestError, match=f"--set rows = 3 .*{type(error).__name__} .*choose values nearer"):
        reproduce("plsgd-rates", tmp_path / "with", overrides=["rows = 3"])
    with pytest.raises(type(error), match=str(error)):  # a defect of the program
        reproduce("plsgd-rates", tmp_path / "without")


def test_numbers_that_are_not_finite_are_named(cheap, tmp_path):
    cheap("plsgd-rates", expected_values("plsgd-rates") | {"tuned_noise_slope": math.nan})
    outcome = reproduce("plsgd-rates", tmp_path / "run")
    assert [row.name for row in outcome.changed if not math.isfinite(row.measured)] == ["tuned_noise_slope"]
    assert "Not finite: tuned_noise_slope:" in outcome.to_text()


def test_an_override_changes_the_experiment_and_its_record(tmp_path):
    # eta = 0.4: the second value is (1 - 0.6)^2 = 0.16 where 0.25 is expected; equation 20 has its own steps
    changes = ("local_sgd.step_size = 0.4", "rounds = 2", "equation_21.rounds = 2")
    outcome = reproduce("plsgd-consensus", tmp_path / "run", overrides=changes)
    assert outcome.changed
    numbers = {row.name: row for row in outcome.rows}
    assert numbers["local_sgd_step_1"].measured == pytest.approx(0.16, rel=1e-12)
    assert numbers["local_sgd_step_1"].verdict == "changed"
    assert numbers["local_sgd_largest_deviation"].verdict == "holds"
    assert numbers["equation_20_3_steps"].verdict == "holds"
    assert tomllib.loads((tmp_path / "run" / "spec.toml").read_text())["local_sgd"]["step_size"] == 0.4


@pytest.mark.parametrize(
    ("kind", "measured", "admitted"),
    [
        ("equal", 2.1, True), ("equal", 1.9, True), ("equal", 2.3, False), ("equal", 1.7, False),
        ("at_most", 0.0, True), ("at_most", 2.1, True), ("at_most", 2.3, False),
        ("at_least", 9.0, True), ("at_least", 1.9, True), ("at_least", 1.7, False),
        ("at_least", math.inf, False), ("at_most", -math.inf, False), ("at_most", math.nan, False),
    ],
)  # fmt: skip
def test_kinds_and_tolerances(kind, measured, admitted):
    assert Expectation("x", 2.0, "here", "theory", kind, relative=0.1).admits(measured) == admitted
    assert Expectation("x", 2.0, "here", "theory", kind, absolute=0.2).admits(measured) == admitted


@pytest.mark.parametrize(
    ("outcome", "measured", "verdict"),
    [
        ("hold", 0.9, "holds"), ("hold", 1.1, "changed"), ("miss", 1.1, "misses"), ("miss", 0.9, "changed"),
        ("miss", math.nan, "changed"), ("hold", math.nan, "changed"),
    ],
)  # fmt: skip
def test_a_documented_miss_is_no_change(outcome, measured, verdict):
    because = "printed wrongly" if outcome == "miss" else ""
    one = Expectation("x", 1.0, "theorem 1", "paper", "at_most", outcome=outcome, because=because)
    assert one.verdict(measured) == verdict


@pytest.mark.parametrize(
    ("entry", "rule"),
    [
        ({}, "needs origin"),
        ({"origin": "folklore"}, "origin must be"),
        ({"origin": "paper", "outcome": "miss"}, "because"),
        ({"origin": "paper", "because": "no reason to miss"}, "outcome"),
        ({"origin": "paper", "outcome": "fail"}, "outcome must be"),
    ],
)
def test_an_expectation_states_origin_outcome_and_reason(entry, rule):
    with pytest.raises(RequestError, match=rule):
        fill(Expectation, {"name": "x", "value": 1.0, "source": "table 1"} | entry, "expected.toml")


def test_the_last_line_counts_origins_apart():
    def one(origin, verdict, name="x"):
        because = "E1" if verdict == "misses" else ""
        return Row(name, "equal", 1.0, 1.0, 0.0, "absolute", origin, verdict, "there", because)

    rows = [one("paper", "holds"), one("paper", "misses", "y"), one("theory", "holds"), one("released", "changed")]
    rows += [one("independent", "holds"), one("regression", "holds"), one("regression", "holds")]
    assert count_line(rows) == (
        "1 of 2 claims of the paper hold (1 known not to, listed above), 1 of 1 of theory, 0 of 1 of released code, "
        "1 of 1 independent; 2 regression values unchanged."
    )
    assert count_line(rows[-2:]) == "2 regression values unchanged."
    assert count_line([rows[2], one("regression", "changed")]) == (
        "1 of 1 numbers of theory hold; 0 of 1 regression value unchanged."
    )
    text = Outcome("slug", "Title", "paper", "figure 1", tuple(rows), Path("runs")).to_text()
    assert "- y: E1" in text
    assert text.endswith(count_line(rows))


@pytest.mark.parametrize("slug", EVERY_SLUG)
def test_every_number_has_a_place(slug):
    for one in load_expected(slug):
        assert "ALGORITHMS" not in one.source, one.name  # a file that no reader has
        assert one.source.strip().lower() not in ("", "measured", "ours"), one.name
        if one.kind == "equal":
            assert (one.absolute, one.relative) != (None, None), one.name
            assert one.value == 0 or one.slack < 0.25 * abs(one.value), one.name  # wider, and it cannot fail


@pytest.mark.parametrize("slug", SLUGS)
def test_every_reproduction_is_documented(slug):
    text = read_me(slug)
    for part in ("Claim", "Data", "Hardware", "Hyperparameters", "Command", "Expected result", "Errata that apply"):
        assert f"**{part}" in text
    assert f"idiolect reproduce {slug}" in text
    assert all(expectation.source for expectation in load_expected(slug))


def expected_values(slug):
    return {expectation.name: expectation.value for expectation in load_expected(slug)}


def test_expected_trajectory_is_the_recursion_in_fractions():
    # diagonal quadratics: K local steps take v to v* + (1 - eta h)^K (v - v*), and averaging is linear
    curvature, optima, eta, K, R = ((2, 4), (4, 2)), ((7, 18), (18, 13)), Fraction(1, 20), 3, 8
    server, ends, personal = [], [[], []], [[], []]
    for j in range(2):
        w, theta, shared = Fraction(0), [Fraction(0)] * 2, Fraction(0)
        for _ in range(R):
            end = [optima[m][j] + (1 - eta * curvature[m][j]) ** K * (w - optima[m][j]) for m in range(2)]
            w = sum(end) / 2
            # alpha = 1: v moves by twice what w_m and theta_m each move
            moves = [
                (1 - (1 - 2 * eta * curvature[m][j]) ** K) / 2 * (optima[m][j] - shared - theta[m]) for m in range(2)
            ]
            theta, shared = [theta[m] + moves[m] for m in range(2)], shared + sum(moves) / 2
        server.append(w)
        for m in range(2):
            ends[m].append(end[m])
            personal[m].append(shared + theta[m])
    values = expected_values("plsgd-trajectory")

    def distance(point, m):
        return math.hypot(*(float(x - goal) for x, goal in zip(point, optima[m])))

    assert values["local_gd_server_x"] == pytest.approx(float(server[0]), rel=1e-14)
    assert values["local_gd_server_y"] == pytest.approx(float(server[1]), rel=1e-14)
    for m in range(2):
        assert values[f"local_gd_server_to_optimum_{m + 1}"] == pytest.approx(distance(server, m), rel=1e-13)
        assert values[f"local_gd_client_{m + 1}_to_optimum"] == pytest.approx(distance(ends[m], m), rel=1e-13)
        assert values[f"personalized_client_{m + 1}_to_optimum"] == pytest.approx(distance(personal[m], m), rel=1e-13)


def test_expected_noise_is_the_exact_expectation():
    # one Hessian, the identity: per round the mean of v_m - v*_m and the deviations from it gain the noise gathered in
    # K steps, eta^2 sigma^2 sum_k nu^(2k), times (alpha+beta)^2/M and alpha^2 (1-1/M), and shrink by psi^2 and phi^2
    asked, values = load_spec("plsgd-rates")["noise"], expected_values("plsgd-rates")
    eta, K, beta, totals = asked["step_size"], asked["local_steps"], asked["server_step_size"], []
    for M in asked["clients"]:
        for name, alpha in ((f"noise_{M}_clients", 1.0), (f"noise_{M}_clients_small_alpha", M**-0.5)):
            nu = 1 - eta * (1 + alpha)
            gathered = (eta * asked["noise"]) ** 2 * sum(nu ** (2 * k) for k in range(K))
            phi, psi = (1 + alpha * nu**K) / (1 + alpha), 1 - (alpha + beta) * (1 - nu**K) / (1 + alpha)
            own = mean = 0.0
            seen = []
            for _ in range(asked["rounds"]):
                own = phi**2 * own + alpha**2 * gathered * (1 - 1 / M)
                mean = psi**2 * mean + (alpha + beta) ** 2 * gathered / M
                seen.append(own + mean)
            totals.append(np.mean(seen[-asked["window"] :]))
            assert values[name] == pytest.approx(totals[-1], rel=1e-4)
    slope = np.polyfit(np.log(asked["clients"]), np.log(totals[1::2]), 1)[0]
    assert values["small_alpha_noise_slope"] == pytest.approx(slope, abs=1e-5)
