# SPDX-License-Identifier: Apache-2.0
"""The history of a run in TensorBoard's and MLflow's own files, read back; both packages are extras."""

from __future__ import annotations

import math
import struct
from collections import defaultdict

import pyarrow.parquet as pq
import pytest

from idiolect.record.errors import RequestError
from idiolect.report import loggers, read
from idiolect.report.loggers import log_run, parse_log


def history(folder, method, seed, column):
    """{round: value} of what was recorded."""
    rows = pq.read_table(folder / "history.parquet").to_pylist()
    own = [row for row in rows if (row["method"], row["seed"]) == (method, seed)]
    return {row["round"]: row[column] for row in own if math.isfinite(row[column])}


def events(path):
    """{tag: {step: value}} of TensorBoard's event files: records of a length, a checksum, a message, a checksum."""
    from tensorboardX.proto.event_pb2 import Event

    found = defaultdict(dict)
    for file in path.glob("events.out.tfevents.*"):
        content, at = file.read_bytes(), 0
        while at < len(content):
            (length,) = struct.unpack_from("<Q", content, at)
            event = Event.FromString(content[at + 12 : at + 12 + length])
            for value in event.summary.value:
                found[value.tag][event.step] = value.simple_value
            at += 16 + length
    return found


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_gets_every_recorded_number(folder, tmp_path):
    pytest.importorskip("tensorboardX", reason="the extra tensorboard is not installed")
    run = read(folder)
    seeds = sorted({row["seed"] for row in run.history.to_pylist()})
    assert log_run(run, "tensorboard", str(tmp_path / "board")) == len(run.methods) * len(seeds)
    column = "validation_personal_accuracy_mean"
    for seed in seeds:
        found = events(tmp_path / "board" / run.name / f"fedavg-seed{seed}")
        assert found[column] == pytest.approx(history(folder, "fedavg", seed, column), rel=1e-6)
        assert found["end/mean"][max(found[column])] == pytest.approx(run.methods[1].score.mean, rel=1e-6)
        assert "settings/text_summary" in found


@pytest.mark.filterwarnings("ignore")  # MLflow's own, of its dependencies
def test_mlflow_gets_every_recorded_number_and_the_settings(folder, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    target, run = (tmp_path / "mlflow").as_uri(), read(folder)
    log_run(run, "mlflow", target)
    log_run(run, "mlflow", target)  # a second time: the same experiment, further runs
    client = mlflow.MlflowClient(tracking_uri=target)
    experiment = client.get_experiment_by_name(run.name)
    made = client.search_runs([experiment.experiment_id])
    seeds = sorted({row["seed"] for row in run.history.to_pylist()})
    assert len(made) == 2 * len(run.methods) * len(seeds)
    column = "validation_personal_accuracy_mean"
    one = next(entry for entry in made if entry.data.params["method"] == "fedavg" and entry.data.params["seed"] == "0")
    logged = {point.step: point.value for point in client.get_metric_history(one.info.run_id, column)}
    assert logged == pytest.approx(history(folder, "fedavg", 0, column))
    assert one.data.metrics["end/mean"] == pytest.approx(run.methods[1].score.mean)
    assert one.info.status == "FINISHED"


@pytest.mark.parametrize("kind", loggers.KINDS)
def test_what_is_not_installed_is_said_with_the_way_out(folder, monkeypatch, kind):
    monkeypatch.setitem(loggers.KINDS, kind, "no_such_package")
    with pytest.raises(RequestError, match=rf"needs a package .* `pip install 'idiolect\[{kind}\]'` brings it"):
        log_run(read(folder), kind, "anywhere")


@pytest.mark.parametrize("text", ["tensorboard", "tensorboard=", "wandb=x", ""])
def test_other_loggers_are_refused(text):
    with pytest.raises(RequestError, match="--log must be tensorboard=DIR or mlflow=URI"):
        parse_log(text)
    assert parse_log("mlflow=http://host:5000/?a=b") == ("mlflow", "http://host:5000/?a=b")


def test_names_cannot_leave_the_folder():
    assert loggers._safe("../../x") == "_.._x"
    assert loggers._safe("..") == "_"
    assert "/" not in loggers._safe("a/b\\c")
