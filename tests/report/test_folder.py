# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import math
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from idiolect.record.errors import RequestError
from idiolect.report import FolderError, client_table, comparison_table, read
from idiolect.report.folder import numbers
from idiolect.report.page import render


def test_a_report_is_built_without_jax_and_without_pyplot(folder):
    code = (
        "import sys; import idiolect.report; "
        f"idiolect.report.build_report({str(folder)!r}); "
        "print([name for name in ('jax', 'matplotlib.pyplot') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_reads_everything(folder):
    run = read(folder)
    assert run.history.num_rows == 4 * 2 * 9  # methods, seeds, recorded rounds
    assert run.clients.num_rows == 4 * 2 * 20
    assert run.spec["data"]["client"] == "hospital"
    assert run.machine["cpu_count"] == 2
    assert (run.score, run.higher_is_better, run.finished) == ("accuracy", True, True)
    assert run.alone.method == "local"
    assert len(run.missing) == 1  # the diverged method, and nothing else
    assert "fedavg-wild" in run.missing[0]
    assert "round 7" in run.missing[0]


def _cut(name):
    def spoil(folder):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[: len(whole) // 2])

    return spoil


def _remove(*names):
    return lambda folder: [(folder / name).unlink() for name in names]


def _summary(old, new):
    def spoil(folder):
        text = (folder / "summary.json").read_text()
        assert old in text
        (folder / "summary.json").write_text(text.replace(old, new))

    return spoil


def _drop_column(folder):
    table = pq.read_table(folder / "clients.parquet")
    pq.write_table(table.drop_columns(["client"]), folder / "clients.parquet")


SPOILT = {
    "cut history": (_cut("history.parquet"), "cut short"),
    "cut clients": (_cut("clients.parquet"), "cut short"),
    "cut summary": (_cut("summary.json"), "not valid JSON"),
    "no column": (_drop_column, "lacks client"),
    "bad toml": (lambda folder: (folder / "spec.toml").write_text("a = ["), "not valid TOML"),
    "stranger": (_remove("summary.json", "spec.toml"), "not a run folder"),
    "never got there": (_remove("summary.json", "done"), "--resume"),
    "older": (_summary('"schema": 3', '"schema": 2'), "schema 2"),
    "newer": (_summary('"schema": 3', '"schema": 4'), "schema 4"),
    "unknown key": (_summary('"refit": false', '"refit": false, "x": 1'), "x is unknown"),
    "missing key": (_summary('"refit": false, ', ""), "refit is missing"),
    "another type": (_summary('"refit": false', '"refit": "no"'), "refit must be true or false, got 'no'"),
    "no scores": (_summary('"scores": ["accuracy"]', '"scores": []'), "'scores'"),
    "list": (lambda folder: (folder / "machine.json").write_text("[]"), "JSON object"),
}


@pytest.mark.parametrize("case", SPOILT)
def test_a_spoilt_folder_earns_one_sentence(folder, case):
    spoil, expected = SPOILT[case]
    spoil(folder)
    with pytest.raises(RequestError, match=expected) as caught:
        read(folder)
    sentence = str(caught.value)
    assert folder.name in sentence  # which folder
    assert "\n" not in sentence
    assert sentence.endswith(".")


def test_no_folder_and_a_file(tmp_path):
    with pytest.raises(FolderError, match="There is no folder"):
        read(tmp_path / "absent")
    (tmp_path / "file").touch()
    with pytest.raises(FolderError, match="is a file"):
        read(tmp_path / "file")


def test_an_unfinished_run_is_read_and_says_so(make_run):
    run = read(make_run(finished=False))
    assert not run.finished
    assert "not finished" in run.missing[0]


@pytest.mark.parametrize("name", ["machine.json", "spec.toml", "history.parquet", "clients.parquet"])
def test_an_absent_file_is_listed_and_the_rest_reported(folder, name):
    (folder / name).unlink()
    assert any(sentence.startswith(name) for sentence in read(folder).missing)
    assert f"Not found: {name}" in comparison_table(folder).to_text()
    assert f"{name} was not found" in render(read(folder), [], [])


def test_a_run_without_training_alone_says_what_to_add(folder_without_alone):
    assert any("Add 'local'" in sentence for sentence in read(folder_without_alone).missing)


def test_nulls_and_absent_columns_are_not_a_number():
    table = pa.table({"some": pa.array([1, None], pa.int64()), "none": pa.nulls(2), "flag": [True, False]})
    assert numbers(table, "some")[0] == 1
    assert math.isnan(numbers(table, "some")[1])
    assert np.isnan(numbers(table, "none")).all()
    assert np.isnan(numbers(table, "never heard of")).all()
    assert numbers(table, "flag").tolist() == [1, 0]


def _two_seeds(folder, seeds):
    """Three clients: clearly helped, noise, no test rows."""
    gains = {"a": (0.1, 0.3), "b": (0.1, -0.3), "c": (None, None)}
    lines = []
    for seed in range(seeds):
        for client, gain in gains.items():
            known = gain[seed] is not None
            low, high = (gain[seed] - 0.15, gain[seed] + 0.15) if known else (None, None)
            verdict = {"a": "helped", "b": ("unclear", "hurt")[seed], "c": "unclear"}[client]
            line = {"method": "fedavg", "seed": seed, "client": client, "train_rows": 10, "test_rows": 4}
            line |= {"local_score": 0.5 if known else None, "score": 0.5 + gain[seed] if known else None}
            line |= {
                "gain": gain[seed],
                "gain_low": low,
                "gain_high": high,
                "verdict": verdict,
                "held_out": client == "b",
            }
            lines.append(line)
    pq.write_table(pa.Table.from_pylist(lines), folder / "clients.parquet")
    return client_table(read(folder), "fedavg")


def test_seeds_are_averaged_and_the_verdict_is_the_recorded_one(folder):
    table = _two_seeds(folder, seeds=2)
    # a: gains 0.1 and 0.3, bounds +- 0.15: mean 0.2 in [0.05, 0.35]; the run says helped for both seeds
    # b: gains 0.1 and -0.3; the two seeds do not agree, as an older folder may have it
    assert table.client.tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(table.gain, [0.2, -0.1, np.nan])
    np.testing.assert_allclose(table.gain_low, [0.05, -0.25, np.nan])
    np.testing.assert_allclose(table.personal, [0.7, 0.4, np.nan])
    assert table.verdict.tolist() == ["helped", "unclear", ""]
    assert table.held_out.tolist() == [False, True, False]
    assert (table.compared, table.counted("helped")) == (2, 1)
    assert table.order().tolist() == [1, 0, 2]  # the most hurt first, the unknown last
    assert np.isnan(table.shared).all()  # no such column


def test_one_seed_keeps_its_recorded_verdict(folder):
    assert _two_seeds(folder, seeds=1).verdict.tolist() == ["helped", "unclear", ""]


def test_expected_gains_are_read_and_stand_in_for_by_the_gains(folder):
    plain = _two_seeds(folder, seeds=1)
    np.testing.assert_array_equal(plain.expected_low, plain.gain_low)  # an older folder
    rows = pq.read_table(folder / "clients.parquet").to_pylist()
    shrunk = {"gain_expected": 0.05, "gain_expected_low": -0.1, "gain_expected_high": 0.2}
    pq.write_table(pa.Table.from_pylist([row | shrunk for row in rows]), folder / "clients.parquet")
    table = client_table(read(folder), "fedavg")
    assert table.expected.tolist() == [0.05] * 3
    assert np.isnan(table.one).all()


def test_clients_without_a_score_are_named(folder):
    summary = json.loads((folder / "summary.json").read_text())
    found = {"score": "auc", "clients": ["a"], "count": 1, "reason": "1 has no test row"}
    summary["unscored"] = found | {"sentence": "1 of 3 clients has no auc (a)."}
    (folder / "summary.json").write_text(json.dumps(summary))
    run = read(folder)
    assert not [text for text in run.missing if "auc" in text]
    assert (
        " ".join(comparison_table(folder).to_text().split()).count("1 of 3 clients has no auc (a).") == 1
    )  # the answer says it, once


def test_training_alone_is_the_same_as_itself(folder):
    table = client_table(read(folder), "local")
    assert set(table.verdict) == {"same", ""}


def test_training_rows_are_those_that_the_models_were_trained_on(folder):
    plain = client_table(read(folder), "fedavg").train_rows
    summary = json.loads((folder / "summary.json").read_text())
    summary["refit"] = True
    for entry in summary["methods"]:
        entry["tuned"] = "step size 0.1"
    (folder / "summary.json").write_text(json.dumps(summary))
    run = read(folder)
    known = dict(zip(run.clients["client"].to_pylist(), numbers(run.clients, "validation_rows")))
    table = client_table(run, "fedavg")
    assert (table.train_rows - plain).tolist() == [known[name] for name in table.client]
