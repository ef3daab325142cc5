# SPDX-License-Identifier: Apache-2.0
"""What a run says has left its clients, beside the ledger and what really was sent."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from idiolect.cli import app
from idiolect.core.checks import RequestError
from idiolect.experiments.execute import execute
from idiolect.experiments.prepare import prepare
from idiolect.experiments.spec import from_table

CLIENTS, ROWS = 4, 20


def write(folder, shift=0.0):
    draw = np.random.default_rng(1)
    path = folder / "rows.csv"
    lines = ["site,a,b,y"]
    for row in range(CLIENTS * ROWS):
        a, b = draw.normal(size=2)
        client = row // ROWS
        lines.append(f"s{client},{a + shift * (client == 3):.4f},{b:.4f},{a - b + draw.normal():.4f}")
    path.write_text("\n".join(lines) + "\n")
    return path


def spec_of(path, **data):
    return from_table(
        {
            "name": "stated",
            "data": {"source": "table", "path": str(path), "client": "site", "target": "y"} | data,
            "training": {"rounds": 3, "record_every": 1},
            "methods": {name: {"step_size": 0.1, "batch_size": 4, "local_steps": 2} for name in ("local", "fedavg")},
        }
    )


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stated")
    return execute(spec_of(write(folder)), folder / "run")


def test_every_array_is_listed_with_its_bytes_its_times_and_its_rows(done):
    stated = json.loads((done.folder / "privacy.json").read_text())
    alone, fedavg = stated["methods"]
    assert (alone["uploads"], alone["upload_bytes"], alone["protection"]) == ([], 0, "nothing is sent")
    assert {one["array"] for one in fedavg["uploads"]} == {"drift.weights", "drift.bias", "weight"}
    assert (fedavg["rounds"], fedavg["uploads_in_all"], fedavg["rounds_to_choose"]) == (3, 3 * CLIENTS, 0)
    each = sum(one["bytes"] for one in fedavg["uploads"])
    ledger = done.trained[1].runs[0].ledger
    assert fedavg["upload_bytes"] == ledger.upload_bytes == 3 * CLIENTS * each
    assert fedavg["rows_at_least"]["rows"] == 8  # two batches of four, of twelve training rows
    assert fedavg["protection"].startswith("none")


def test_preparation_is_billed_before_the_first_round(done):
    stated = json.loads((done.folder / "privacy.json").read_text())["preparation"]
    prepared = done.federation.preparation
    assert stated["total_bytes"] == prepared.total_bytes > 0
    assert [part["column"] for part in stated["columns"]] == ["a", "b", "y"]
    for entry in done.trained:
        run = entry.runs[0]
        assert run.ledger.preparation_bytes == prepared.total_bytes  # training alone was prepared too
        assert run.history[0]["preparation_bytes"] == prepared.total_bytes
    assert sum(done.trained[1].runs[0].recorder.client_bytes) == done.trained[1].runs[0].ledger.total_bytes
    assert any(note.startswith("Preparation (") for note in done.summary.notes)


def test_the_statement_is_printed_and_on_the_page(done):
    said = CliRunner().invoke(app, ["explain", str(done.folder)])
    assert said.exit_code == 0
    assert "drift.weights (2,) float32" in said.stdout
    assert "Preparation, federated" in said.stdout
    as_json = CliRunner().invoke(app, ["explain", str(done.folder), "--format", "json"])
    assert json.loads(as_json.stdout)["methods"][0]["method"] == "local"
    assert CliRunner().invoke(app, ["report", str(done.folder)]).exit_code == 0
    page = (done.folder / "report.html").read_text()
    assert "What left each client" in page
    assert "drift.weights" in page


def test_a_client_alone_is_not_moved_by_others_where_it_is_prepared_alone(tmp_path):
    """Changing one client's rows changes no number of another's that trains alone, by its own rows."""
    scores = {}
    for way in ("local", "federated"):
        for shift in (0.0, 30.0):
            folder = tmp_path / f"{way}{shift}"
            folder.mkdir()
            done = execute(spec_of(write(folder, shift), preparation=way), folder / "run")
            scores[way, shift] = done.trained[0].runs[0].recorder.selected["test"]["personal"]["squared_error"]
    assert scores["local", 0.0][:3] == scores["local", 30.0][:3]
    assert scores["federated", 0.0][:3] != scores["federated", 30.0][:3]


def test_a_recipe_goes_with_the_way_that_needs_it(done, tmp_path):
    path = write(tmp_path)
    recipe = str(done.folder / "models" / "preprocessing.json")
    given = prepare(spec_of(path, preparation="given", recipe=recipe)).federation
    assert given.preprocessing.columns == done.federation.preprocessing.columns
    for data in ({"recipe": recipe}, {"preparation": "given"}):
        with pytest.raises(RequestError, match=r"data\.recipe"):
            prepare(spec_of(path, **data))
    with pytest.raises(RequestError, match="cannot be read"):
        prepare(spec_of(path, preparation="given", recipe=str(tmp_path / "none.json")))
    with pytest.raises(RequestError, match="for tables"):
        prepare(from_table({"data": {"source": "digits", "preparation": "local"}, "methods": {"local": {}}}))
