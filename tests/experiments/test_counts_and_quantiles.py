# SPDX-License-Identifier: Apache-2.0
"""Counts as a task and quantiles as a loss: gradients, scores in the table's units, predictions, refusals."""

from __future__ import annotations

import json

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from idiolect import ClientLoss, Federation, Linear
from idiolect.core.checks import RequestError
from idiolect.core.data import Batch
from idiolect.data.preprocessing import Preprocessing
from idiolect.experiments.build import client_loss_for
from idiolect.experiments.execute import execute
from idiolect.experiments.predict import predict
from idiolect.experiments.spec import ModelSpec, from_table
from idiolect.theory import client_constants


@pytest.mark.parametrize("criterion", ["poisson", "pinball"])
def test_gradients_agree_with_finite_differences(criterion):
    draw = np.random.default_rng(0)
    with jax.enable_x64(True):
        loss = ClientLoss(model=Linear(3, 0), criterion=criterion, quantile=0.9 if criterion == "pinball" else None)
        inputs, targets = draw.normal(size=(12, 3)), draw.poisson(2.0, 12).astype(float)
        batch = Batch(inputs, targets, np.ones(12, bool))
        params = {"weights": draw.normal(size=3), "bias": np.asarray(0.3)}
        key = jax.random.key(0)
        gradient = loss.gradient(key, params, batch)
        for place in range(3):
            step = np.zeros(3)
            step[place] = 1e-6
            ends = [
                loss.value(key, params | {"weights": params["weights"] + sign * step}, batch)[0] for sign in (1, -1)
            ]
            assert float(gradient["weights"][place]) == pytest.approx(float(ends[0] - ends[1]) / 2e-6, abs=1e-6)


def test_neither_loss_has_known_constants():
    rows = Federation.from_arrays(np.ones((8, 2)), np.arange(8) % 3, np.arange(8) % 2, task="counts").train
    for criterion in ("poisson", "pinball"):
        assert client_constants(ClientLoss(model=Linear(2, 0), criterion=criterion), rows) is None


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Visits of four clinics, about 40 a day where x is 0: their logarithm is linear in x."""
    draw = np.random.default_rng(4)
    x, clinic = draw.normal(size=240), np.arange(240) % 4
    visits = draw.poisson(np.exp(3.7 + 0.4 * x + 0.1 * clinic))
    path = tmp_path_factory.mktemp("counts") / "visits.parquet"
    pq.write_table(pa.table({"clinic": [f"c{m}" for m in clinic], "x": x, "visits": visits}), path)
    return path, visits


def finished(path, folder, **model):
    spec = from_table(
        {
            "name": "visits",
            "data": {"source": "table", "path": str(path), "client": "clinic", "target": "visits"}
            | {"task": "regression" if model else "counts"},
            "model": model,
            "methods": {name: {"step_size": 0.3, "local_steps": 5} for name in ("local", "fedavg")},
            "training": {"rounds": 60, "record_every": 20},
        }
    )
    return execute(spec, folder)


def test_counts_from_table_to_prediction(table, tmp_path):
    path, visits = table
    done = finished(path, tmp_path / "run")
    assert done.summary.scores == ("poisson_deviance",)
    local, fedavg = done.summary.methods
    # a true Poisson model has a deviance of about 1 per row, in the counts' own units; the mean alone far more
    assert 0.5 < local.score.mean < 2
    constant = 2 * np.mean(visits * np.log(np.maximum(visits, 1) / visits.mean()))
    assert fedavg.score.mean < constant / 2
    assert fedavg.gain_over_one is None
    answered = predict(tmp_path / "run", str(path), method="local")
    rates = answered["prediction"].to_numpy()
    assert (rates > 0).all()
    assert rates.mean() == pytest.approx(visits.mean(), rel=0.05)
    assert np.corrcoef(rates, visits)[0, 1] > 0.8
    recipe = (tmp_path / "run/models/preprocessing.json").read_text()
    assert Preprocessing.from_json(recipe).task.kind == "counts"


def test_a_quantile_lies_above_its_fraction_of_the_rows(table, tmp_path):
    path, visits = table
    done = finished(path, tmp_path / "run", loss="pinball", quantile=0.9)
    assert done.summary.scores == ("pinball_90",)
    answers = predict(tmp_path / "run", str(path), method="fedavg")["prediction"].to_numpy()
    assert np.mean(visits <= answers) == pytest.approx(0.9, abs=0.07)
    written = json.loads((tmp_path / "run/summary.json").read_text())
    assert written["score_reason"].startswith("Scored by pinball_90")


def test_targets_that_are_no_counts_are_refused():
    clients = np.arange(6) % 2
    for targets in ([0, 1, 2, 3, 4, -1], [0, 1, 2, 3, 4, 0.5]):
        with pytest.raises(RequestError, match="whole numbers"):
            Federation.from_arrays(np.ones((6, 1)), np.asarray(targets), clients, task="counts")
        rows = pa.table({"who": [str(m) for m in clients], "x": np.arange(6.0), "y": targets})
        with pytest.raises(RequestError, match="whole numbers"):
            Federation.from_table(rows, client="who", target="y", task="counts")


def test_many_whole_numbers_are_a_regression_and_the_note_names_counts():
    targets = np.arange(60)
    federation = Federation.from_arrays(np.ones((60, 1)), targets, targets % 3)
    assert federation.task.kind == "regression"
    assert any("counts" in note for note in federation.notes)


@pytest.mark.parametrize(
    ("model", "kind", "rule"),
    [
        ({"loss": "pinball"}, "regression", "go together"),
        ({"quantile": 0.5}, "regression", "go together"),
        ({"loss": "pinball", "quantile": 0.975}, "regression", "whole percent"),
        ({"loss": "pinball", "quantile": 0.9}, "counts", "task regression"),
    ],
)
def test_quantiles_that_cannot_be_are_refused(model, kind, rule):
    task = Federation.from_arrays(np.ones((6, 1)), np.arange(6), np.arange(6) % 2, task=kind).task
    with pytest.raises(RequestError, match=rule):
        client_loss_for(ModelSpec(**model), task, (1,), plain_number=True)
