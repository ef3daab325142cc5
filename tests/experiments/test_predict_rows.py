# SPDX-License-Identifier: Apache-2.0
"""Who answers new rows: the announced method, the model that was asked for, never another one without a word."""

from __future__ import annotations

import json
import shutil
import warnings

import jax
import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from idiolect.core.checks import RequestError
from idiolect.experiments import finished as kept_models
from idiolect.experiments.execute import execute
from idiolect.experiments.finished import Kept
from idiolect.experiments.predict import predict, route_rows
from idiolect.experiments.run_folder import RunFolder
from idiolect.record.manifest import write_manifest
from idiolect.record.schema import SCHEMA


def write_wards(path):
    """A regression on sites called 007, 7 and 008, with a category and a number."""
    draw = np.random.default_rng(5)
    lines = ["site,age,ward,outcome"]
    for row in range(60):
        age = draw.normal(50, 9)
        lines.append(f"{('007', '7', '008')[row % 3]},{age:.2f},{'ab'[row // 3 % 2]},{3 * age + 40 * (row % 3):.2f}")
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def wards(small, tmp_path_factory):
    """The folder of a finished run on `write_wards`: local, FedAvg with fine-tuning, and FedAvg."""
    folder = tmp_path_factory.mktemp("wards")
    write_wards(folder / "wards.csv")
    spec = small.spec(
        data={"path": str(folder / "wards.csv"), "split_column": None},
        methods={"local": {}, "fedavg_fine_tuning": {}, "fedavg": {}},
    )
    execute(spec, folder / "run")
    return folder / "run"


def ask(folder, rows, **options):
    """(the answers as rows, the sentences)."""
    said = []
    table = {name: [row[place] for row in rows] for place, name in enumerate(("site", "age", "ward"))}
    return predict(folder, table, say=said.append, **options).to_pylist(), said


def test_a_shared_model_of_a_regression_answers_a_row_with_one_number(wards):
    """Its bias is a plain number; kept as a vector of one, n rows had n x n answers."""
    arrays = load_file(wards / "models/fedavg-seed0/shared.safetensors")
    assert arrays["bias"].shape == ()
    rows, _ = ask(wards, [("007", 50.0, "a"), ("nowhere", 60.0, "b"), ("nowhere", 50.0, "a")], method="fedavg")
    assert [row["model"] for row in rows] == ["personal", "shared", "shared"]
    assert rows[0]["prediction"] == pytest.approx(rows[2]["prediction"], rel=1e-6)  # FedAvg's models are one
    assert rows[1]["prediction"] != pytest.approx(rows[2]["prediction"], rel=1e-3)


def test_a_folder_of_another_schema_answers_nothing(wards, tmp_path):
    """Its models may be laid out otherwise, and its spec may have settings that this version does not know."""
    shutil.copytree(wards, tmp_path / "old")
    for name, old, new in (
        ("summary.json", f'"schema": {SCHEMA}', '"schema": 2'),
        ("spec.toml", "[resolved", "[of_old"),
    ):
        path = tmp_path / "old" / name
        path.write_text(path.read_text().replace(old, new))
    write_manifest(tmp_path / "old")
    with pytest.raises(RequestError, match=f"reads folders of schema {SCHEMA}, and .* says schema 2; use the version"):
        ask(tmp_path / "old", [("007", 50.0, "a")], method="fedavg")


def test_models_keep_their_shapes(tmp_path):
    RunFolder(tmp_path).write_model("m", {"bias": np.float32(2.0), "weights": np.ones((3, 2), np.float32).T})
    arrays = load_file(tmp_path / "models/m.safetensors")
    assert {name: array.shape for name, array in arrays.items()} == {"bias": (), "weights": (2, 3)}


def test_clients_are_compared_as_written(wards):
    """'007' is not 7, whatever else is in the table, and no row's answer depends on another's."""
    row = ("007", 50.0, "a")
    alone = ask(wards, [row], method="local")[0][0]
    beside, _ = ask(wards, [row, ("7", 50.0, "a")], method="local")
    assert beside[0] == alone
    assert beside[1]["prediction"] != alone["prediction"]
    with pytest.raises(RequestError, match=r"'07', not '(007|7)'"):
        ask(wards, [("07", 50.0, "a")], method="local")


def test_numbers_that_name_clients_are_texts(wards, tmp_path):
    (tmp_path / "new.csv").write_text("site,age,ward\n7,50,a\n007,50,a\n")
    (tmp_path / "single.csv").write_text("site,age,ward\n007,50,a\n")
    both = predict(wards, tmp_path / "new.csv", "local").to_pylist()
    single = predict(wards, tmp_path / "single.csv", "local").to_pylist()
    assert both[1] == single[0]
    assert both[0]["prediction"] != both[1]["prediction"]


def test_no_rows_answer_depends_on_what_else_is_in_the_file(small, tmp_path):
    """A single row looks like numbers where the whole column is codes, dates or gaps."""
    draw = np.random.default_rng(8)
    lines = ["site,code,flag,day,dose,outcome"]
    for row in range(48):
        dose = "" if row % 7 == 0 else f"{draw.normal():.2f}"
        flag, day = "true" if row % 3 else "false", f"2024-0{1 + row % 9}-11"
        lines.append(f"{row % 4:03d},{('01', '1', 'x')[row // 4 % 3]},{flag},{day},{dose},{draw.normal(10, 3):.3f}")
    (tmp_path / "whole.csv").write_text("\n".join(lines) + "\n")
    data = {"path": str(tmp_path / "whole.csv"), "split_column": None}
    execute(small.spec(data=data, methods={"fedavg_fine_tuning": {}}), tmp_path / "run")
    whole = predict(tmp_path / "run", tmp_path / "whole.csv").to_pylist()
    for row in range(1, 49, 5):
        (tmp_path / "one.csv").write_text(f"{lines[0]}\n{lines[row]}\n")
        (alone,) = predict(tmp_path / "run", tmp_path / "one.csv").to_pylist()
        assert alone["prediction"] == pytest.approx(whole[row - 1]["prediction"], rel=1e-6)
        assert alone["model"] == whole[row - 1]["model"] == "personal"


def test_without_a_method_the_announced_one_answers(wards, tmp_path):
    summary = json.loads((wards / "summary.json").read_text())
    shutil.copytree(wards, tmp_path / "run")
    for label in ("local", "fedavg"):
        (tmp_path / "run/summary.json").write_text(
            json.dumps(summary | {"announced": summary["announced"] | {"method": label}})
        )
        write_manifest(tmp_path / "run")
        rows, said = ask(tmp_path / "run", [("007", 50.0, "a")])
        assert rows == ask(wards, [("007", 50.0, "a")], method=label)[0]
        assert label in said[0]


def test_doubts_are_said_and_refused_if_strict(wards):
    rows = [("007", 50.0, "a"), ("new", 5e4, "zz"), (None, None, "b")]
    answers, said = ask(wards, rows, method="fedavg")
    assert [row["model"] for row in answers] == ["personal", "shared", "shared"]
    doubts = [text for text in said if text.startswith("Warning: ")]
    for word in ("'new'", "without a client", "'zz'", "'age' has 1 value far outside", "'age' misses 1 value"):
        assert any(word in doubt for doubt in doubts), word
    with pytest.raises(RequestError, match="--strict refuses"):
        ask(wards, rows, method="fedavg", strict=True)
    assert ask(wards, rows[:1], method="fedavg", strict=True)[0] == answers[:1]
    with pytest.warns(UserWarning, match="did not train"):
        predict(wards, {"site": ["new"], "age": [50.0], "ward": ["a"]}, "fedavg")


def test_a_long_name_is_answered_and_not_repeated_in_a_doubt(wards):
    long = "x" * 3000
    answers, said = ask(wards, [(long, 50.0, long)], method="fedavg")
    assert (answers[0]["site"], answers[0]["model"]) == (long, "shared")
    doubts = [text for text in said if f"'{'x' * 60} ...'" in text]
    assert [len(text) < 300 for text in doubts] == [True, True]


def test_a_table_without_the_client_column_says_so(wards):
    said = []
    answers = predict(wards, {"sites": ["007"], "age": [50.0], "ward": ["a"]}, "fedavg", say=said.append)
    assert answers["model"].to_pylist() == ["shared"]
    assert any("no client column 'site'. Did you mean 'sites'?" in text for text in said)


KEPT = Kept({"w": np.zeros(2)}, {"w": np.zeros((2, 2))}, ("a", "b"))


@pytest.mark.parametrize(
    ("kept", "clients", "model", "own"),
    [
        (KEPT, ["b", "a", "b"], "auto", [1, 0, 1]),
        (KEPT, ["b", "c", None], "auto", [1, -1, -1]),
        (KEPT, ["b", "c"], "shared", [-1, -1]),
        (KEPT, ["b"], "personal", [1]),
        (KEPT._replace(personal=None), ["b", "c"], "auto", [-1, -1]),
        (KEPT._replace(shared=None), ["b"], "auto", [1]),
        (KEPT, ["b", "c"], "personal", "did not train \\('c'\\)"),
        (KEPT, [None], "personal", "1 row without a client"),
        (KEPT._replace(shared=None), ["b", *map(str, range(12))], "auto", "12 clients .*'9' and 2 more"),
        (KEPT._replace(shared=None), ["b"], "shared", "has no shared model of"),
        (KEPT._replace(personal=None), ["b"], "personal", "kept no personal models"),
        (KEPT._replace(personal=None, shared=None), ["b"], "auto", "kept no model"),
        (KEPT, ["b"], "own", "--model must be one of auto, personal, shared"),
    ],
)
def test_rows_go_to_the_model_that_was_asked_for_or_are_refused(kept, clients, model, own):
    if isinstance(own, str):
        with pytest.raises(RequestError, match=own):
            route_rows("m", kept, clients, model)
        return
    routed = route_rows("m", kept, clients, model)
    assert routed.own.tolist() == own
    asked = model == "shared" or all(number >= 0 for number in own)
    assert bool(routed.doubts) != asked  # another model than the client's own is told of, unless asked for


@pytest.mark.parametrize("most", [1, 40, 10**6])
def test_blocks_of_any_size_give_the_same_answers(wards, monkeypatch, most):
    draw = np.random.default_rng(2)
    rows = [
        (str(site), float(age), "a")
        for site, age in zip(
            draw.choice(["007", "7", "008", "new"], 300, p=[0.7, 0.2, 0.05, 0.05]), draw.normal(50, 5, 300)
        )
    ]
    whole, _ = ask(wards, rows, method="fedavg_fine_tuning")
    monkeypatch.setattr(kept_models, "MOST_NUMBERS", most)
    monkeypatch.setattr(kept_models, "BLOCK", 16)
    parts, _ = ask(wards, rows, method="fedavg_fine_tuning")
    assert [row["model"] for row in parts] == [row["model"] for row in whole]
    np.testing.assert_allclose(*([row["prediction"] for row in one] for one in (parts, whole)), rtol=1e-5)


def test_every_row_is_in_one_block_of_its_client():
    own = np.random.default_rng(0).choice(50, 3000, p=np.random.default_rng(1).dirichlet(np.full(50, 0.2)))
    owners, rows = kept_models._blocks(own)
    assert rows.shape[1] <= kept_models.BLOCK
    assert (own[rows] == owners[:, None]).all()
    assert set(rows.reshape(-1).tolist()) == set(range(3000))
    assert rows.size <= 3000 + len(np.unique(own)) * rows.shape[1]  # at most one block of a client is not full


def test_many_rows_of_many_clients_need_little_memory(wards, monkeypatch):
    """A call never holds more than it may, and there are few different programs."""
    held, compiled = [], []
    answer = kept_models._answer

    def watch(algorithm, params, personal, clients, inputs, precision):
        held.append(inputs.size)
        compiled.append((personal, inputs.shape))
        return answer(algorithm, params, personal, clients, inputs, precision)

    monkeypatch.setattr(kept_models, "_answer", watch)
    monkeypatch.setattr(kept_models, "MOST_NUMBERS", 1 << 14)
    draw = np.random.default_rng(3)
    table = {
        "site": draw.choice(["007", "7", "008", "new"], 20_000),
        "age": draw.normal(50, 5, 20_000),
        "ward": ["a"] * 20_000,
    }
    said = []
    answers = predict(wards, table, "fedavg", say=said.append)
    assert answers.num_rows == 20_000
    assert max(held) <= 1 << 14
    assert len(set(compiled)) <= 2


def test_a_run_in_double_precision_is_answered_in_it(small, tmp_path):
    spec = small.spec("regression", methods={"fedavg": {}}, training={"precision": "float64"})
    execute(spec, tmp_path / "run")
    answers = predict(tmp_path / "run", small.folder / "regression.csv").to_pylist()
    params = load_file(tmp_path / "run/models/fedavg-seed0/shared.safetensors")
    assert params["weights"].dtype == np.float64
    assert not jax.config.jax_enable_x64
    assert len(answers) == 32


def test_a_run_that_kept_the_shared_models_alone_says_so(small, tmp_path):
    execute(small.spec("regression", output={"models": "shared"}), tmp_path / "run")
    said = []
    rows = predict(tmp_path / "run", small.folder / "regression.csv", "fedavg", say=said.append).to_pylist()
    assert {row["model"] for row in rows} == {"shared"}
    assert any("kept no personal models of 'fedavg'" in text for text in said)
    with pytest.raises(RequestError, match="kept no model of 'local'"):
        predict(tmp_path / "run", small.folder / "regression.csv", "local")
    with pytest.raises(RequestError, match="kept no personal models"):
        predict(tmp_path / "run", small.folder / "regression.csv", "fedavg", model="personal")


def test_a_folder_of_advise_says_that_it_keeps_no_models(small, tmp_path):
    (tmp_path / "spec.toml").write_text("")
    (tmp_path / "advise.json").write_text("{}")
    with pytest.raises(RequestError, match="`idiolect advise` keeps no models"):
        predict(tmp_path, small.folder / "regression.csv")


def test_own_rows_bring_no_warning(wards):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        predict(wards, wards.parent / "wards.csv", "fedavg")


def test_rows_are_scaled_as_their_client_was_where_each_prepares_alone(wards, small, tmp_path):
    table = wards.parent / "wards.csv"
    data = {"path": str(table), "split_column": None, "preparation": "local"}
    execute(small.spec(data=data, methods={"local": {}, "fedavg": {}}), tmp_path / "run")
    recorded = pq.read_table(tmp_path / "run" / "predictions.parquet").to_pylist()
    answers = predict(tmp_path / "run", table, "fedavg", say=lambda text: None)["prediction"].to_pylist()
    for row in recorded:
        if row["method"] == "fedavg":
            assert answers[row["row"]] == pytest.approx(row["prediction"], rel=1e-4)
    with pytest.raises(RequestError, match="A row has no client"):
        predict(tmp_path / "run", {"age": [50.0], "ward": ["a"]}, "fedavg")
