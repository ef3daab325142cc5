# SPDX-License-Identifier: Apache-2.0
"""Answers from Python: the numbers of the commands, in frames and plain values, kept and loaded again."""

from __future__ import annotations

import json
import pickle
import sys

import pytest

import idiolect as il
from idiolect.cli import app
from idiolect.cli.failures import exit_code_of

OPTIONS = "--methods local,fedavg --rounds 4 --step-sizes 0.3,1.0 --no-refit --seed 2 --quiet --format json"


def test_compare_gives_the_numbers_of_the_command(small, answer, monkeypatch, capsys, tmp_path):
    words = f"compare {small.path} --client site --target outcome --out {tmp_path / 'run'} {OPTIONS}"
    monkeypatch.setattr(sys, "argv", ["idiolect", *words.split()])
    monkeypatch.setenv("IDIOLECT_CACHE", "off")
    assert exit_code_of(app) == 0
    printed, own = json.loads(capsys.readouterr().out), answer._table.as_dict()
    assert own == {key: printed[key] for key in own}
    assert (answer.folder / "spec.toml").read_text() == (tmp_path / "run" / "spec.toml").read_text()
    same = il.load(tmp_path / "run")
    assert same.clients.equals(answer.clients)
    assert same.best == answer.best


def test_rows_in_memory_give_the_numbers_of_the_file(small, answer):
    table = il.read_table(small.columns, client="site", target="outcome", name="patients")
    again = il.compare(table, "local,fedavg", rounds=4, step_sizes=[0.3, 1.0], refit=False, seed=2)
    assert again.clients.equals(answer.clients)
    assert "path" not in again._read.spec["data"]


def test_an_answer_shows_itself(answer):
    assert "fedavg" in str(answer)
    assert repr(answer) == str(answer)
    assert answer.sentence.partition(",")[0] in answer._repr_html_()
    assert answer.best in answer.methods == ("local", "fedavg")
    frame = answer.frame()
    assert list(frame["method"]) == ["local", "fedavg"]
    assert "gain" in frame


def test_a_page_of_a_notebook_holds_no_foreign_markup(small):
    from idiolect.report.notebook import text_html

    assert "<b>" not in text_html("<b>")


def test_one_client_is_told_by_name(answer):
    told = answer.for_client("s1", method="fedavg")
    row = answer.clients.query("client == 's1' and method == 'fedavg'").iloc[0]
    assert (told.client, told.score, told.gain, told.verdict) == ("s1", row["score"], row["gain"], row["verdict"])
    with pytest.raises(il.RequestError, match=r"no client 's11'.*'s1'"):
        answer.for_client("s11")
    with pytest.raises(il.RequestError, match="method must be one of local, fedavg, got 'x'"):
        answer.for_client("s1", method="x")


def test_a_run_has_frames_and_plain_values(run):
    assert run.method == "ditto"
    assert list(run.history["round"])[-1] == run.ledger["rounds"] == 10
    assert set(run.clients["client"]) == {"s0", "s1", "s2", "s3"}
    assert all(type(value) is int for value in run.ledger.values())
    assert run.settings["penalty"] == 0.2
    assert 0 <= run.score <= 1
    assert run.for_client("s2").score == run.clients.query("client == 's2'")["score"].item()


def test_new_rows_are_answered_by_their_client(run):
    rows = {"age": [0.1, -2.0], "dose": [1.0, 2.0]}
    one, mixed = run.predict(rows, client="s3"), run.predict(rows, client=["s0", "s3"])
    assert list(one["model"]) == ["personal", "personal"]
    assert one["probability of yes"][1] == pytest.approx(mixed["probability of yes"][1])
    assert one["probability of yes"][0] != mixed["probability of yes"][0]
    with pytest.raises(il.RequestError, match="client column 'site'"):
        run.predict(rows | {"site": ["s0", "s1"]}, client="s3")
    with pytest.raises(il.RequestError, match="2 rows, got 3"):
        run.predict(rows, client=["s0", "s1", "s2"])
    with pytest.raises(il.RequestError, match="strict="):
        run.predict(rows, client="new", strict=True)


def test_a_run_is_saved_loaded_and_pickled(run, tmp_path):
    saved = run.save(tmp_path / "deep" / "mine")
    assert (saved / "report.html").is_file()
    for again in (il.load(saved), pickle.loads(pickle.dumps(run))):
        assert isinstance(again, il.TrainedRun)
        assert again.clients.equals(run.clients)
    with pytest.raises(il.RequestError, match="exists"):
        run.save(saved)
    with pytest.raises(il.RequestError, match="no folder"):
        il.load(tmp_path / "none")
    (saved / "done").unlink()
    with pytest.raises(il.RequestError, match="no finished run"):
        il.load(saved)


def test_a_temporary_folder_goes_away_with_its_run(run):
    copy = pickle.loads(pickle.dumps(run))
    folder = copy.folder
    assert (folder / "done").is_file()
    del copy
    assert not folder.exists()


def test_frames_without_pandas_are_refused_with_the_way_out(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(il.RequestError, match=r"idiolect\[pandas\]"):
        _ = run.history


def test_registered_names_are_trained_with_their_presets(table):
    trained = il.train("fedprox", table, rounds=1)
    assert (trained.settings["weighting"], trained.settings["penalty"]) == ("samples", 0.1)


def test_settings_of_the_objective_are_told_whether_given_or_not(table):
    trained = il.train("flix_sgd", table, rounds=1, step_size=0.1)
    assert trained.settings["personalization"] == 0.5  # the default
    assert trained.settings["step_size"] == 0.1


def test_the_ledger_adds_to_the_history_what_making_the_models_takes(table):
    tuned = il.train("fedavg_fine_tuning", table, rounds=2, step_size=0.1, fine_tuning_steps=3, batch_size=2)
    gradients = ("gradients_shared", "gradients_personal", "gradients_both")
    in_rounds = sum(int(tuned.history[name].iloc[-1]) for name in gradients)
    clients = len(set(tuned.clients["client"]))
    assert sum(tuned.ledger[name] for name in gradients) - in_rounds == clients * 3 * 2  # steps of 2 rows each
    assert tuned.history["delivery_bytes"].iloc[-1] == 0 < tuned.ledger["delivery_bytes"]


def test_a_method_that_needs_a_ridge_gets_one_and_a_note(table):
    trained = il.train("scafflix", table, personalization=0.3, rounds=2)
    assert any("ridge" in note and "l2=" in note for note in trained.notes)
    assert trained.settings["personalization"] == 0.3
    given = il.train("scafflix", table, personalization=0.3, rounds=2, l2=0.05)
    assert not any("ridge l2" in note for note in given.notes)


def test_a_sweep_trains_every_combination_and_seed(table):
    swept = il.sweep("ditto", table, penalty=[0.01, 1.0], seeds=range(2), rounds=2)
    assert swept.methods == ("ditto[penalty=0.01]", "ditto[penalty=1.0]")
    assert set(swept.clients["seed"]) == {0, 1}


WRONG = {
    "pull": (lambda table: il.sweep("ditto", table, pull=[0.1, 1.0]), "ditto has no setting 'pull'"),
    "name": (lambda table: il.train("dito", table), "Did you mean 'ditto'"),
    "option": (lambda table: il.compare(table, round=3), "compare has no setting 'round'. Did you mean 'rounds'"),
    "methods": (lambda table: il.compare(table, ["local", "local"]), "methods= must differ"),
    "nothing to vary": (lambda table: il.sweep("ditto", table, penalty=0.1), "needs something to vary"),
    "object": (lambda table: il.sweep([object()], table, seeds=[0]), "simulate_many"),
    "value": (lambda table: il.train("ditto", table, penalty=-1.0), "penalty must be at least 0"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_requests_are_one_sentence_about_arguments(table, case):
    ask, sentence = WRONG[case]
    with pytest.raises(il.RequestError, match=sentence) as refused:
        ask(table)
    assert "--" not in str(refused.value)


def test_no_option_hides_a_setting_of_a_method():
    from idiolect.api.running import Options
    from idiolect.experiments.spec import setting_names

    assert not set(Options.__annotations__) & {name for method in il.ALGORITHMS for name in setting_names(method)}


def test_repeated_splits_answer_together(table, tmp_path):
    answer = il.compare(table, "local,fedavg", rounds=2, step_sizes=[0.5], refit=False, splits=2)
    assert answer.best in ("local", "fedavg")
    assert list(answer.frame()["method"]) == ["local", "fedavg"]
    assert answer.for_client("s0", "fedavg")["client"] == "s0"
    assert type(il.load(answer.save(tmp_path / "splits"))) is il.SplitsAnswer
    assert answer.sentence.split(";")[0][:20] in " ".join(str(answer).split())


def test_advice_and_explanations(table, tmp_path):
    advice = il.advise(table)
    assert list(advice.frame()["client"]) == ["s0", "s1", "s2", "s3"]
    assert advice.for_client("s2")["client"] == "s2"
    assert "s3" in str(advice)
    assert type(il.load(advice.save(tmp_path / "advice"))) is il.Advice
    told = il.explain("flow")
    assert told["name"] == "flow"
    assert str(told).startswith("flow\n")
    assert il.explain("ditto", penalty=0.5)["kind"] == "algorithm"


def test_options_become_the_spec_of_the_command(table):
    from idiolect.api.running import _spec

    options = {"held_out": 1.0, "seeds": range(3), "l2": 0.1, "spec": {"training.precision": "float64"}}
    spec = _spec(table, "ditto", {"ditto": {"penalty": 0.5}}, options, tune=False)
    assert (spec.data.held_out, spec.seeds, spec.model.l2) == (1, (0, 1, 2), 0.1)
    assert (spec.training.precision, spec.training.rounds) == ("float64", 100)
    assert spec.methods[0].settings["penalty"] == 0.5
    assert _spec(table, "ditto", {}, {"held_out": 0.25}).data.held_out == 0.25
