# SPDX-License-Identifier: Apache-2.0
"""Settings, strength and rounds are chosen on validation rows, kept in the run folder, and used by the final fit."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest

from idiolect.experiments.build import problem_constants
from idiolect.experiments.execute import execute
from idiolect.experiments.folds import with_validation_rows
from idiolect.experiments.outcome import _history_rows
from idiolect.experiments.prepare import prepare
from idiolect.experiments.run_folder import RunFolder
from idiolect.experiments.tuning import from_json

METHODS = {"local": {}, "fedavg": {}, "ditto": {}, "wild": {"name": "fedavg", "step_size": 1e30}}
ROUNDS = 12


@pytest.fixture(scope="session")
def chosen(small, tmp_path_factory):
    """A run that chooses everything: `local`, `fedavg`, `ditto`, and one method that can only diverge."""
    spec = small.spec(
        "regression",
        methods=METHODS,
        defaults={},
        training={"rounds": ROUNDS},
        tuning={"auto": True, "until": "converged", "refit": True},
    )
    return execute(spec, tmp_path_factory.mktemp("chosen") / "run")


def kept(done, label):
    return json.loads((done.folder / f"tuning/{label}.json").read_text())


def line(done, label):
    return next(entry for entry in done.summary.methods if entry.method == label)


def test_what_is_said_of_training_alone_is_what_was_trained(chosen):
    found = kept(chosen, "local")
    assert found["sentence"].startswith("each client as far as its own validation rows choose: step size per client")
    assert f", {found['rounds']} rounds, by squared error on validation rows" in found["sentence"]
    assert found["sentence"].count(" rounds, ") == 1


@pytest.mark.parametrize("label", ["local", "fedavg", "ditto"])
def test_the_best_candidate_is_the_one_that_is_fitted(chosen, label):
    found = kept(chosen, label)
    tried = [trial["validation"] for trial in found["trials"] if trial["validation"] is not None]
    means = {model: np.mean(scores["squared_error"]) for model, scores in found["validation"].items()}
    assert len(tried) > 1
    assert means["personal"] <= 1.001 * min(tried)  # the best, or as good and cheaper; never worse with own values
    assert 0 <= found["rounds"] <= found["trained"] <= ROUNDS
    assert line(chosen, label).tuned == found["sentence"]
    assert line(chosen, label).converged is found["converged"]
    resolved = RunFolder(chosen.folder).read_spec().resolved[label]
    assert resolved.rounds == found["rounds"]
    # a step that is too long for training and validation rows together is shortened, down to a safe one at most
    loss = chosen.trained[0].runs[0].algorithm.objective.client_loss
    smoothness = problem_constants(loss, with_validation_rows(chosen.federation)).smoothness
    steps, fitted = np.array(found["settings"]["step_size"]), np.array(resolved.tuned["step_size"])  # alone: one each
    assert (np.minimum(steps, 1 / smoothness) - 1e-9 <= fitted).all()
    assert (fitted <= steps).all()


def test_the_strength_is_tried_beside_the_step_and_counts_in_rows(chosen):
    found = kept(chosen, "ditto")
    assert len({trial["penalty"] for trial in found["trials"]}) >= 4
    assert found["in_rows"] == ["penalty"]
    rows = with_validation_rows(chosen.federation).train.counts
    used = RunFolder(chosen.folder).read_spec().resolved["ditto"].tuned["penalty"]
    most = 1 / found["settings"]["step_size"]  # more than a step can follow
    np.testing.assert_allclose(used, np.minimum(found["settings"]["penalty"] / rows, most))


def test_a_method_that_only_diverges_is_a_row_with_its_reason(chosen):
    assert line(chosen, "wild").diverged.round >= 1
    assert chosen.summary.announced.method != "wild"
    assert line(chosen, "fedavg").score.mean is not None


def test_refitted_models_keep_the_validation_scores_of_what_chose_them(chosen):
    entry = next(one for one in chosen.trained if one.method.label == "fedavg")
    assert chosen.summary.refit is True
    found = from_json(RunFolder(chosen.folder).read_sealed("tuning/fedavg.json"))
    recorder = entry.runs[0].recorder
    for model, scores in found.validation.items():  # the choice is kept in the units of training, scaled targets
        recorded = np.array(recorder.selected["validation"][model]["squared_error"]) / scores["squared_error"]
        np.testing.assert_allclose(recorded, recorded[0], rtol=1e-6)
        assert recorded[0] > 100  # outcomes spread over about 40 units
    assert [row["round"] for row in recorder.history][-1] == found.rounds


def test_choices_are_read_back_by_a_resumed_run(chosen, small, tmp_path, monkeypatch):
    from idiolect.experiments import execute as module

    spec = chosen_spec = RunFolder(chosen.folder).read_spec()
    spec = dataclasses.replace(spec, resolved={}, methods=spec.methods[:2])
    first = execute(spec, tmp_path / "run")
    (tmp_path / "run/done").unlink()
    (tmp_path / "run/summary.json").unlink()
    monkeypatch.setattr(module, "tune", lambda *_: pytest.fail("chosen again"))
    again = execute(spec, tmp_path / "run", resume=True)
    assert again.summary.announced == first.summary.announced
    scores = [[entry.score.mean for entry in done.summary.methods] for done in (first, again)]
    assert scores[0] == scores[1]
    assert chosen_spec.resolved["local"].tuned == again_spec(tmp_path).resolved["local"].tuned


def again_spec(folder):
    return RunFolder(folder / "run").read_spec()


def test_all_rows_but_test_rows_train_in_a_refit(small):
    federation = prepare(small.spec(data={"held_out": 1})).federation
    joined = with_validation_rows(federation)
    np.testing.assert_array_equal(joined.train.counts, federation.train.counts + federation.validation.counts)
    assert joined.validation.counts.sum() == joined.held_out.validation.counts.sum() == 0
    assert joined.test is federation.test
    before = np.split(federation.train.inputs, federation.train.offsets[1:-1])
    more = np.split(federation.validation.inputs, federation.validation.offsets[1:-1])
    for own, first, second in zip(np.split(joined.train.inputs, joined.train.offsets[1:-1]), before, more):
        np.testing.assert_array_equal(own, np.concatenate([first, second]))


def test_accuracy_is_shown_and_log_loss_chooses(finished, small):
    prepared = prepare(small.spec())
    assert (prepared.scores[0], prepared.choose_by) == ("accuracy", "log_loss")
    assert "log_loss" in prepared.scores
    assert prepare(small.spec(evaluation={"choose_by": "accuracy"})).choose_by == "accuracy"


def test_a_final_fit_may_cost_less_than_the_fit_that_it_was_chosen_by(chosen):
    """Fewer solver steps suit more rows: the last row of the history then has smaller totals than the one before."""
    run = chosen.trained[1].runs[0]
    history = [row | {"full_gradients_personal": 9 - place} for place, row in enumerate(run.history)]
    less = SimpleNamespace(history=history, seed=0, lane=run.lane, plan=run.plan)
    rows = _history_rows([SimpleNamespace(method=chosen.trained[1].method, runs=[less])], "phone")
    seconds = [row["modelled_seconds"] for row in rows]
    assert len(seconds) > 1
    assert seconds == sorted(seconds)
