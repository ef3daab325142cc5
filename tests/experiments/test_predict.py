# SPDX-License-Identifier: Apache-2.0
"""A run's own test rows through `predict` give the recorded scores: every algorithm, classes and numbers, both models.

Each method is trained once, when a test first asks, and shared by the tests of both of its models.
"""

from __future__ import annotations

import jax
import numpy as np
import pyarrow.parquet as pq
import pytest

from idiolect.algorithms import ALGORITHMS
from idiolect.core.checks import RequestError
from idiolect.experiments.execute import execute
from idiolect.experiments.predict import load_model, predict

NORMED = {"name": "mlp", "hidden": [3], "settings": {"normalize": "layer"}}  # a normalisation to keep personal
DISCREPANCIES = "0,1,1,1\n1,0,1,1\n1,1,0,1\n1,1,1,0\n"
NO_NUMBERS = ("knn_per",)  # votes on classes
SHARED_AND_OWN = "shared", "personal"


def settings_of(name):
    """Few steps; what theory decides is left to it."""
    method = ALGORITHMS[name]
    fields = {field.name: field for field in method.algorithm.__dataclass_fields__.values()}
    step = "step_size" in fields and not fields["step_size"].metadata.get("theory")
    return {"step_size": 0.1} if step else {}


@pytest.fixture(scope="module")
def trained(small, tmp_path_factory):
    """`trained(kind, name)`: the folder of a finished run of that method alone, made at the first call."""
    made = {}
    folder = tmp_path_factory.mktemp("predicted")
    (folder / "apart.csv").write_text(DISCREPANCIES)

    def run(kind, name):
        if (kind, name) not in made:
            tables = {"model": NORMED if name == "fedbn" else {"l2": 0.1}}
            if name == "all_for_all_adaptive":
                tables |= {"collaboration": {"source": "file", "path": str(folder / "apart.csv"), "accuracy": 0.5}}
            spec = small.spec(
                kind,
                methods={name: settings_of(name)},
                defaults={},
                training={"rounds": 8, "record_every": 1},
                evaluation={"optimum": "never"},
                **tables,
            )
            made[kind, name] = folder / f"{kind}-{name}"
            execute(spec, made[kind, name])
        return made[kind, name]

    return run


def rows_of(folder, small, kind, **options):
    """(its own test rows by `predict`, in the table's order; what clients.parquet has of each client)."""
    table = pq.read_table(folder / "split.parquet").to_pylist()
    places = [row["row"] for row in table if row["part"] == "test"]
    answers = predict(folder, small.folder / f"{kind}.csv", **options).take(places)
    recorded = {row["client"]: row for row in pq.read_table(folder / "clients.parquet").to_pylist()}
    return answers.to_pylist(), recorded


def score_of(rows, kind):
    if kind == "regression":
        return np.mean([(row["prediction"] - row["outcome"]) ** 2 for row in rows])
    return np.mean([row["prediction"] == str(row["outcome"]) for row in rows])


def log_loss_of(rows):
    return np.mean([-np.log(row[f"probability of {row['outcome']}"]) for row in rows])


def cases():
    """On classes each class of algorithms with each objective and preset of it: other presets train otherwise, no more.

    On numbers one name of each objective and way to make models and to predict: only the scale of targets is new there.
    """
    names, ways = {}, {}
    for name, method in ALGORITHMS.items():
        own = method.algorithm
        names.setdefault((own, method.objective, *method.objective_preset.items()), name)
        if name not in NO_NUMBERS:
            ways.setdefault((method.objective, own.models, own.predict), name)
    return [*(("classification", name) for name in names.values()), *(("regression", name) for name in ways.values())]


@pytest.mark.parametrize(("kind", "name"), cases())
def test_own_test_rows_give_the_recorded_scores(small, trained, kind, name):
    folder = trained(kind, name)
    primary = "accuracy" if kind == "classification" else "squared_error"
    kept = {path.stem: load_model(path) for path in (folder / "models").glob("*/*.safetensors")}
    assert any(np.any(np.abs(leaf) > 1e-6) for leaf in jax.tree.leaves(kept["personal"]))  # it has moved from zero
    for model in SHARED_AND_OWN:
        if model not in kept:
            with pytest.raises(RequestError, match="has no shared model of"):
                rows_of(folder, small, kind, model=model)
            continue
        answers, recorded = rows_of(folder, small, kind, model=model)
        assert {row["model"] for row in answers} == {model}
        for client, line in recorded.items():
            own = [row for row in answers if row["site"] == client]
            assert len(own) == line["test_rows"]
            assert line[f"test_{model}_{primary}_selected"] == pytest.approx(score_of(own, kind), rel=1e-4)
            if model == "personal":
                assert line["score"] == line[f"test_{model}_{primary}_selected"]
            if kind == "classification":
                assert line[f"test_{model}_log_loss_selected"] == pytest.approx(log_loss_of(own), rel=1e-4, abs=1e-6)
