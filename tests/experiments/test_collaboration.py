# SPDX-License-Identifier: Apache-2.0
"""`[collaboration]`: from a spec to neighbours, discrepancies and phases, and what is refused."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from idiolect.core import mixing
from idiolect.core.checks import RequestError
from idiolect.data.federation import Federation
from idiolect.data.split import Split
from idiolect.experiments import execute as execution
from idiolect.experiments import prepare as preparing
from idiolect.experiments.build import build_method
from idiolect.experiments.collaboration import find_collaboration
from idiolect.experiments.spec import CollaborationSpec, from_table, setting_names, to_table
from idiolect.theory.constants import client_constants

PLACES = np.linspace(0, 1, 6)
B = 0.5 * (PLACES[:, None] - PLACES[None]) ** 2  # 0.02 between neighbours


@pytest.fixture(scope="module")
def built(workbench, regression):
    """`built({...} of [collaboration], name=..., ...)` -> the method on six clients."""
    default = workbench.client_loss("regression")
    with jax.enable_x64(True):
        constants = client_constants(default, regression.train)

    def build(collaboration, loss=default, **table):
        spec = from_table({"methods": {"it": table}, "collaboration": collaboration})
        found = find_collaboration(spec.collaboration, regression)
        return build_method(spec.methods[0], loss, constants, 6, 4.0, collaboration=found)

    return build


@pytest.fixture
def files(tmp_path):
    np.save(tmp_path / "b.npy", B)
    weights = (np.eye(6) + np.roll(np.eye(6), 1, axis=1)) / 2
    np.savetxt(tmp_path / "weights.csv", weights, delimiter=",")
    (tmp_path / "words.csv").write_text("a,b\nc,d\n")
    np.save(tmp_path / "small.npy", B[:3, :3])
    return tmp_path, weights


def test_named_cases_need_no_lists(built, workbench):
    for source, share in (("identity", 1.0), ("uniform", 0.0), ("mixture", 0.3)):
        ready = built({"source": source, "own_share": 0.3}, name="all_for_all")
        assert (ready.algorithm.own_share, ready.algorithm.neighbours) == (share, None)
        assert "Collaboration: " in ready.notes[0]
        assert "client" in ready.notes[0]
    silent = built({}, name="all_for_all", own_share=0.7)
    assert silent.algorithm.own_share == 0.7
    assert "No [collaboration] is given: each client learns from itself by 0.7" in silent.notes[0]
    classes = workbench.client_loss("classification")
    for other in ("fedavg", "knn_per"):  # whose neighbours are rows
        assert built({"source": "uniform"}, classes, name=other).notes == []  # who does not ask is not told


def test_files_of_weights_and_of_discrepancies(built, files):
    folder, weights = files
    ready = built({"source": "file", "path": str(folder / "weights.csv")}, name="all_for_all", step_size="theory")
    np.testing.assert_allclose(mixing.dense(ready.algorithm.neighbours), weights)
    assert ready.algorithm.target_accuracy is None
    radius = np.linalg.eigvalsh(weights @ weights.T).max()
    assert f"rho(W) = {radius:.3g}" in " ".join(ready.notes)
    table = {"source": "file", "path": str(folder / "b.npy"), "accuracy": 0.05}
    for name in ("all_for_all", "all_for_all_naive", "all_for_one"):
        algorithm = built(table, name=name).algorithm
        np.testing.assert_array_equal(mixing.counts(algorithm.neighbours), [2, 3, 3, 3, 3, 2])
        assert algorithm.target_accuracy == 0.05
    assert built(table, name="all_for_all", target_accuracy=0.5).algorithm.target_accuracy == 0.5  # by hand


def test_phases_come_from_theory(built, files):
    table = {"source": "file", "path": str(files[0] / "b.npy"), "accuracy": 0.5}
    ready = built(table, name="all_for_all_adaptive", batch_size=2)
    phases = ready.algorithm.phases
    np.testing.assert_allclose(phases.accuracy, 0.5 * 0.5 ** np.arange(len(phases.end)))
    assert ready.algorithm.discrepancies.agents == 6
    assert "phases, the accuracy halved in each" in ready.notes[0]
    assert ready.chosen == {}  # arrays are made again, not stored


def test_a_spec_keeps_it_and_lists_no_arrays():
    table = {"name": "it", "methods": {"all_for_all": {}}, "collaboration": {"source": "mixture", "own_share": 0.2}}
    spec = from_table(table)
    assert from_table(to_table(spec)) == spec
    assert "collaboration" not in to_table(from_table({"methods": {"fedavg": {}}}))
    assert not {"neighbours", "discrepancies", "phases"} & set(setting_names("all_for_all_adaptive"))
    with pytest.raises(RequestError, match="has no setting 'neighbours'"):
        from_table({"methods": {"all_for_all": {"neighbours": 3}}})


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"source": "file"}, "needs path"),
        ({"source": "file", "path": "nowhere.npy"}, "There is no file nowhere.npy"),
        ({"source": "file", "path": "words.csv"}, "must hold a matrix of numbers"),
        ({"source": "file", "path": "small.npy"}, r"each of the 6 clients, in their order, got shape \(3, 3\)"),
        ({"source": "file", "path": "b.npy"}, "Every row of Lambda must sum to 1"),
    ],
)
def test_wrong_files_get_one_sentence(files, regression, monkeypatch, table, words):
    monkeypatch.chdir(files[0])
    with pytest.raises(RequestError, match=words):
        find_collaboration(CollaborationSpec(**table), regression)


@pytest.fixture(scope="module")
def two_kinds():
    """Six clients of 30 rows, y = 3x on the first three and y = -3x on the others."""
    draw = np.random.default_rng(2)
    owner = np.repeat(np.arange(6), 30)
    inputs = draw.normal(size=(180, 1))
    targets = np.where(owner < 3, 3, -3) * inputs[:, 0] + 0.3 * draw.normal(size=180)
    return Federation.from_arrays(inputs, targets, owner, split=Split(0.8, 0.0, 0.2))


@pytest.mark.parametrize("table", [{"source": "models"}, {"source": "data", "accuracy": 12.0}])
def test_estimates_find_the_two_kinds_and_are_billed(two_kinds, tmp_path, table):
    found = find_collaboration(CollaborationSpec(**table), two_kinds)
    weights = mixing.dense(found.neighbours)
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    assert weights[:3, 3:].sum() + weights[3:, :3].sum() < 0.05 < weights[0, 1]
    assert found.exchange.upload_bytes > 0


def test_estimates_say_what_they_cannot_compare(two_kinds):
    with pytest.raises(RequestError, match='source = "data" needs accuracy'):
        find_collaboration(CollaborationSpec(source="data"), two_kinds)


def test_distances_of_few_rows_are_refused_by_the_name_of_the_client(regression):
    with pytest.raises(RequestError, match=r"at least 20 rows .* client 'clinic 0' has 3"):
        find_collaboration(CollaborationSpec(source="data", accuracy=1.0), regression)


def test_a_run_pays_for_finding_out(two_kinds, tmp_path, monkeypatch):
    monkeypatch.setattr(preparing, "build_data", lambda *_: (two_kinds, None))
    table = {
        "name": "it",
        "data": {"source": "table", "path": "none.csv", "client": "c", "target": "t"},
        "training": {"rounds": 2, "executor": "batched", "record_every": 1},
        "methods": {"all_for_all": {"step_size": 0.1}, "minibatch_sgd": {"step_size": 0.1}},
        "collaboration": {"source": "models"},
    }
    ran = execution.execute(from_table(table), tmp_path / "run")
    paid, free = (entry.runs[0].recorder.history[0] for entry in ran.trained)
    expected = find_collaboration(CollaborationSpec(source="models"), two_kinds).exchange
    assert (paid["upload_bytes"], paid["download_bytes"]) == (expected.upload_bytes, expected.download_bytes)
    assert free["upload_bytes"] == 0


def test_adaptive_needs_discrepancies(built, files):
    for table in ({}, {"source": "uniform"}, {"source": "file", "path": str(files[0] / "weights.csv")}):
        with pytest.raises(RequestError, match="needs discrepancies and the accuracy to begin with"):
            built(table, name="all_for_all_adaptive")
