# SPDX-License-Identifier: Apache-2.0
"""NPZ files: images stored as bytes, labels that must be class numbers, and labels that look like slips."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest

from idiolect.core.checks import RequestError
from idiolect.experiments.execute import execute
from idiolect.experiments.predict import load_model, predict
from idiolect.experiments.sources import build_data
from idiolect.experiments.spec import DataSpec, from_table
from idiolect.models import MLP

ROWS = 24  # four classes of clients a, b and c


def arrays(**changes):
    draw = np.random.default_rng(0)
    found = {
        "x": draw.integers(0, 256, (ROWS, 6, 7), dtype=np.uint8),
        "y": np.arange(ROWS) % 4,
        "client": np.repeat(["a", "b", "c"], ROWS // 3),
    }
    return found | changes


def read(tmp_path, task=None, settings=None, **changes):
    np.savez(tmp_path / "rows.npz", **arrays(**changes))
    data = DataSpec(
        "npz", str(tmp_path / "rows.npz"), task=task, settings=settings or {}, train=1, validation=0, test=0
    )
    return build_data(data)[0]


def labels(**changes):
    """The labels with others in some rows: row5=-3."""
    found = np.arange(ROWS) % 4
    for row, label in changes.items():
        found[int(row.removeprefix("row"))] = label
    return found


@pytest.mark.parametrize(
    ("data", "changes", "sentence"),
    [
        ({"target": "label"}, {}, "[data] source 'npz' does not read target; name the array in data.settings.targets."),
        (
            {"features": ["a"]},
            {},
            "[data] source 'npz' does not read features; name the array in data.settings.inputs.",
        ),
        ({"settings": {"inputs": 3}}, {}, "data.settings.inputs"),
        ({}, {"y": np.arange(ROWS)[:, None] % 4}, "holds one column of labels, shape (24, 1), where a label per row"),
        (
            {"settings": {"vocabulary": 5}},
            {"x": np.zeros((ROWS, 0), int), "y": np.zeros((ROWS, 0), int)},
            "hold nothing",
        ),
    ],
    ids=["target", "features", "array", "column", "empty"],
)
def test_what_would_be_passed_over_is_refused(tmp_path, data, changes, sentence):
    np.savez(tmp_path / "rows.npz", **arrays(**changes))
    with pytest.raises(RequestError) as refused:
        build_data(DataSpec("npz", str(tmp_path / "rows.npz"), **data))
    assert sentence in str(refused.value)


@pytest.mark.parametrize("shape", [(ROWS, 6, 7), (ROWS, 6, 7, 1)])
def test_images_of_bytes_become_0_to_1_and_a_note_says_so(tmp_path, shape):
    images = arrays()["x"].reshape(shape)
    federation = read(tmp_path, x=images)
    assert federation.train.inputs.dtype == np.float32
    assert np.array_equal(federation.train.inputs, (images / 255).astype(np.float32))  # as source = "idx" has them
    assert federation.notes[0].startswith("Images stored as bytes, the array 'x', were divided by 255 to lie in [0, 1]")


def test_floats_flat_rows_and_tokens_are_taken_as_they_are(tmp_path):
    images = arrays()["x"]
    flat, tokens = images[:, 0], images[:, 0] % 5
    for found, kept in (
        (read(tmp_path, x=images.astype(np.float32)), images),
        (read(tmp_path, x=flat), flat),
        (read(tmp_path, x=tokens, y=tokens, settings={"vocabulary": 5}), tokens),
    ):
        assert np.array_equal(found.train.inputs, kept)
        assert not any("bytes" in note for note in found.notes)


def test_classes_are_as_many_as_asked_for(tmp_path):
    federation = read(tmp_path, settings={"classes": 10})
    assert federation.task.outputs == 10
    assert federation.task.classes[9] == "9"
    assert np.array_equal(federation.train.targets, labels())
    assert federation.warnings == ()


REFUSED = {
    "below": ({"y": labels(row9=-3)}, {"classes": 4}, "must hold class numbers 0 to 3, but client 'b' (row 9) has -3;"),
    "way out below": ({"y": labels(row9=-3)}, {"classes": 4}, "has -3; correct it, or number classes from 0."),
    "above": ({"y": labels(row23=7)}, {"classes": 4}, "'c' (row 23) has 7; correct it, or set classes to at least 8."),
    "texts": ({"y": labels().astype(str)}, {"classes": 4}, "needs class numbers, whole numbers, in the array 'y', got"),
    "one class": ({}, {"classes": 1}, "data.settings.classes must be at least 2, got 1."),
    "both": ({}, {"classes": 4, "vocabulary": 4}, "takes vocabulary, of texts, or classes, of everything else, got"),
    "one-hot": ({"y": np.eye(4)[labels()]}, {}, "one class number per row, got one-hot rows of 4; give targets"),
    "one-hot classes": ({"y": np.eye(4, dtype=int)[labels()]}, {"classes": 4}, "got one-hot rows of 4; give targ"),
    "clients of another length": ({"y": labels(row9=-3), "client": ["a", "b"]}, {"classes": 4}, "but row 9 has -3;"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_labels_that_are_no_class_numbers(tmp_path, case):
    changes, settings, sentence = REFUSED[case]
    with pytest.raises(RequestError) as refused:
        read(tmp_path, settings=settings, **changes)
    assert sentence in str(refused.value)


def test_classes_and_regression_exclude_each_other(tmp_path):
    with pytest.raises(RequestError, match=r"with data\.settings\.classes, whose targets are class numbers, got 'regr"):
        read(tmp_path, task="regression", settings={"classes": 4})


def test_one_hot_rows_may_be_fitted_as_numbers_where_that_is_asked_for(tmp_path):
    assert read(tmp_path, task="regression", y=np.eye(4)[labels()]).task.outputs == 4


DOUBTS = {
    "negative": ({"y": labels(row5=-3, row6=-3)}, ["The label -3 of client 'a' (row 5) was taken for a class of its"]),
    "several": ({"y": labels(row5=-3, row9=-4)}, ["The label -4 of client 'b' (row 9) was taken for a class of its o"]),
    "single": ({"y": labels(row5=40)}, ["The class '40' has a single row, of client 'a' (row 5); correct its"]),
    "texts": ({"y": np.where(labels() == 0, "no", "yes").astype("U3")}, []),
    "both": ({"y": labels(row5=-3, row6=7)}, ["The label -3", "The class '7' has a single row, of client 'a' (row 6)"]),
    "a usual pair": ({"y": np.where(labels() > 1, 1, -1)}, []),
    "nothing": ({}, []),
}  # fmt: skip


@pytest.mark.parametrize("case", DOUBTS)
def test_labels_that_look_like_slips_earn_a_warning(tmp_path, case):
    changes, sentences = DOUBTS[case]
    found = read(tmp_path, **changes).warnings
    assert len(found) == len(sentences)
    assert all(text.startswith(begin) for text, begin in zip(found, sentences)), found


def spec_of(tmp_path, method, **changes):
    np.savez(tmp_path / "rows.npz", **arrays(**changes))
    return from_table(
        {
            "data": {"source": "npz", "path": str(tmp_path / "rows.npz")},
            "model": {"name": "mlp", "hidden": [3]},
            "training": {"rounds": 1, "executor": "batched"},
            "methods": {method: {"step_size": 0.1}},
        }
    )


def test_a_run_says_and_keeps_the_warnings_of_its_data(tmp_path):
    said = []
    execute(spec_of(tmp_path, "fedavg", y=labels(row5=-3)), tmp_path / "run", say=said.append)
    assert any(text.startswith("Warning: The label -3 of client 'a' (row 5)") for text in said)
    kept = json.loads((tmp_path / "run/summary.json").read_text())["warnings"]
    assert kept[0].startswith("The label -3 of client 'a' (row 5)")


def test_a_models_file_is_what_the_run_trained_and_predict_leads_there(tmp_path):
    done = execute(spec_of(tmp_path, "ditto"), tmp_path / "run")
    (trained,) = done.trained[0].runs
    models = {"shared": trained.shared_model(trained.selected), "personal": trained.personal_models(trained.selected)}
    for kind, expected in models.items():
        found = load_model(tmp_path / f"run/models/ditto-seed0/{kind}.safetensors")
        assert jax.tree.all(jax.tree.map(np.array_equal, found, expected))
    own = jax.tree.map(lambda leaf: leaf[1], found)
    assert MLP(6 * 7, 4, (3,)).apply(own, arrays()["x"] / np.float32(255)).shape == (ROWS, 4)
    with pytest.raises(
        RequestError, match=r"run on a table .* load its model in Python with .*load_model, as docs/netw"
    ):
        predict(tmp_path / "run", tmp_path / "rows.npz")
    with pytest.raises(RequestError, match="There is no model nothing"):
        load_model("nothing")


@pytest.mark.parametrize(("kind", "code"), [(">u1", 0x08), (">f4", 0x0D)])
def test_an_idx_file_has_its_bytes_divided_and_nothing_else(tmp_path, kind, code):
    images = arrays()["x"].astype(kind)
    sizes = np.array(images.shape, ">u4").tobytes()
    (tmp_path / "images.idx").write_bytes(bytes([0, 0, code, 3]) + sizes + images.tobytes())
    targets = labels().astype(np.uint8)
    (tmp_path / "labels.idx").write_bytes(bytes([0, 0, 0x08, 1, 0, 0, 0, ROWS]) + targets.tobytes())
    settings = {"labels": str(tmp_path / "labels.idx"), "clients": 2}
    data = DataSpec("idx", str(tmp_path / "images.idx"), settings=settings, train=1, validation=0, test=0)
    found = build_data(data)[0].train.inputs
    assert found.dtype == np.float32
    assert np.sort(found, axis=None)[-1] == pytest.approx(images.max() / (255 if code == 0x08 else 1))
