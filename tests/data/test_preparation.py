# SPDX-License-Identifier: Apache-2.0
"""Preparation: what clients send gives the statistics of all rows, and what stays at home stays at home."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idiolect.core.checks import RequestError
from idiolect.data.federation import Federation
from idiolect.data.preparation import add_numbers, add_texts, sentences, summarise_numbers, summarise_texts
from idiolect.data.preprocessing import Preprocessing
from idiolect.data.split import Split

CLIENTS, ROWS = 4, 15
PARTS = ["train"] * 9 + ["validation"] * 3 + ["test"] * 3


def clinics(seed=0, target="number"):
    draw = np.random.default_rng(seed)
    number = CLIENTS * ROWS
    age = draw.normal(50, 9, number)
    age[::7] = np.nan
    table = {
        "clinic": [f"c{row // ROWS}" for row in range(number)],
        "part": PARTS * CLIENTS,
        "age": age,
        "smokes": draw.integers(0, 2, number).astype(float),
        "ward": draw.choice(["east", "west", "north"], number),
        "days": 3 + 0.1 * np.nan_to_num(age) + draw.normal(size=number),
    }
    if target == "class":
        table["days"] = np.where(table["days"] > 7.5, "long", "short")
    return table


def load(table, **options):
    return Federation.from_table(table, client="clinic", target="days", split=Split(split_column="part"), **options)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.one_of(st.none(), st.floats(-1e3, 1e3, width=32), st.sampled_from([0.0, 1.0]))),
        min_size=1,
        max_size=40,
    )
)
def test_sums_over_clients_are_those_of_all_rows(rows):
    owner = np.array([client for client, _ in rows])
    values = np.array([np.nan if value is None else value for _, value in rows])
    together = add_numbers(summarise_numbers(values, owner, 4))
    there = values[~np.isnan(values)]
    assert together.present[0] == there.size
    assert together.missing[0] == np.isnan(values).sum()
    if there.size:
        assert together.mean[0] == pytest.approx(there.mean(), abs=1e-9)
        assert together.squares[0] == pytest.approx(((there - there.mean()) ** 2).sum(), rel=1e-9, abs=1e-6)
        assert (together.lowest[0], together.highest[0]) == (there.min(), there.max())
        assert together.others[0] == int(len(np.unique(there)) > 2)


def test_texts_of_clients_are_those_of_all_rows():
    each = summarise_texts(["b", "a", None, "b"], np.array([0, 1, 1, 2]), 4)
    assert each.levels == (("b",), ("a",), ("b",), ())
    together = add_texts(each)
    assert together.levels == (("a", "b"),)
    assert together.missing.tolist() == [1]
    np.testing.assert_array_equal(each.wire_bytes, [10, 10, 10, 8])  # a text and its end, and a count


def test_federated_preparation_scales_by_all_training_rows_and_says_what_was_sent():
    table = clinics()
    federation = load(table)
    training = np.array(table["part"]) == "train"
    ages = table["age"][training & ~np.isnan(table["age"])]
    age = next(column for column in federation.preprocessing.columns if column.name == "age")
    assert (age.fill, age.centre, age.scale) == pytest.approx((ages.mean(), ages.mean(), ages.std()))
    sent = {part.column: part for part in federation.preparation.sent}
    assert set(sent) == {"age", "smokes", "ward", "days"}
    np.testing.assert_array_equal(sent["age"].upload_bytes, [56] * CLIENTS)
    total = sum(int(part.upload_bytes.sum()) + CLIENTS * part.download_bytes for part in sent.values())
    assert federation.preparation.total_bytes == total
    (said,) = sentences(federation.preparation, federation.names)
    assert "9 training rows" in said


@pytest.mark.parametrize("target", ["number", "class"])
def test_local_preparation_of_a_client_uses_its_own_rows_only(target):
    table, changed = clinics(target=target), clinics(target=target)
    others = np.array(table["clinic"]) == "c3"
    changed["age"] = np.where(others, 1000 + 50 * np.nan_to_num(table["age"]), table["age"])
    changed["smokes"] = np.where(others, 7.0, table["smokes"])
    first, second = (load(one, preparation="local") for one in (table, changed))
    for client in range(3):
        np.testing.assert_array_equal(first.train.of(client)[0], second.train.of(client)[0])
        np.testing.assert_array_equal(first.train.of(client)[1], second.train.of(client)[1])
    together, moved = load(table), load(changed)
    assert not np.allclose(together.train.of(0)[0], moved.train.of(0)[0])  # what the other ways do
    own = first.train.of(0)[0][:, 0]
    assert own.mean() == pytest.approx(0, abs=1e-6)
    assert {part.column for part in first.preparation.sent} >= {"ward"}
    assert first.preparation.total_bytes < together.preparation.total_bytes


def test_a_recipe_by_client_comes_back_and_refuses_a_new_client():
    federation = load(clinics(), preparation="local")
    recipe = Preprocessing.from_json(federation.preprocessing.to_json())
    assert recipe == federation.preprocessing
    rows = {"clinic": ["c2", "c1"], "age": [50.0, 50.0], "smokes": [0.0, 0.0], "ward": ["east", "east"]}
    inputs = recipe.apply(rows)
    assert inputs[0, 0] != inputs[1, 0]
    with pytest.raises(RequestError, match="'c9' is new"):
        recipe.apply(rows | {"clinic": ["c2", "c9"]})
    with pytest.raises(RequestError, match="A row has no client"):
        recipe.apply(rows | {"clinic": ["c2", None]})
    assert recipe.doubts(rows) == []  # no range of all clients was kept


def test_a_given_recipe_is_used_as_it_is_and_nothing_is_sent():
    recipe = load(clinics()).preprocessing
    other = load(clinics(seed=1), preparation="given", recipe=recipe)
    assert other.preprocessing.columns == recipe.columns
    assert other.preparation.total_bytes == 0
    assert sentences(other.preparation) == ["Preparation: nothing was sent."]
    with pytest.raises(RequestError, match="the recipe of the same target"):
        Federation.from_table(clinics(), client="clinic", target="age", preparation="given", recipe=recipe)
    without = {name: column for name, column in clinics().items() if name != "smokes"}
    with pytest.raises(RequestError, match="smokes"):
        load(without, preparation="given", recipe=recipe)


@pytest.mark.parametrize(("way", "recipe"), [("central", None), ("given", None)])
def test_a_way_is_known_and_has_what_it_needs(way, recipe):
    with pytest.raises(RequestError, match="federated, local, given"):
        load(clinics(), preparation=way, recipe=recipe)
