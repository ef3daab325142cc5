# SPDX-License-Identifier: Apache-2.0
"""Images, tokens and layers that do not fit: exit 2 and one sentence; a client of one row is no mistake."""

from __future__ import annotations

import json

import numpy as np
import pytest

SPEC = """
[data]
source = "npz"
path = "rows.npz"
train = 0.5
validation = 0.25
test = 0.25
{data}
[model]
name = "{model}"
settings = {settings}
[training]
rounds = 1
record_every = 1
executor = "looped"
[methods.{method}]
"""
IMAGES = ("mlp", "{ normalize = 'layer' }")
TOKENS = ("character_lstm", "{ embedding = 2, hidden = 2, layers = 1 }")


def write(here, model, *, method="fedavg", data="", **arrays):
    np.savez(here / "rows.npz", **arrays)
    name, settings = model
    text = SPEC.format(data=data, model=name, settings=settings, method=method)
    (here / "bad.toml").write_text(text)


def images(rows=12):
    draw = np.random.default_rng(0)
    return {"x": draw.random((rows, 8, 8)), "y": np.arange(rows) % 3, "client": np.arange(rows) // 4}


def texts(rows=12, kinds=None, **strange):
    """Tokens 0 to 4 and those after each; `strange` is {array: (row, token)}, `kinds` {array: type}."""
    tokens = (np.arange(rows)[:, None] + np.arange(4)) % 5
    arrays = {"x": tokens[:, :-1].copy(), "y": tokens[:, 1:].copy(), "client": np.arange(rows) // 4}
    for name, (row, token) in strange.items():
        arrays[name][row, 1] = token
    return arrays | {name: arrays[name].astype(kind) for name, kind in (kinds or {}).items()}


def assert_refused(answer, sentence):
    assert answer.code == 2, answer
    assert answer.out == ""
    assert sentence in answer.err.replace("\n", " "), answer.err
    assert "Traceback" not in answer.err


def test_texts_with_targets_of_another_length(idiolect, here):
    arrays = texts()
    write(here, TOKENS, data="settings = { vocabulary = 5 }", **arrays | {"y": arrays["y"][:, :2]})
    sentence = "A text needs as many targets as tokens, got 3 tokens and 2 targets per row; cut or fill both"
    assert_refused(idiolect("run", "bad.toml", "--out", "out"), sentence)
    assert not (here / "out").exists()


def test_images_of_mixed_size(idiolect, here):
    mixed = np.empty(12, object)
    mixed[:] = [np.zeros((8, 8 + row % 2)) for row in range(12)]
    write(here, IMAGES, **(images() | {"x": mixed}))
    sentence = "The array 'x' of rows.npz holds Python objects, as rows of mixed size do; crop, pad or resize all rows"
    assert_refused(idiolect("run", "bad.toml", "--out", "out"), sentence)
    rows = {"x": [[0.0] * 4, [0.0] * 9], "y": [0, 1]}
    leaf = {"users": ["a", "b"], "num_samples": [2, 2], "user_data": {"a": rows, "b": rows}}
    (here / "leaf.json").write_text(json.dumps(leaf))
    sets = ("--set", "data = { source = 'leaf', path = 'leaf.json' }")
    sentence = "leaf.json: the x entries must all be numbers, or texts, of one shape, got entries of 4 and of 9; crop"
    assert_refused(idiolect("run", "bad.toml", "--out", "out", *sets), sentence)
    assert not (here / "out").exists()


VOCABULARY = "settings = { vocabulary = 5 }"
OUTSIDE = "With data.settings.vocabulary = 5 the array"
TOKEN_CASES = {  # what is strange about the texts, the data's settings, a part of the sentence
    "train": (
        {"x": (1, 9)},
        VOCABULARY,
        f"{OUTSIDE} 'x' must hold tokens 0 to 4, but client '0' (row 1) has 9; correct it, or set vocabulary to",
    ),
    "held out": (
        {"x": (11, 9)},
        f"{VOCABULARY}\nheld_out = 1",
        f"{OUTSIDE} 'x' must hold tokens 0 to 4, but client '2' (row 11) has 9; correct it, or set vocabulary",
    ),
    "below": (
        {"x": (1, -1)},
        VOCABULARY,
        "tokens 0 to 4, but client '0' (row 1) has -1; correct it, or number tokens from 0.",
    ),
    "target": (
        {"y": (2, 7)},
        VOCABULARY,
        f"{OUTSIDE} 'y' must hold tokens 0 to 4, or -1 for none, but client '0' (row 2) has 7; correct it, or set",
    ),
    "target below": (
        {"y": (2, -2)},
        VOCABULARY,
        "or -1 for none, but client '0' (row 2) has -2; correct it, or number tokens",
    ),
    "no whole numbers": (
        {"kinds": {"x": float}},
        VOCABULARY,
        "data.settings.vocabulary needs tokens, whole numbers, in the array 'x', got the type float64; store it as",
    ),
    "texts": (
        {"kinds": {"y": str}},
        VOCABULARY,
        "whole numbers, in the array 'y', got the type <U21; store it as whole",
    ),
    "regression": (
        {},
        f"{VOCABULARY}\ntask = 'regression'",
        "task must be 'classification' or left out with data.settings.vocabulary, whose targets are tokens, got",
    ),
    "negative": ({}, "settings = { vocabulary = -1 }", "data.settings.vocabulary must be at least 0, got -1."),
    "no number": (
        {},
        "settings = { vocabulary = 'all' }",
        "data.settings.vocabulary must be a whole number, got 'all'.",
    ),
}


@pytest.mark.parametrize("case", TOKEN_CASES)
def test_a_vocabulary_that_does_not_match(idiolect, here, case):
    strange, data, sentence = TOKEN_CASES[case]
    write(here, TOKENS, data=data, **texts(**strange))
    assert_refused(idiolect("run", "bad.toml", "--out", "out"), sentence)
    assert not (here / "out").exists()


LAYER_CASES = [
    ("fedper", "personal_part = 'dens_1'", "WS2.personal_part has an unknown part 'dens_1'. Did you mean 'dense_1'?"),
    (
        "fedbn",
        "personal_part = '*batch*'",
        "unknown part '*batch*', a pattern that no layer matches. Known: body, dense",
    ),
    ("flow", "routed = 'dense_11'", "routed names no layer with 'dense_11'. Did you mean 'dense_1'?"),
    ("flow", "routed = 'conv_*'", "routed names no layer with 'conv_*'. Known: dense_0, dense_1, norm_0."),
]


@pytest.mark.parametrize(("method", "setting", "sentence"), LAYER_CASES)
def test_a_split_or_a_route_that_names_no_layer(idiolect, here, method, setting, sentence):
    write(here, IMAGES, method=method, **images())
    assert_refused(idiolect("run", "bad.toml", "--out", "out", "--set", f"methods.{method}.{setting}"), sentence)
    assert not (here / "out").exists()


def test_a_method_that_cannot_carry_running_moments(idiolect, here):
    write(here, ("mlp", "{ normalize = 'batch' }"), method="scaffold", **images())
    sentence = "[methods.scaffold] scaffold cannot minimise global_model: its model keeps running statistics (batch"
    assert_refused(idiolect("run", "bad.toml", "--out", "out"), sentence)
    for model, others in (("mlp", "'none' or 'layer'"), ("cnn", "'none'"), ("resnet18", "'group'")):
        sentence = f"another of those that docs/networks.md names, or set normalize to {others}."
        assert_refused(idiolect("run", "bad.toml", "--out", "out", "--set", f"model.name = '{model}'"), sentence)
    sets = ("--set", "model.settings.normalize = 'bacth'")
    sentence = "model.settings.normalize must be one of 'none', 'layer', 'batch', got 'bacth'. Did you mean 'batch'?"
    assert_refused(idiolect("run", "bad.toml", "--out", "out", *sets), sentence)


OWN = """
import dataclasses
from idiolect.models import MLP

def make(input_shape, outputs, width=4):
    return MLP(input_shape[0] * input_shape[1], outputs, (width,), normalize="batch")

def number(input_shape, outputs):
    return 3

def wide(input_shape, outputs):
    return MLP(input_shape[0] * input_shape[1], outputs + 3, (4,))

def lost(input_shape, outputs):
    raise KeyError("size")

def leaving(input_shape, outputs):
    raise SystemExit(0)

def narrow(input_shape, outputs):
    return MLP(2, outputs, (4,))
"""
OWN_CASES = [
    (
        "own_net:make",
        "{ widht = 3 }",
        "'own_net:make' must take an input shape, a number of outputs and [model.settings]",
    ),
    (
        "own_net:nothing",
        "{}",
        "A model's path must be 'package.module:function', got 'own_net:nothing': own_net has no 'nothing'.",
    ),
    ("no_net:make", "{}", "(No module named 'no_net'); install its package, or name its folder with --plugins DIR."),
    ("own_net:wide", "{}", "'own_net:wide' must give 3 outputs for each, got an answer of shape (1, 6) to one row."),
    ("own_net:lost", "{}", "'own_net:lost' made no model (KeyError: 'size'); fix that function."),
    ("own_net:leaving", "{}", "'own_net:leaving' made no model (SystemExit: 0); fix that function."),
    ("own_net:narrow", "{}", "MLP does not take inputs of shape"),
    ("broken_net:make", "{}", "(SyntaxError: "),
    ("own_net:number", "{}", "'own_net:number' must give an idiolect.models.Model, got int; wrap a module with"),
]


@pytest.mark.parametrize(("name", "settings", "sentence"), OWN_CASES)
def test_a_path_that_leads_to_no_model(idiolect, here, name, settings, sentence):
    (here / "own_net.py").write_text(OWN)
    (here / "broken_net.py").write_text("def make(:")
    write(here, (name, settings), **images())
    assert_refused(idiolect("run", "bad.toml", "--out", "out", "--plugins", "."), sentence)
    assert not (here / "out").exists()


def test_a_setting_of_another_model_is_refused(idiolect, here):
    write(here, ("cnn", "{}"), **images())
    sentence = (
        "model.hidden is a setting of mlp, got [8] with 'cnn'; what 'cnn' can be told goes into [model.settings]."
    )
    assert_refused(idiolect("run", "bad.toml", "--out", "out", "--set", "model.hidden = [8]"), sentence)


def test_a_setting_that_stands_in_the_file_says_so(idiolect, here):
    write(here, ("cnn", "{ filters = [2, 3] }"), **images())
    other = "model = { name = 'character_lstm', settings = {} }"
    sentence = (
        "[model.settings] character_lstm has no setting 'filters', which is one of cnn, resnet18; leave it out, in "
        "the spec file if it stands there: --set adds to the file's tables and takes nothing out of them."
    )
    vocabulary = "data.settings.vocabulary = 5"
    np.savez(here / "rows.npz", **texts())
    assert_refused(idiolect("run", "bad.toml", "--out", "out", "--set", other, "--set", vocabulary), sentence)


def test_a_model_of_ones_own_trains_from_a_spec_also_on_a_client_of_one_row(idiolect, here):
    """What Flow does with such a client is in truth/test_flow.py: its row is left to the shared layers."""
    (here / "own_net.py").write_text(OWN)
    write(here, ("own_net:make", "{ width = 3 }"), method="fedbn", **images(9))  # clients of 4, 4 and 1 rows
    answer = idiolect("run", "bad.toml", "--out", "out", "--plugins", here)
    assert answer.code == 0, answer.err
    assert "1 client has a single row: it trains" in " ".join((answer.err + answer.out).split())
    assert (here / "out" / "done").exists()
