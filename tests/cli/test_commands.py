# SPDX-License-Identifier: Apache-2.0
"""Every command's output and exit code: results on standard output, remarks on standard error."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
import tomllib
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest

from idiolect import __version__
from idiolect.algorithms import ALGORITHMS
from idiolect.objectives import OBJECTIVES
from idiolect.record.manifest import write_manifest
from idiolect.record.sealed import KEY, seal_json

METHOD_KEYS = {
    "method",
    "mean",
    "worst_decile",
    "spread",
    "gain",
    "helped",
    "hurt",
    "rounds",
    "upload_bytes",
    "diverged",
}
COMPARE = ("--client", "site", "--target", "ill", "--rounds", "3", "--step-sizes", "0.1", "--batch-size", "4")


def test_version(idiolect):
    assert idiolect("--version") == (0, f"idiolect {__version__}\n", "")


def test_help_names_every_command(idiolect):
    answer = idiolect("--help")
    assert answer.code == 0
    for command in ("compare", "run", "sweep", "dial", "reproduce", "predict", "report", "list", "explain"):
        assert f"  {command} " in answer.out


FOLDERS = {"run": "runs/NAME", "compare": "runs/NAME", "sweep": "runs/NAME-sweep", "dial": "runs/NAME-dial"}
FOLDERS |= {"advise": "runs/NAME-advise, or", "reproduce": "runs/SLUG, or"}


@pytest.mark.parametrize("command", FOLDERS)
def test_help_says_which_folder_a_command_writes(idiolect, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "200")  # one line per option
    ending = "" if FOLDERS[command].endswith("or") else "."
    assert f"Folder to write. Default: {FOLDERS[command]}{ending}" in " ".join(idiolect(command, "--help").out.split())


def test_help_of_compare_names_every_kind_of_model(idiolect, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    shown = " ".join(idiolect("compare", "--help").out.split())
    assert "linear or mlp; with --data images or texts also a network (`idiolect list models`)." in shown


@pytest.mark.parametrize("arguments", [["--help"], ["compare", "--help"], ["report", "run"]], ids=" ".join)
def test_help_and_report_never_wait_for_jax(finished, arguments):
    program = (
        "import sys; from idiolect.cli import app; from idiolect.cli.failures import exit_code_of; "
        "code = exit_code_of(app); print([code, 'jax' in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[0, False]"


def test_list_shows_every_name_with_a_line_about_it(idiolect):
    listed = json.loads(idiolect("list", "--format", "json").out)
    assert set(listed) == {"algorithms", "objectives", "models", "data", "scores", "papers"}
    assert set(listed["algorithms"]) == set(ALGORITHMS)
    assert set(listed["objectives"]) == set(OBJECTIVES)
    assert {"table", "digits", "heart_disease"} <= set(listed["data"])
    assert all(summary for group in listed.values() for summary in group.values())
    text = idiolect("list").out
    assert all(f"  {name} " in text for group in listed.values() for name in group)


def test_list_of_one_kind(idiolect):
    answer = idiolect("list", "scores")
    assert answer.code == 0
    assert answer.out.splitlines()[0] == "scores"
    assert "  auc " in answer.out
    assert "fedavg" not in answer.out


def test_explain_gives_equations_settings_and_bytes(idiolect):
    answer = idiolect("explain", "fedavg")
    assert answer.code == 0
    # softmax regression, 64 inputs, 10 classes: (64 + 1) * 10 float32 parameters
    assert "down: 2600 bytes" in answer.out
    assert "weighting = samples" in answer.out  # what makes local SGD FedAvg
    assert "Reference: McMahan et al. 2017" in answer.out


@pytest.mark.parametrize("name", [*ALGORITHMS, *OBJECTIVES])
def test_explain_knows_every_name(idiolect, name):
    facts = json.loads(idiolect("explain", name, "--format", "json").out)
    assert facts["name"] == name
    assert facts["text"]


def test_explain_says_what_never_leaves(idiolect):
    facts = json.loads(idiolect("explain", "local", "--format", "json").out)
    assert facts["leaves_the_client"] == []
    assert facts["wire"]["upload_bytes"] == 0
    assert "Leaves a client: nothing" in idiolect("explain", "local").out


def test_run_prints_the_table_and_leaves_the_folder(idiolect, here):
    answer = idiolect("run", "spec.toml")
    assert answer.code == 0
    summary = json.loads((here / "runs/spec/summary.json").read_text())
    announced = {"local": "Training alone", "fedavg": "fedavg"}[summary["announced"]["method"]]
    assert f"{announced} does best on validation rows" in answer.out
    assert answer.out.rstrip().endswith("Run folder: runs/spec    Report: runs/spec/report.html")
    assert "4 clients hold 32 rows" in answer.err
    assert "Scored by accuracy" in answer.err
    assert (here / "runs/spec/done").is_file()


def test_json_is_pure_and_complete(idiolect):
    answer = idiolect("run", "spec.toml", "--out", "out", "--format", "json")
    result = json.loads(answer.out)
    assert [method["method"] for method in result["methods"]] == ["local", "fedavg"]
    assert set(result["methods"][0]) >= METHOD_KEYS
    assert result["folder"] == "out"
    assert result["report"] == "out/report.html"
    again = idiolect("report", "out", "--format", "json")
    assert json.loads(again.out) == result


def test_quiet_says_nothing_but_the_table(idiolect):
    answer = idiolect("run", "spec.toml", "--out", "out", "--quiet")
    assert answer.code == 0
    assert answer.err == ""
    assert "Run folder" not in answer.out


def test_quiet_names_a_folder_that_nobody_could_know(idiolect, here):
    (here / "runs" / "hospitals").mkdir(parents=True)
    quick = ("--methods", "local", "--rounds", "1", "--step-sizes", "0.1", "-q")
    answer = idiolect("compare", "hospitals.csv", "--client", "site", "--target", "ill", *quick)
    assert answer.code == 0, answer
    assert "Run folder: runs/hospitals-2 " in answer.out


def test_set_changes_one_setting(idiolect, here):
    answer = idiolect("run", "spec.toml", "--out", "out", "--set", "training.rounds = 1", "--set", "seed = 5")
    assert answer.code == 0
    written = tomllib.loads((here / "out/spec.toml").read_text())
    assert (written["training"]["rounds"], written["seeds"]) == (1, [5])
    assert max(pq.read_table(here / "out/history.parquet")["round"].to_pylist()) == 1


def test_set_aims_at_the_only_method(idiolect, here):
    spec = (here / "spec.toml").read_text()
    (here / "one.toml").write_text(spec.replace("[methods.local]\n[methods.fedavg]", "[algorithm]\nname = 'fedavg'"))
    assert idiolect("run", "one.toml", "--out", "out", "--set", "algorithm.step_size = 0.2").code == 0
    written = tomllib.loads((here / "out/spec.toml").read_text())
    assert written["methods"]["fedavg"]["step_size"] == 0.2


def test_a_step_beyond_its_bound_is_warned_about_with_the_theorem(idiolect):
    answer = idiolect("run", "spec.toml", "--out", "out", "--set", "methods.fedavg.step_size = 20")
    assert answer.code == 0
    warning = next(line for line in answer.err.splitlines() if line.startswith("Warning: fedavg"))
    assert "fedavg: step_size 20 is beyond 1/L" in warning
    assert "descent lemma" in warning
    assert 'write step_size = "theory"' in warning


def test_theory_chooses_a_step_and_says_why(idiolect, here):
    answer = idiolect("run", "spec.toml", "--out", "out", "--set", "methods.fedavg.step_size = 'theory'")
    assert answer.code == 0
    assert "fedavg: step_size 0." in answer.err
    summary = json.loads((here / "out/summary.json").read_text())
    assert any("Gower et al. 2019" in note for note in summary["notes"])
    assert all("fewer than 5 rows" in text for text in summary["warnings"])  # of preparation: the clients are small


def test_compare_tunes_on_validation_rows_and_answers(idiolect, here):
    steps = ("--step-sizes", "0.1,0.3", "--methods", "local,fedavg", "--set", "training.executor = 'batched'")
    answer = idiolect("compare", "hospitals.csv", *COMPARE, *steps)
    assert answer.code == 0
    summary = json.loads((here / "runs/hospitals/summary.json").read_text())
    for method in summary["methods"]:
        kept = json.loads((here / f"runs/hospitals/tuning/{method['method']}.json").read_text())
        best = min(kept["trials"], key=lambda trial: trial["validation"])
        assert sorted(trial["step_size"] for trial in kept["trials"]) == [0.1, 0.3]  # those asked for, no others
        own = method["method"] == "local"  # alone, each client has its own step
        assert own or method["settings"]["step_size"] == kept["settings"]["step_size"]
        alike = kept["common"] if own else kept["settings"]
        assert alike["step_size"] in (0.1, 0.3)
        chosen = next(trial for trial in kept["trials"] if trial["step_size"] == alike["step_size"])
        assert chosen["validation"] <= 1.001 * best["validation"]  # the best, or as good and cheaper
        assert method["tuned"] == kept["sentence"]
        assert method["selected_rounds"] == [kept["rounds"]]
    assert all("fewer than 5 rows" in text for text in summary["warnings"])  # of preparation: the clients are small


def test_compare_with_held_out_clients(idiolect, here):
    answer = idiolect("compare", "hospitals.csv", *COMPARE, "--methods", "fedavg", "--held-out", "1", "--out", "out")
    assert answer.code == 0
    clients = pq.read_table(here / "out/clients.parquet").to_pylist()
    assert [row["held_out"] for row in clients] == [False] * 3 + [True]
    assert json.loads((here / "out/summary.json").read_text())["methods"][0]["new_clients"]["mean"] is not None


def test_compare_on_a_number_with_a_network(idiolect, here):
    """One plain number from a multi-layer perceptron: it must learn, not only run."""
    more = ("--model", "mlp", "--methods", "fedavg", "--rounds", "30", "--set", "model.hidden = [8]")
    assert idiolect("compare", "doses.csv", *COMPARE, *more, "--step-sizes", "0.05", "--out", "out").code == 0
    history = pq.read_table(here / "out/history.parquet")["validation_shared_squared_error_mean"].to_pylist()
    assert min(history) < 0.5 * history[0]


def test_no_rounds_reports_the_start(idiolect, here):
    assert idiolect("run", "spec.toml", "--out", "out", "--set", "training.rounds = 0").code == 0
    assert pq.read_table(here / "out/history.parquet")["round"].to_pylist() == [0, 0]


def test_without_validation_rows_the_last_round_is_taken_and_said_so(idiolect, here):
    answer = idiolect("run", "spec.toml", "--out", "out", "--set", "data.validation = 0.0")
    assert answer.code == 0
    assert "No client has a validation row, so the last round counts as the selected one." in answer.err
    summary = json.loads((here / "out/summary.json").read_text())
    assert [method["selected_rounds"] for method in summary["methods"]] == [[3], [3]]


def test_a_score_that_no_client_has_leaves_no_answer_and_no_warning(idiolect, here):
    rows = "".join(f"s{i % 3},{i},{i % 3}\n" for i in range(24))  # every client knows one label only
    (here / "labels.csv").write_text("site,age,ill\n" + rows)
    more = ("--methods", "fedavg", "--set", "evaluation.scores = ['auc']", "--out", "out")
    answer = idiolect("compare", "labels.csv", *COMPARE, *more)
    assert answer.code == 0
    assert "Not found: Method 'fedavg' has no auc on test rows." in answer.out
    assert json.loads((here / "out/summary.json").read_text())["methods"][0]["score"]["mean"] is None


def test_odd_names_of_clients_and_methods_come_back_whole(idiolect, here):
    names = ["Zürich ☃", "a/b", 'it\'s "so"', "../up", "日本", "two\nlines"]
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["site", "age", "dose", "ill"])
    writer.writerows([names[i % 6], i % 7, i % 5, i // 6 % 2] for i in range(48))
    (here / "odd.csv").write_text(text.getvalue(), encoding="utf-8")
    spec = (here / "spec.toml").read_text().replace("hospitals.csv", "odd.csv")
    labels = '[methods."a/b"]\nname = "local"\n[methods.a_b]\nname = "fedavg"\n[methods.".."]\nname = "fedavg"\n'
    (here / "odd.toml").write_text(spec.replace("[methods.local]\n[methods.fedavg]\n", labels))
    answer = idiolect("run", "odd.toml", "--out", "out", "--format", "json")
    assert answer.code == 0
    assert [method["method"] for method in json.loads(answer.out)["methods"]] == ["a/b", "a_b", ".."]
    assert set(pq.read_table(here / "out/clients.parquet")["client"].to_pylist()) == set(names)
    assert sorted(json.loads((here / "out/models/clients.json").read_text())) == sorted(names)
    folders = [path.name for path in (here / "out/models").iterdir() if path.is_dir()]
    assert len(folders) == 3
    assert {path.name for path in here.iterdir()} >= {"out"}
    assert not list(here.glob("*.safetensors"))


def test_report_prints_what_run_printed(idiolect, finished):
    answer = idiolect("report", "run", "--details")
    assert answer.code == 0
    assert answer.out.rstrip().endswith("Run folder: run    Report: run/report.html")
    assert "gradients" in answer.out
    assert "gradients" not in idiolect("report", "run").out


def test_predict_answers_rows_with_each_clients_own_model(idiolect, here, finished):
    (here / "new.csv").write_text("site,age,dose\ns1,1.0,1.0\nelsewhere,1.0,1.0\n")
    answer = idiolect("predict", "run", "new.csv", "--method", "fedavg", "--format", "json")
    assert answer.code == 0
    rows = json.loads(answer.out)
    assert [row["model"] for row in rows] == ["personal", "shared"]
    assert all(row["probability of 0"] + row["probability of 1"] == pytest.approx(1) for row in rows)
    assert all(row["prediction"] == ("1" if row["probability of 1"] > 0.5 else "0") for row in rows)
    assert "1 row by the personal model of 's1', 1 row by the shared model" in answer.err
    assert "Warning: The shared model answers 1 row of 1 client that did not train ('elsewhere')." in answer.err
    text = idiolect("predict", "run", "new.csv", "--method", "fedavg", "--quiet")
    assert text.err == ""
    assert [row["prediction"] for row in csv.DictReader(io.StringIO(text.out))] == [row["prediction"] for row in rows]


def test_predict_without_a_method_says_which_one_answers(idiolect, here, finished):
    answer = idiolect("predict", "run", "hospitals.csv", "--out", "answers.parquet")
    assert answer.code == 0
    first, last = answer.err.strip().splitlines()
    assert first.startswith(
        ("Answered by local, the method that the run", "Answered by fedavg, the method that the run")
    )
    assert "32 rows by the personal models of 4 clients" in first
    assert last == "32 rows answered in answers.parquet."
    assert set(pq.read_table(here / "answers.parquet")["model"].to_pylist()) == {"personal"}


def test_predict_writes_over_nothing_and_reads_no_broken_model(idiolect, here, finished):
    new = (here / "new.csv").write_text("site,age,dose\ns1,1,1\n")
    answer = idiolect("predict", "run", "new.csv", "--method", "fedavg", "--out", "new.csv")
    assert answer.code == 2
    assert "--out must name a new file, and new.csv is there already" in answer.error
    assert len((here / "new.csv").read_text()) == new
    shutil.copytree(here / "run", here / "broken")
    next((here / "broken/models").glob("fedavg-*/shared.safetensors")).write_text("garbage")
    answer = idiolect("predict", "broken", "new.csv", "--method", "fedavg")
    assert answer.code == 2
    assert "shared.safetensors is damaged" in answer.error
    summary = json.loads((here / "broken/summary.json").read_text())
    line = next(line for line in summary["methods"] if line["method"] == "fedavg")
    line["diverged"] = {"round": 1, "client": "s1", "reason": ""}
    (here / "broken/summary.json").write_text(json.dumps(summary))
    write_manifest(here / "broken")
    answer = idiolect("predict", "broken", "new.csv", "--method", "fedavg")
    assert answer.code == 2
    assert "'fedavg' has no answers: Training diverged in round 1 on client 's1'; train it again" in answer.error


PREDICTIONS = [
    (["run", "hospitals.csv", "--method", "fedav"], "got 'fedav'. Did you mean 'fedavg'?"),
    (["run", "hospitals.csv", "--method", "fedavg", "--seed", "7"], "--seed must be one of the run's, 0, got 7."),
    (["run", "hospitals.csv", "--method", "fedavg", "--out", "x.txt"], "--out must end in .csv or .parquet"),
    (["run", "stranger.csv", "--method", "local"], "no shared model of 'local' that could answer 1 row of 1 client"),
    (["run", "stranger.csv", "--method", "fedavg", "--strict"], "--strict refuses doubtful rows: The shared model"),
    (["run", "stranger.csv", "--method", "fedavg", "--model", "personal"], "needs rows of clients that trained, got 1"),
    (["run", "hospitals.csv", "--method", "local", "--model", "shared"], "no shared model of 'local'"),
    (["run", "hospitals.csv", "--model", "own"], "--model"),
    (["run", "answered.csv", "--method", "fedavg"], "The table already has a column 'prediction'; rename it"),
]


@pytest.mark.parametrize(("arguments", "sentence"), PREDICTIONS, ids=[sentence[:30] for _, sentence in PREDICTIONS])
def test_predict_refuses(idiolect, here, finished, arguments, sentence):
    (here / "stranger.csv").write_text("site,age,dose\nelsewhere,1,1\n")
    (here / "answered.csv").write_text("site,age,dose,prediction\ns1,1,1,0\n")
    answer = idiolect("predict", *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert sentence in answer.error


def test_reproduce_prints_expected_and_measured(idiolect, here):
    answer = idiolect("reproduce", "plsgd-trajectory", "--out", "out", "--format", "json")
    assert answer.code == 0
    result = json.loads(answer.out)
    assert result["folder"] == "out"
    assert answer.err == ""
    assert (here / "out/done").is_file()
    assert "choose another --out" in idiolect("reproduce", "plsgd-trajectory", "--out", "out").error


@pytest.mark.parametrize(("changed", "code"), [((), 0), (("a number",), 1)])
def test_a_reproduction_that_changed_exits_1(idiolect, monkeypatch, changed, code):
    outcome = SimpleNamespace(changed=changed, to_text=lambda: "expected 1, measured 2", as_dict=lambda: {"rows": []})
    monkeypatch.setattr("papers.runner.reproduce", lambda *arguments, **options: outcome)
    answer = idiolect("reproduce", "anything", "--out", "out")
    assert (answer.code, answer.out) == (code, "expected 1, measured 2\nNumbers and figure: out\n")
    assert json.loads(idiolect("reproduce", "anything", "--format", "json").out)["folder"] == "runs/anything"


def test_reproduce_all_takes_no_option_of_one(idiolect):
    for option in (("--set", "rounds = 3"), ("--cells", "kept")):
        answer = idiolect("reproduce", "all", *option)
        assert answer.code == 2
        assert "one reproduction" in answer.error


def test_a_run_folder_runs_again_with_what_was_chosen_unless_the_request_changes(idiolect, here):
    asked = ("doses.csv", "--client", "site", "--target", "ill", "--methods", "local", "--rounds", "3")
    assert idiolect("compare", *asked, "--out", "first").code == 0
    kept = json.loads((here / "first/tuning/local.json").read_text())
    del kept[KEY]
    (here / "first/tuning/local.json").write_text(seal_json({**kept, "sentence": "as it was"}))
    again = idiolect("run", "first", "--out", "second", "--set", "name = 'again'")
    assert again.code == 0
    assert "local: as it was." in again.err
    other = idiolect("run", "first", "--out", "third", "--set", "training.rounds = 2")
    assert other.code == 0
    assert "as it was" not in other.err
    assert "2 rounds" in other.err
