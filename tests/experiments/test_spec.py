# SPDX-License-Identifier: Apache-2.0
"""Specs: what is written is read back the same, overrides reach what they name, types are strict."""

from __future__ import annotations

import dataclasses
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idiolect.algorithms import ALGORITHMS
from idiolect.core.checks import RequestError
from idiolect.experiments.spec import from_table, load, override, resumed, setting_names, to_table, to_toml
from idiolect.experiments.strict import coerce
from idiolect.experiments.sweeping import expand, parse_over
from idiolect.visible import one_line

text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)  # no lone surrogates in UTF-8
label = text.map(one_line).filter(str.strip)  # labels are printable
small = st.integers(0, 1000)
positive = st.floats(1e-6, 1e6)


def table_of(required, optional):
    return st.fixed_dictionaries(required, optional=optional)


stepping = sorted(name for name in ALGORITHMS if "step_size" in setting_names(name))
method = table_of(
    {"name": st.sampled_from(stepping)},
    {"step_size": positive | st.just("theory"), "objective": st.sampled_from(["additive", "global_model"])},
)
spec_table = table_of(
    {"methods": st.dictionaries(label, method, min_size=1, max_size=4)},
    {
        "name": st.from_regex(r"[A-Za-z0-9 _-]*[A-Za-z0-9]", fullmatch=True),
        "seeds": st.lists(small, min_size=1, max_size=4, unique=True),
        "defaults": table_of({}, {"step_size": positive, "batch_size": small, "epochs": small}),
        "data": table_of(
            {},
            {
                "source": text,
                "path": text,
                "features": st.lists(text),
                "held_out": small | st.floats(0, 0.5),
                "train": st.floats(0.1, 0.5),
                "settings": st.dictionaries(text, small | text | st.booleans() | st.lists(small), max_size=3),
            },
        ),
        "model": table_of(
            {}, {"name": st.sampled_from(["linear", "mlp"]), "hidden": st.lists(st.integers(1, 99)), "l2": positive}
        ),
        "training": table_of({}, {"rounds": small, "cohort": small, "dropout": st.floats(0, 0.9), "block": small}),
        "evaluation": table_of({}, {"scores": st.lists(text)}),
        "tuning": table_of({}, {"step_size": st.lists(positive)}),
        "output": table_of({}, {"models": st.sampled_from(["none", "shared", "all"])}),
        "resolved": st.dictionaries(
            label,
            table_of(
                {"executor": text, "chunk": small, "block": small},
                {"step_size": positive, "chosen": st.dictionaries(label, positive, max_size=3)},
            ),
            max_size=2,
        ),
    },
)


@given(spec_table)
def test_a_spec_comes_back_from_its_table_and_its_file(table):
    spec = from_table(table)
    assert from_table(to_table(spec)) == spec
    assert from_table(tomllib.loads(to_toml(spec))) == spec
    assert resumed(spec, spec, "here") == spec


@given(spec_table, st.integers(1001, 2000))
def test_a_resumed_spec_must_be_the_same(table, rounds):
    spec = from_table(table)
    other = dataclasses.replace(spec, training=dataclasses.replace(spec.training, rounds=rounds))
    with pytest.raises(RequestError, match=f"training.rounds = {spec.training.rounds}, and this asks for {rounds}"):
        resumed(spec, other, "here")


def test_what_was_chosen_at_run_time_survives_resuming(small):
    stored = small.spec(resolved={"fedavg": {"executor": "chunked", "chunk": 2, "block": 1, "step_size": 0.3}})
    asked = small.spec(name="another title", output={"models": "none"})
    together = resumed(stored, asked, "here")
    assert together.resolved == stored.resolved
    assert together.output.models == "none"
    assert together.name == "small"


ALGORITHM = {"algorithm": {"name": "fedavg", "step_size": 0.1}}
METHODS = {"methods": {"mine": {"name": "fedavg"}}, "training": {"rounds": 3}}


@pytest.mark.parametrize(
    ("table", "text", "path", "value"),
    [
        (ALGORITHM, "algorithm.step_size = 0.2", ("algorithm", "step_size"), 0.2),
        (METHODS, "algorithm.step_size = 0.2", ("methods", "mine", "step_size"), 0.2),
        (METHODS, "methods.mine.step_size = 0.2", ("methods", "mine", "step_size"), 0.2),
        (METHODS, "methods.mine.step_size = 0.2", ("methods", "mine", "name"), "fedavg"),
        (METHODS, "training.cohort = 2", ("training", "rounds"), 3),
        (METHODS, "training = {rounds = 9}\nseed = 4", ("training", "rounds"), 9),
        (METHODS, "methods.'odd name' = {name = 'local'}", ("methods", "odd name", "name"), "local"),
        (METHODS, "data.path = 'ü \"x\".csv'", ("data", "path"), 'ü "x".csv'),
    ],
)
def test_an_override_changes_what_it_names_and_nothing_else(table, text, path, value):
    changed = override(table, [text])
    for key in path:
        changed = changed[key]
    assert changed == value
    assert table in (ALGORITHM, METHODS)  # the table that was given is left alone


def test_defaults_reach_the_methods_that_have_them():
    spec = from_table(
        {"methods": {"scaffold": {}, "fedavg": {"epochs": 3}}, "defaults": {"epochs": 2, "fine_tuning_steps": 5}}
    )
    assert spec.methods[0].settings == {"epochs": 2}  # SCAFFOLD has no fine-tuning
    assert spec.methods[1].settings == {"epochs": 3, "fine_tuning_steps": 5}


def test_a_file_names_its_run(tmp_path):
    (tmp_path / "trial.toml").write_text("[algorithm]\nname = 'local'\n")
    assert load(tmp_path / "trial.toml").name == "trial"
    assert load(tmp_path / "trial.toml", ["name = 'other'"]).name == "other"


@pytest.mark.parametrize(
    ("hint", "value", "kept"),
    [
        (float, 2, 2.0),
        (float | None, None, None),
        (list[float], [1, 0.5], [1.0, 0.5]),
        (int | float, 3, 3),
        (int | float, 0.3, 0.3),
        (bool, True, True),
        (dict[str, Any], {"a": 1}, {"a": 1}),
    ],
)
def test_values_of_the_type_pass(hint, value, kept):
    assert coerce(hint, value, "x") == kept
    assert type(coerce(hint, value, "x")) is type(kept)


@pytest.mark.parametrize(
    ("hint", "value", "sentence"),
    [
        (int, "1", "x must be a whole number, got '1'."),
        (int, True, "x must be a whole number, got True."),
        (int, 1.0, "x must be a whole number, got 1.0."),
        (float, "0.1", "x must be a number, got '0.1'."),
        (float, False, "x must be a number, got False."),
        (float, float("nan"), "x must be a finite number, got nan; write one such as 0.1."),
        (str, 1, "x must be a text in quotes, got 1."),
        (bool, 1, "x must be true or false, got 1."),
        (list[int], 1, "x must be a list of whole numbers, got 1."),
        (list[str], ["a", 1], "x must be a list of texts in quotes, got ['a', 1]."),
        (list[float], [float("inf")], "x must be a finite number, got inf; write one such as 0.1."),
        (int | float, "a", "x must be a number, got 'a'."),
        (str | None, 1, "x must be a text in quotes or left out, got 1."),
        (int, 2**31, "x must be below 2^31, got 2147483648; use a smaller number."),
        (dict[str, Any], 5, "x must be a table of settings, got 5."),
    ],
)
def test_values_of_another_type_are_refused(hint, value, sentence):
    with pytest.raises(RequestError) as caught:
        coerce(hint, value, "x")
    assert str(caught.value) == sentence


def test_a_sweep_is_every_combination_in_order(small):
    axes = parse_over(["step_size = [0.1, 0.25]", "batch_size = [2, 4]"])
    labels = [one.label for one in expand(small.spec(methods={"fedavg": {}}), axes).methods]
    assert labels == [
        "fedavg[step_size=0.1,batch_size=2]",
        "fedavg[step_size=0.1,batch_size=4]",
        "fedavg[step_size=0.25,batch_size=2]",
        "fedavg[step_size=0.25,batch_size=4]",
    ]


def test_close_values_of_a_sweep_keep_their_own_labels(small):
    spec = expand(small.spec(), {"step_size": [0.12345678, 0.12345679]})
    assert len({method.label for method in spec.methods}) == 4
    assert from_table(to_table(spec)) == spec


def test_a_sweep_has_a_limit(small):
    with pytest.raises(RequestError, match="A sweep of 1002 combinations is more than 1000; thin the lists out"):
        expand(small.spec(methods={"fedavg": {}}), {"batch_size": list(range(1002))})
