# SPDX-License-Identifier: Apache-2.0
"""What a run says has left its clients, beside the ledger and what really was sent."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

from idiolect.cli import app
from idiolect.core.checks import RequestError
from idiolect.experiments.advise import advise_on
from idiolect.experiments.candidates import comparison
from idiolect.experiments.contest import Contest
from idiolect.experiments.dial import walk
from idiolect.experiments.execute import execute
from idiolect.experiments.prepare import prepare
from idiolect.experiments.spec import from_table
from idiolect.record.manifest import read_manifest

CLIENTS, ROWS = 4, 20


def write(folder, shift=0.0):
    draw = np.random.default_rng(1)
    path = folder / "rows.csv"
    lines = ["site,a,b,y"]
    for row in range(CLIENTS * ROWS):
        a, b = draw.normal(size=2)
        client = row // ROWS
        moved = a + shift * (client == 3) * (1 + b)  # more than its own scaling takes back
        lines.append(f"s{client},{moved:.4f},{b:.4f},{a - b + draw.normal():.4f}")
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


@pytest.fixture(scope="module")
def dialled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dialled")
    methods = {"methods": {"scafflix": {}}, "model": {"l2": 0.1}, "training": {"rounds": 2}}
    data = {"source": "table", "path": str(write(folder)), "client": "site", "target": "y"}
    found = walk(
        from_table({"name": "dial", "data": data} | methods),
        folder / "run",
        "personalization",
        (1.0, 0.5, 0.0),
        refit=True,
        ridge="The ridge was chosen on validation rows.",
    )
    return found, folder / "run"


def test_a_dial_states_the_uploads_of_every_value(dialled):
    found, folder = dialled
    stated = json.loads((folder / "privacy.json").read_text())
    assert [entry["upload_bytes"] for entry in stated["methods"]] == [one.spent.upload_bytes for one in found.values]
    spent = found.values[-1].spent_so_far
    assert sum(entry["upload_bytes"] for entry in stated["methods"]) == spent.upload_bytes > 0
    for entry in stated["methods"]:
        assert entry["upload_bytes"] == entry["uploads_in_all"] * sum(one["bytes"] for one in entry["uploads"])
    assert stated["methods"][-1]["uploads"] == []  # alone: no round, nothing sent
    assert {entry["rows_at_least"]["rows"] for entry in stated["methods"]} == {12}
    assert stated["preparation"]["total_bytes"] == spent.preparation_bytes > 0  # once, though it is walked twice
    assert any("ridge" in part["what"] for part in stated["also"])


@pytest.fixture(scope="module")
def advised(tmp_path_factory):
    folder = tmp_path_factory.mktemp("advised")
    data = {"source": "table", "path": str(write(folder)), "client": "site", "target": "y"}
    return advise_on({"data": data}, folder / "run", name="advice", verify=True), folder / "run"


def test_advice_states_its_sums_models_and_judgements(advised):
    found, folder = advised
    stated = json.loads((folder / "privacy.json").read_text())
    sent = stated["exchange"]
    for way in ("upload", "download"):
        each = sum(one[f"{way}s"] * one["bytes"] for one in sent["arrays"])
        assert sent[f"{way}_bytes"] == getattr(found.exchange, f"{way}_bytes") == each > 0
    size = found.coefficients
    assert {tuple(one["shape"]) for one in sent["arrays"]} == {(size,), (size * (size + 1) // 2,), ()}
    assert sent["rows_at_least"] == 5
    assert stated["methods"] == []
    assert stated["preparation"]["total_bytes"] > 0
    assert any("test rows" in part["what"] for part in stated["also"])


@pytest.mark.parametrize(
    ("fixture", "word"), [("dialled", "scafflix, personalization 0.5"), ("advised", "sum of Hessians")]
)
def test_statements_of_dials_and_advice_are_printed_covered_and_on_the_page(fixture, word, request):
    _, folder = request.getfixturevalue(fixture)
    assert "privacy.json" in read_manifest(folder)
    assert word in CliRunner().invoke(app, ["explain", str(folder)]).stdout
    assert CliRunner().invoke(app, ["report", str(folder)]).exit_code == 0
    page = (folder / "report.html").read_text()
    assert '<section id="privacy"' in page
    assert word in page


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


def test_what_a_client_alone_chooses_is_not_moved_by_others_either(tmp_path):
    """Its grid of step sizes, its choice of step and rounds, and its final fit: the same bits, as `compare` does it."""
    models = []
    for shift in (0.0, 30.0):
        folder = tmp_path / str(shift)
        folder.mkdir()
        data = {"source": "table", "path": str(write(folder, shift)), "client": "site", "target": "y"}
        spec = from_table(comparison(data | {"preparation": "local"}, Contest(methods="local")) | {"name": "alone"})
        done = execute(spec, folder / "run")
        models.append(jax.tree.leaves(done.trained[0].runs[0].personal_models()))
    for one, other in zip(*models):
        np.testing.assert_array_equal(one[:3], other[:3])
    assert any((one[3] != other[3]).any() for one, other in zip(*models))


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
