# SPDX-License-Identifier: Apache-2.0
"""Slips in Python: one sentence with the way out, never an error of ours."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import idiolect as il
from idiolect.api.sentences import warn, with_arguments
from idiolect.record.words import option


@pytest.fixture(scope="module")
def table():
    draw = np.random.default_rng(0)
    rows = {"site": np.repeat(["a", "b"], 20), "age": draw.normal(size=40), "y": draw.normal(size=40)}
    return il.read_table(rows, client="site", target="y")


@pytest.mark.parametrize("rows", ["clinics.csv", {"site": ["a"], "y": [1.0]}])
def test_rows_that_were_not_read_are_sent_to_read_table(rows):
    for call in (il.compare, il.advise, lambda one: il.train("fedavg", one), lambda one: il.sweep("ditto", one)):
        with pytest.raises(il.RequestError, match="read_table"):
            call(rows)


OPTIONS = [
    ({"rounds": "ten"}, "rounds must be a whole number, got 'ten'; give one, or leave it out"),
    ({"rounds": 2.5}, "rounds must be a whole number"),
    ({"rounds": True}, "rounds must be a whole number"),
    ({"l2": "much"}, "l2 must be a number"),
    ({"score": 3}, "score must be a text, got 3"),
    ({"refit": "yes"}, "refit must be True or False"),
    ({"step_sizes": ["a"]}, "step_sizes must be a list of numbers, got 'a' in it"),
    ({"step_sizes": 0.3}, "step_sizes must be a list of numbers, got 0.3"),
    ({"seeds": 3}, "seeds must be a list of whole numbers, got 3"),
    ({"seeds": "two"}, "seeds must be a list of whole numbers, got 'two'"),
    ({"seeds": (seed for seed in [1, 2])}, "seeds must be a list of whole numbers, got an object of type generator"),
    ({"seeds": range(10**9)}, "seeds must have at most 10000 entries"),
    ({"out": 3}, "out must be a path, got 3"),
    ({"out": "a\0b"}, "out must be a path"),
    ({"out": ""}, "out must be a path"),
    ({"l2": 10**400}, "l2 must be a number, got an object of type int"),
    ({"spec": 3}, "spec must be settings by name"),
    ({"spec": {1: 2}}, "spec must be settings by name"),
    ({"spec": {"training.rounds": object()}}, "spec must be settings by name"),
    ({"progress": 3}, "progress must be a function"),
]


@pytest.mark.parametrize(("given", "words"), OPTIONS)
def test_options_are_what_their_annotations_say(table, given, words):
    for call in (il.compare, lambda one, **more: il.train("ditto", one, **more)):
        with pytest.raises(il.RequestError, match=words):
            call(table, **given)
    with pytest.raises(il.RequestError, match=words):
        il.sweep("ditto", table, penalty=[0.1, 1.0], **given)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda table: il.compare(table, [3]), "methods must be a text or a list of texts, got 3 in it"),
        (lambda table: il.compare(table, [None]), "methods must be a text or a list of texts, got None in it"),
        (lambda table: il.compare(table, {"fedavg": 3}), "methods must be a text or a list of texts"),
        (lambda table: il.compare(table, splits="a"), "splits must be a whole number, got 'a'"),
        (lambda table: il.compare(table, splits=1.5), "splits must be a whole number, got 1.5"),
        (lambda table: il.train(3, table), "method must be a text, got 3"),
        (lambda table: il.train(["fedavg"], table), "method must be a text"),
        (lambda table: il.train(table, "fedavg"), r"got an object of type Table; write train\(method, table\)"),
        (lambda table: il.train("fedavg", table, tune="x"), "tune must be True or False, got 'x'"),
        (lambda table: il.train("ditto", table, penalty=object()), "penalty must be a number"),
        (lambda table: il.sweep("ditto", table, penalty=range(10**9)), "penalty must be a number"),
        (lambda table: il.advise(table, out=3), "out must be a path"),
        (lambda table: il.advise(table, seeds=["a"]), "seeds must be a list of whole numbers"),
        (lambda table: il.pack(table, 3), "folder must be a path"),
        (lambda table: il.load(3), "path must be a path, got 3"),
        (lambda table: il.explain(3), "name must be a text, got 3"),
        (lambda table: il.explain("ditto", penalty=object()), "penalty must be a number"),
        (lambda table: il.data_set(3), "name must be a text, got 3"),
    ],
)
def test_arguments_are_what_their_annotations_say(table, call, words):
    with pytest.raises(il.RequestError, match=words):
        call(table)


def test_numbers_of_numpy_are_numbers(table):
    size = np.array([0.1])
    run = il.train("ditto", table, rounds=np.int64(2), seeds=np.array([1]), spec={"training.record_every": np.int64(1)})
    assert run.history["round"].max() == 2
    assert il.train("fedavg", table, rounds=1, step_size=size[0], score=None).settings["step_size"] == 0.1
    with pytest.raises(il.RequestError, match="path must be a path, got 3"):
        run.save(3)


def test_a_sweep_needs_values(table):
    with pytest.raises(il.RequestError, match="at least one value"):
        il.sweep("ditto", table, penalty=[], rounds=2)


def test_settings_that_tables_get_are_said(table):
    run = il.train("ditto", table, rounds=1)
    assert any("bias_penalty = 0.1" in note for note in run.notes)
    assert not any("bias_penalty" in note for note in il.train("ditto", table, rounds=1, bias_penalty=1.0).notes)


def test_a_folder_is_not_a_table(tmp_path):
    (tmp_path / "clinics.csv").write_text("site,y\n")
    with pytest.raises(il.RequestError, match=r"is a folder.*clinics\.csv"):
        il.read_table(tmp_path, client="site", target="y")


def test_a_column_has_one_role():
    rows = {"site": ["a", "b"], "age": [1.0, 2.0], "y": [1.0, 0.0]}
    with pytest.raises(il.RequestError, match="must be two columns, got 'site' for both"):
        il.read_table(rows, client="site", target="site")
    with pytest.raises(il.RequestError, match="'age' is also the group"):
        il.read_table(rows, client="site", target="y", group="age", weight="age")


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        ("use --model personal.", "use model='personal'."),
        ("--model must be one of", "model= must be one of"),
        ("train again with --set \"output.models = 'all'\"", "train again with spec={\"output.models\": 'all'}"),
        ("in a spec, or by --set) a", "in a spec, or by spec=) a"),
        ("--drop age leaves it out", "drop=['age'] leaves it out"),
        ("--time day splits", "time='day' splits"),
        ("or --drop fewer.", "or drop= fewer."),
        (f"{option('--time', 'admission date')} splits", "time='admission date' splits"),
        (f"{option('--drop', 'a, b')} leaves", "drop=['a, b'] leaves"),
        (option("--drop", 'the "one"') + " leaves", "drop=['the \"one\"'] leaves"),
        (option("--split-column", "it's a part") + ", or", 'split_column="it\'s a part", or'),
        (f"{option('--drop', 'x%')}.", "drop=['x%']."),
        ("with --set 'data.preparation = \"local\"', or", 'with spec={"data.preparation": "local"}, or'),
        ("`idiolect run x --resume` goes on", "`idiolect run x --resume` goes on"),
    ],
)
def test_sentences_name_arguments(sentence, words):
    assert with_arguments(sentence) == words


def test_warnings_point_at_the_line_of_the_caller(table):
    with pytest.warns(UserWarning, match="careful") as caught:
        warn("Warning: careful")
    run = il.train("ditto", table, rounds=1)
    with pytest.warns(UserWarning, match="new") as also:
        run.predict({"age": [1.0]}, client="new")
    assert {one.filename for one in (*caught, *also)} == {__file__}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn("only a remark")
