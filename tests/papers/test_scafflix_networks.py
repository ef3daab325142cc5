# SPDX-License-Identifier: Apache-2.0
"""scafflix-networks without its data: which methods it builds, how it compares and draws, what it expects."""

from __future__ import annotations

import dataclasses
import json

import jax
import numpy as np
import pytest

from idiolect import Training
from idiolect.algorithms import LocalSGD, Scafflix
from idiolect.core.checks import RequestError
from idiolect.data.dataset_files import VARIABLE
from idiolect.data.federation import Federation
from idiolect.experiments.build import build_client_loss
from idiolect.experiments.spec import ModelSpec
from idiolect.objectives import FLIX, GlobalModel
from papers import scafflix_networks as networks
from papers.catalogue import load_expected, load_spec
from papers.cells import Cells
from papers.drawing import drawing, to_bytes
from papers.lanes import simulate_many
from papers.scafflix import Known
from papers.scafflix_networks import METHODS, Results, Trained, runs
from papers.verdicts import compare

SLUG = "scafflix-networks"


@pytest.fixture(scope="module")
def subject():
    """Three writers of tiny images, at the quick size's settings but for the length."""
    draw = np.random.default_rng(0)
    images, labels = draw.random((24, 6, 6, 1)), np.arange(24) % 2
    federation = Federation.from_arrays(images, labels, np.arange(24) // 8, classes=("a", "b"))
    size = load_spec(SLUG)["quick"]["writers"] | {"rounds": 2, "cohort": 2, "record_every": 1, "solver_epochs": 1}
    loss = build_client_loss(ModelSpec(), federation, None)  # linear: compiled soon
    return runs.Problem("writers", federation, loss, size, 0.5)


def trained(level, clients=6):
    spread = 0.01 * np.arange(clients)
    return Trained(np.array([0, 5]), np.full((2, 2), level), np.stack([level + spread, level - spread]), 0.1, "given")


def results():
    levels = dict(zip(METHODS, (0.7, 0.75, 0.72, 0.8)))
    table = {name: {short: trained(level) for short, level in levels.items()} for name in runs.DATA_SETS}
    ablations = {
        "alpha": {0.1: trained(0.7), 0.3: trained(0.8), 0.9: trained(0.6)},
        "p": {0.1: trained(0.8), 0.5: trained(0.7)},
        "cohort": {1: trained(0.5), 5: trained(0.6), 10: trained(0.7), 20: trained(0.8)},
    }
    return Results(table, dict.fromkeys(runs.DATA_SETS, 0.65), ablations)


def algorithm(subject, short, seed=None, **changes):
    return runs.algorithm(subject, runs.setting(subject, short, 0.1, **changes), seed)


def test_every_method_gets_the_same_work_and_its_share_of_the_own_optimum(subject):
    built = {short: algorithm(subject, short) for short in METHODS}
    assert [type(built[short].objective) for short in METHODS] == [GlobalModel, Known, GlobalModel, Known]
    assert built["flix"].objective.personalization == built["scafflix"].objective.personalization == 0.5
    for short in ("fedavg", "flix"):
        assert isinstance(built[short], LocalSGD)
        assert built[short].local_steps == 2  # 1/p
    for short in ("scaffnew", "scafflix"):
        assert isinstance(built[short], Scafflix)
        assert built[short].communication_probability == 0.5
    assert {one.batch_size for one in built.values()} == {20}
    assert subject.solved == {}


def test_cells_are_the_plain_methods_whose_own_optima_each_run_solves_itself(subject, tmp_path, monkeypatch):
    cells = Cells(tmp_path)
    asked = {short: (runs.setting(subject, short, 0.1), "given") for short in ("fedavg", "flix")}
    found = runs.find_or_train(subject, asked, [0, 1], cells)
    flix = FLIX(
        subject.loss, personalization=0.5, solver="epochs", solver_epochs=1, solver_batch_size=20, solver_step_size=0.1
    )
    plain = {"fedavg": GlobalModel(subject.loss), "flix": flix}
    training = Training(rounds=2, cohort=2, record_every=1, executor="batched")
    for short, trained in found.items():
        own = LocalSGD(plain[short], local_steps=2, batch_size=20, step_size=0.1)
        run = simulate_many([own, own], subject.federation, training, seeds=[0, 1], scores=runs.SCORES)
        losses = [[row["validation_personal_accuracy_mean"] for row in one.recorder.history] for one in run]
        np.testing.assert_allclose(trained.validation, losses, atol=1e-6)
        np.testing.assert_array_equal(trained.test, [one.recorder.last["test"]["personal"]["accuracy"] for one in run])
    assert sorted(subject.solved) == [0, 1]
    for seed, one in enumerate(run):  # FLIX's
        for solved, theirs in zip(*map(jax.tree.leaves, (subject.solved[seed][0], one.states.prepared.optimum))):
            np.testing.assert_allclose(solved, theirs, rtol=1e-5)
    monkeypatch.setattr(runs, "train", None)  # every cell is there
    again = runs.find_or_train(subject, asked, [1, 0], cells)
    np.testing.assert_array_equal(again["flix"].test, found["flix"].test[::-1])
    assert runs.find_alone(subject, [0], cells) == pytest.approx(np.nanmean(subject.solved[0][1]))


def test_lanes_of_one_program_differ_in_floats_only(subject, tmp_path):
    asked = {
        f"alpha-{alpha}": (runs.setting(subject, "scafflix", 0.1, alpha=alpha), "given") for alpha in (0.1, 0.9)
    } | {"p": (runs.setting(subject, "scafflix", 0.1, p=0.9), "given")}
    assert len({one.program for one, _ in asked.values()}) == 1
    found = runs.find_or_train(subject, asked, [0], Cells(tmp_path))
    assert [one.test.shape for one in found.values()] == [(1, 3)] * 3
    assert all(np.isfinite(one.test).all() and one.validation.shape == (1, 3) for one in found.values())
    fewer = runs.setting(subject, "fedavg", 0.1, cohort=1)
    assert fewer.program != runs.setting(subject, "fedavg", 0.1).program


def test_a_step_is_chosen_on_validation_rows_where_none_is_given(subject, tmp_path):
    tuning = {"tuning_rounds": 1, "tuning_seeds": [7], "grid": {"fedavg": [1e-2, 3e38]}}
    own = dataclasses.replace(subject, size=subject.size | tuning | {"steps": {"flix": 0.7}})
    assert runs.best_step(own, "flix", {"tune": False}, Cells(tmp_path)) == (0.7, "given")
    step, _ = runs.best_step(own, "fedavg", {"tune": False}, Cells(tmp_path))
    kept = {path.name: json.loads(path.read_text())["cell"]["validation"] for path in tmp_path.rglob("tuning-*.json")}
    scores = {float(name.split("-seed-7-")[0].removeprefix("tuning-")): score for name, score in kept.items()}
    assert scores[step] == max(scores.values()) >= 0
    assert scores[3e38] == -1  # diverged


def changed(numbers, size):
    """Names that a run with these numbers would call changed, and those that are documented as misses."""
    expected = [one for one in load_expected(SLUG) if one.belongs_to(load_spec(SLUG) | {"size": size})]
    rows = compare(SLUG, expected, numbers)  # refuses a number too many or too few
    documented = {one.name for one in expected if one.outcome == "miss"}
    return {row.name for row in rows if row.verdict == "changed"}, documented


@pytest.mark.parametrize("size", ["quick", "gpu"])
def test_numbers_of_the_papers_order_hold_but_where_they_are_documented_not_to(size):
    made = results()
    numbers = networks._numbers(*made) | {
        "writers_scafflix_minus_scaffnew_half_width": 0.032 if size == "quick" else 0.0
    }
    numbers |= {"shakespeare_alone_accuracy": 0.2}
    found, documented = changed(numbers, size)
    assert found == documented - {"writers_scafflix_minus_scaffnew_half_width"}
    assert numbers["best_alpha"] == 0.3
    assert numbers["writers_scafflix_minus_flix"] == pytest.approx(0.05)
    assert numbers["writers_scafflix_minus_flix_half_width"] == pytest.approx(0, abs=1e-12)  # paired by client
    assert numbers["large_cohorts_minus_small"] == pytest.approx(0.75 - 0.55)


def test_a_method_that_fails_is_noticed():
    made = results()
    right, _ = changed(networks._numbers(*made), "quick")
    wrong = networks._numbers(made.table | {"writers": made.table["writers"] | {"flix": trained(0.1)}}, *made[1:])
    assert changed(wrong, "quick")[0] - right == {"writers_flix_accuracy", "writers_flix_minus_fedavg"}


def test_the_figure_is_drawn_and_a_size_must_exist():
    with drawing(SLUG):
        assert to_bytes(networks.draw(load_spec(SLUG), results()), "svg").endswith(b"</svg>\n")
    with pytest.raises(RequestError, match=r"There is no size 'gpus'\. Did you mean 'gpu'"):
        runs.problem("writers", load_spec(SLUG, ["size = 'gpus'"]))


def test_absent_writers_are_refused_with_the_command_that_gets_them(monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(RequestError, match="idiolect datasets fetch mnist_writers"):
        networks.check(load_spec(SLUG))
