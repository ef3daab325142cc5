# SPDX-License-Identifier: Apache-2.0
"""What compare chooses on validation rows, how it ends, and what it does with those rows afterwards."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest

from idiolect.data.federation import Federation
from idiolect.experiments.announce import difference
from idiolect.experiments.candidates import DEFAULT, local_work, method_names, method_tables
from idiolect.experiments.execute import execute
from idiolect.experiments.folds import fold, fold_count, with_validation_rows
from idiolect.experiments.lanes import Lane, cross_fit, for_rows, shorten_steps, step_notes
from idiolect.experiments.own_choice import choose_own
from idiolect.experiments.predict import predict
from idiolect.experiments.prepare import prepare
from idiolect.experiments.run_folder import RunFolder
from idiolect.experiments.spec import MethodSpec, from_table
from idiolect.experiments.tuning import Tuned, _prepare_as, axes_of, blame, is_searched
from idiolect.theory.constants import Constants

CLIENTS, ROWS = 6, 24


def write_clients(path, rare=False):
    """Clients with coefficients of their own around common ones; with `rare`, a flag in three rows of one client."""
    draw = np.random.default_rng(3)
    lines = ["site,a,b,flag,outcome"]
    for client in range(CLIENTS):
        own = np.array([1.0, -2.0]) + draw.normal(0, 0.7, 2)
        for row in range(ROWS):
            x = draw.normal(size=2)
            flag = int(rare and client == 2 and row < 3)
            lines.append(f"{client:03},{x[0]:.4f},{x[1]:.4f},{flag},{x @ own + 5 * flag + draw.normal(0, 0.5):.4f}")
    path.write_text("\n".join(lines) + "\n")


def comparing(path, methods=("local", "fedavg", "ditto"), **tables):
    given = {
        "name": "compared",
        "data": {"source": "table", "path": str(path), "client": "site", "target": "outcome"},
        "training": {"rounds": 60, "record_every": 2, "executor": "batched"},
        "defaults": local_work("linear", None, None),
        "methods": method_tables(list(methods), "linear"),
        "tuning": {"auto": True, "until": "converged", "refit": True},
        "collaboration": {"source": "models"} if "all_for_all" in methods else {},
    }
    return from_table(given | tables)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("tuning") / "clients.csv"
    write_clients(path)
    return path


@pytest.fixture(scope="module")
def compared(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared") / "run"
    said = []
    done = execute(comparing(table), folder, say=said.append)
    return done, folder, said


def test_the_default_candidates_span_the_question():
    assert DEFAULT[:2] == ("local", "fedavg")
    assert {"fedavg_fine_tuning", "ditto", "flix_sgd", "fedper", "all_for_all"} < set(DEFAULT)
    assert method_names(None) == list(DEFAULT)
    assert method_names(" local , fedavg") == ["local", "fedavg"]
    assert len(method_names("all")) > 40


def test_step_sizes_lie_around_theorys_and_strengths_are_tuned(table):
    spec = comparing(table)
    prepared = prepare(spec)
    local, _, ditto = spec.methods
    (step,) = axes_of(prepared, local)
    assert step.values[0] < 1 / prepared.constants.smoothness < step.values[-1]
    assert [axis.name for axis in axes_of(prepared, ditto)] == ["step_size", "penalty"]
    given = dataclasses.replace(ditto, settings=ditto.settings | {"penalty": 1.0, "step_size": 0.1})
    assert axes_of(prepared, given) == []
    assert is_searched(prepared, given)  # its rounds are chosen all the same


def test_a_penalty_in_rows_holds_a_small_client_harder(table):
    federation = prepare(comparing(table)).federation
    settings = for_rows({"step_size": 0.1, "penalty": 3.0}, ["penalty"], federation, None)
    np.testing.assert_allclose(settings["penalty"], np.minimum(3.0 / federation.train.counts, 10))
    assert settings["step_size"] == 0.1


def test_no_strength_makes_the_steps_of_a_client_swing_up(table):
    """Steps are stable up to step * (curvature + penalty) = 2, and a client of few rows curves much."""
    prepared = prepare(comparing(table))
    smooth = prepared.constants.client_smoothness
    step = 1.4 / smooth.max()
    penalty = for_rows({"step_size": step, "penalty": 1e6}, ["penalty"], prepared.federation, prepared.constants)[
        "penalty"
    ]
    assert (step * (smooth + penalty)).max() <= 1.5 + 1e-6
    assert min(penalty) > 0


def test_every_method_says_whether_it_had_converged(compared):
    done, folder, said = compared
    assert all(isinstance(entry.converged, bool) for entry in done.summary.methods)
    assert sum("rounds, by squared error on validation rows" in text for text in said) == 3
    kept = json.loads((folder / "tuning" / "ditto.json").read_text())
    assert {"step_size", "penalty"} <= set(kept["settings"])
    assert len(kept["trials"]) >= 4


def test_the_winner_is_chosen_on_validation_rows(compared):
    done, _, _ = compared
    means = {entry.method: entry.choosing_mean for entry in done.summary.methods}
    announced = done.summary.announced
    best = min(means, key=means.get)
    assert announced.method == best or best in announced.tied
    assert announced.method not in announced.tied
    assert announced.choosing_mean == pytest.approx(means[announced.method])


def test_delivered_models_are_fitted_on_training_and_validation_rows(compared, table):
    done, folder, _ = compared
    local = next(entry for entry in done.trained if entry.method.label == "local")
    fitted = local.runs[0].plan.federation
    assert fitted.validation.counts.sum() == 0
    np.testing.assert_array_equal(fitted.train.counts, done.federation.train.counts + done.federation.validation.counts)
    # alone, on a linear model, many exact steps: close to least squares on these very rows
    client = pq.read_table(folder / "clients.parquet").to_pylist()[0]
    x, y = fitted.train.of(0)
    design = np.column_stack([x, np.ones(len(x))])
    coefficients = np.linalg.lstsq(design, y, rcond=None)[0]
    x, y = fitted.test.of(0)
    error = ((np.column_stack([x, np.ones(len(x))]) @ coefficients - y) ** 2).mean()
    scale = done.federation.preprocessing.target.scales[0] ** 2
    assert client["score"] == pytest.approx(error * scale, rel=0.5)


def test_a_refit_federation_has_every_row_once(table):
    federation = prepare(comparing(table)).federation
    joined = with_validation_rows(federation)
    for client in range(CLIENTS):
        parts = [getattr(federation, part).of(client)[1] for part in ("train", "validation")]
        np.testing.assert_array_equal(joined.train.of(client)[1], np.concatenate(parts))


def test_folds_part_the_same_rows_with_the_same_counts(table):
    federation = prepare(comparing(table)).federation
    number = fold_count(federation)
    assert number >= 3
    seen = []
    for place in range(number):
        other = fold(federation, place, seed=0)
        np.testing.assert_array_equal(other.train.counts, federation.train.counts)
        both = [np.concatenate([part.of(0)[1] for part in (f.train, f.validation)]) for f in (other, federation)]
        np.testing.assert_array_equal(*(np.sort(targets) for targets in both))
        seen.append(set(other.validation.of(0)[1].tolist()))
    *whole, last = seen  # where the rows do not divide evenly, the last fold takes some of them again
    assert all(not a & b for place, a in enumerate(whole) for b in whole[:place])
    assert len(last & set().union(*whole)) < len(last)


def test_rows_that_the_user_names_for_validation_are_the_only_fold():
    rows = np.arange(40.0)[:, None]
    parts = np.tile(["train", "train", "validation", "test"], 10)
    given = Federation.from_arrays(rows, rows[:, 0] % 7, np.repeat([0, 1], 20), task="regression", parts=parts)
    assert not given.validation_drawn
    assert fold_count(given) == 1


def test_a_split_column_without_validation_rows_has_some_drawn():
    rows = np.arange(40.0)[:, None]
    parts = np.tile(["train", "train", "train", "test"], 10)
    drawn = Federation.from_arrays(rows, rows[:, 0] % 7, np.repeat([0, 1], 20), task="regression", parts=parts)
    assert drawn.validation_drawn
    assert drawn.validation.counts.min() > 0
    assert drawn.test.counts.sum() == 10
    assert any("no validation rows" in note for note in drawn.notes)


def test_an_interrupted_choice_is_taken_up_again(table, tmp_path, compared):
    spec = comparing(table)
    folder = tmp_path / "run"

    class StoppedError(Exception):
        pass

    def stop(label, done, total):
        if label.startswith("ditto"):
            raise StoppedError

    with pytest.raises(StoppedError):
        execute(spec, folder, progress=stop)
    again = execute(spec, folder, resume=True)
    for ours, theirs in zip(again.summary.methods, compared[0].summary.methods):
        assert ours.score == theirs.score
        assert ours.validation_mean == theirs.validation_mean


def test_predict_takes_the_announced_method_with_what_was_tuned(compared, table):
    done, folder, _ = compared
    said = []
    answers = predict(folder, table, say=said.append)
    assert answers.num_rows == CLIENTS * ROWS
    assert any(done.summary.announced.method in text for text in said)


def test_a_method_that_diverges_is_a_row_and_not_the_end(table, tmp_path):
    spec = comparing(table, methods=("local", "fedavg"), tuning={"step_size": [1e30, 1e32], "until": "rounds"})
    wild = dataclasses.replace(spec.methods[1], settings=spec.methods[1].settings | {"step_size": 0.05})
    done = execute(dataclasses.replace(spec, methods=(spec.methods[0], wild)), tmp_path / "run")
    local, fedavg = done.summary.methods
    assert local.diverged.round >= 1
    assert fedavg.diverged is None
    assert done.summary.announced.method == "fedavg"


def test_a_rare_flag_does_not_decide_the_comparison(tmp_path):
    path = tmp_path / "rare.csv"
    write_clients(path, rare=True)
    done = execute(comparing(path, methods=("local", "fedavg")), tmp_path / "run")
    assert not any(entry.diverged for entry in done.summary.methods)
    assert np.abs(done.federation.train.inputs).max() < 20


def test_a_column_that_lies_far_out_is_named(table):
    federation = prepare(comparing(table)).federation
    assert blame(federation, 0) == ""
    inputs = federation.train.inputs.copy()
    inputs[0, 1] = 50.0
    far = dataclasses.replace(federation, train=dataclasses.replace(federation.train, inputs=inputs))
    assert "'b'" in blame(far, 0)
    assert blame(far, 1) == ""


def test_own_strengths_need_rows_that_did_not_choose_them():
    draw = np.random.default_rng(0)
    rows = np.full(8, 30)
    wanted = np.arange(8) % 2  # half of the clients want the first value, half the second
    clear = np.abs(np.arange(2)[:, None, None] - wanted) + 0.01 * draw.random((2, 4, 8))
    own = choose_own(clear, [clear] * 4, rows, common=clear[0])
    np.testing.assert_array_equal(own.places, wanted)
    assert own.losses.shape == (4, 8)
    noise = 1 + 0.1 * draw.random((2, 4, 8))
    noise[1] += 0.05
    assert choose_own(noise, [noise] * 4, np.full(8, 2), common=noise[0]) is None  # better here, not better there
    assert choose_own(clear[:, :1], [clear[:, :1]], rows, common=clear[0, :1]) is None  # one fold cannot judge itself


def test_the_best_of_many_is_judged_on_folds_that_did_not_choose_it():
    """Candidates that differ by chance alone: the best looks better than it is, the cross-fitted one does not."""
    draw = np.random.default_rng(0)
    losses = 1 + 0.1 * draw.normal(size=(30, 4, 5))  # (candidates, folds, clients)
    losses[0, :, 4] = np.nan  # a client without a score is in no mean
    recorders = [SimpleNamespace(diverged=None)] * 4
    lanes = [
        Lane({"penalty": place}, "log_loss", recorders, [{0: {"log_loss": fold}} for fold in own])
        for place, own in enumerate(losses)
    ]
    best = max(lane.best[0] for lane in lanes)
    fitted = cross_fit(lanes)
    assert fitted.shape == (4, 5)
    assert -best < 0.97 < fitted.mean() < 1.05
    lost = Lane({"penalty": 99}, "log_loss", [SimpleNamespace(diverged="round 1")] * 4, [{} for _ in range(4)])
    np.testing.assert_array_equal(cross_fit([*lanes, lost]), fitted)


def test_a_budget_of_minutes_marks_what_it_cuts_short(table, tmp_path):
    tuning = {"auto": True, "until": "converged", "refit": True, "minutes": 1e-6}
    done = execute(comparing(table, methods=("local", "flix_sgd"), tuning=tuning), tmp_path / "run")
    for line in done.summary.methods:
        assert line.converged is False
        assert "the time was up" in line.tuned
        assert "1 round," in line.tuned or line.rounds != 1


def test_clients_that_do_best_untrained_alone_still_get_one_step_for_flix():
    method = MethodSpec("flix_sgd", "flix_sgd", None, {"epochs": 5})
    prepared = SimpleNamespace(spec=SimpleNamespace(tuning=SimpleNamespace(auto=True)))
    untrained = Tuned({"step_size": 0.3}, [], 0, True, 0, [], {}, [], [], "")
    found = _prepare_as(prepared, method, untrained)
    assert found["solver_epochs"] == 1
    assert found["solver_step_size"] == 0.3


def constants_of(smoothness):
    one = np.array([smoothness])
    return Constants(one, 0 * one, one, exact=True, source="")


def test_long_steps_are_shortened_where_the_rows_to_fit_are_less_smooth():
    chosen = {"step_size": 0.1, "fine_tuning_step_size": 0.9, "penalty": 3.0}
    fitted = shorten_steps(chosen, constants_of(2.0), constants_of(2.5))
    assert fitted == {"step_size": 0.1, "fine_tuning_step_size": pytest.approx(0.72), "penalty": 3.0}
    assert len(step_notes(chosen, fitted)) == 1
    assert shorten_steps(chosen, constants_of(2.0), constants_of(1.5)) == chosen
    both = [dataclasses.replace(constants_of(1.0), client_smoothness=np.array(own)) for own in ([2.0, 2.0], [2.5, 1.0])]
    assert shorten_steps({"step_size": [0.9, 0.9]}, *both) == {"step_size": [pytest.approx(0.72), 0.9]}  # each its own
    assert shorten_steps(chosen, None, None) == chosen
    assert step_notes(chosen, chosen) == []


def test_models_do_not_diverge_where_validation_rows_are_unlike_training_rows(tmp_path):
    draw, lines = np.random.default_rng(5), ["site,day,x,y"]
    for site in range(4):
        for day in range(40):
            x = draw.normal() * (1 if day < 24 else 4)  # later rows spread far more
            lines.append(f"s{site},{day},{x:.4f},{x + draw.normal(0, 0.3):.4f}")
    path = tmp_path / "drift.csv"
    path.write_text("\n".join(lines) + "\n")
    data = {"source": "table", "path": str(path), "client": "site", "target": "y", "time_column": "day"}
    tuning = {"step_size": [1.5], "refit": True}  # below 2 / smoothness on training rows, above it on both
    told: list[str] = []
    spec = comparing(path, methods=("local", "fedavg"), data=data, tuning=tuning)
    done = execute(spec, tmp_path / "run", say=told.append)
    for entry in done.summary.methods:
        assert entry.diverged is None
        assert entry.score.mean < 16  # the variance of y; with the step as it was chosen, far above 1e9
    assert any("in the final fit" in text for text in told)


def test_what_costs_more_must_show_that_it_pays():
    draw = np.random.default_rng(1)
    plain, alike = 1 + 0.2 * draw.random((4, 10)), np.ones(10)
    ahead, error = difference(plain + 0.1, plain, alike)
    assert ahead == pytest.approx(0.1)
    assert error == pytest.approx(0, abs=1e-12)
    ahead, error = difference(plain + 0.3 * draw.normal(size=plain.shape), plain, alike)
    assert abs(ahead) < 2 * error
    assert difference(plain[:1, :1], plain[:1, :1] + 1, alike[:1])[1] == np.inf  # one client, one fold


def test_a_resolved_spec_repeats_its_run_without_choosing_again(compared, tmp_path, monkeypatch):
    done, folder, _ = compared
    monkeypatch.setattr("idiolect.experiments.execute.tune", lambda *_: pytest.fail("chosen again"))
    said = []
    again = execute(RunFolder(folder).read_spec(), tmp_path / "again", repeats=folder, say=said.append)
    assert again.summary.announced == done.summary.announced
    for ours, theirs in zip(again.summary.methods, done.summary.methods):
        assert dataclasses.replace(ours, seconds=0) == dataclasses.replace(theirs, seconds=0)
    assert [text for text in said if str(folder) in text]
