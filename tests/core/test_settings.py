# SPDX-License-Identifier: Apache-2.0
"""Settings, their sentences, tallies and arithmetic on trees."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from idiolect.core import PerClient, RequestError, setting, tree
from idiolect.core.addressing import address, axes
from idiolect.core.checks import nearest
from idiolect.core.settings import Settings, check_settings, settings
from idiolect.core.tally import NOTHING, Tally


@settings
class Inner(Settings):
    weight: float = setting(0.5, at_least=0, at_most=1, way_out="Use 0 for one model, 1 for local models.")


@settings
class Outer(Settings):
    inner: Inner = dataclasses.field(default_factory=Inner)
    step_size: float | PerClient = setting(0.1, above=0, way_out="Try 0.1.")
    decay: float | None = setting(None, at_least=0, below=1)
    local_steps: int = setting(1, at_least=1)
    kind: str = setting("equal", choices=("equal", "samples"))


@settings
class Twin(Settings):
    weight: float = 0.5


def test_classes_whose_fields_agree_are_different_trees():
    # a compiled program is found by its arguments' trees
    assert jax.tree.structure(Inner()) == jax.tree.structure(Inner(weight=0.1))
    assert jax.tree.structure(Inner()) != jax.tree.structure(Twin())
    assert jax.tree.structure(Outer()) != jax.tree.structure(Outer(inner=Twin()))


# rule, value and way out stand in every sentence
SENTENCES = [
    (Outer(step_size=0.0), "Outer.step_size must be above 0, got 0. Try 0.1."),
    (Outer(step_size=float("nan")), "Outer.step_size must be above 0, got nan. Try 0.1."),
    (Outer(decay=1.0), "Outer.decay must be at least 0 and below 1, got 1."),
    (Outer(local_steps=0), "Outer.local_steps must be at least 1, got 0."),
    (Outer(kind="rows"), "Outer.kind must be one of 'equal', 'samples', got 'rows'."),
    (
        Outer(inner=Inner(weight=1.5)),
        "Inner.weight must be at least 0 and at most 1, got 1.5. Use 0 for one model, 1 for local models.",
    ),
    (
        Outer(step_size=PerClient(np.asarray([0.1, -0.2]))),
        "Outer.step_size must be above 0, got [0.1, -0.2]. Try 0.1.",
    ),
]


@pytest.mark.parametrize(("wrong", "sentence"), SENTENCES)
def test_a_wrong_value_earns_rule_value_and_way_out(wrong, sentence):
    with pytest.raises(RequestError) as refused:
        check_settings(wrong)
    assert str(refused.value) == sentence


def test_right_values_pass():
    check_settings(Outer(step_size=PerClient(np.asarray([0.1, 0.2])), decay=0.0, kind="samples"))


def test_floats_are_leaves_and_integers_are_structure():
    assert jax.tree.leaves(Outer(decay=0.25)) == [0.5, 0.1, 0.25]
    assert jax.tree.structure(Outer(step_size=0.3)) == jax.tree.structure(Outer())
    assert jax.tree.structure(Outer(local_steps=2)) != jax.tree.structure(Outer())
    assert jax.tree.structure(Outer(kind="samples")) != jax.tree.structure(Outer())
    with pytest.raises(dataclasses.FrozenInstanceError):
        Outer().step_size = 1.0


def test_the_nearest_name_is_offered():
    assert nearest("stepsize", ["step_size", "epochs"]) == " Did you mean 'step_size'?"
    assert nearest("zzz", ["b", "a"]) == " Known: a, b."


def test_client_i_sees_row_i_and_nothing_else():
    message = {"own": PerClient({"alpha": jnp.asarray([1.0, 2.0, 3.0])}), "all": jnp.asarray([7.0, 8.0])}
    one = address(message, 1)
    assert float(one["own"]["alpha"]) == 2.0
    assert one["all"] is message["all"]
    several = address(message, jnp.asarray([2, 0], jnp.int32))
    assert several["own"]["alpha"].tolist() == [3.0, 1.0]
    assert axes(message) == {"own": {"alpha": 0}, "all": None}
    seen = jax.vmap(lambda m: m["own"]["alpha"] + m["all"].sum(), in_axes=(axes(message),))(several)
    assert seen.tolist() == [18.0, 16.0]


def test_tallies_add_and_scale():
    cost = Tally(shared=3, samples=3).plus(Tally(both=2, samples=2))
    assert cost == Tally(shared=3, both=2, samples=5)
    assert cost.times(4) == Tally(shared=12, both=8, samples=20)
    assert NOTHING.plus(cost) == cost
    counters = cost.counters()
    assert {counter.dtype for counter in counters} == {jnp.dtype("int32")}
    stacked = jax.tree.map(lambda count: jnp.stack([count, count]), counters)
    assert [int(count) for count in stacked.total()] == [6, 0, 4, 0, 10, 0, 0, 0]


def test_tree_arithmetic():
    left, right = (
        {"a": jnp.asarray([1.0, 2.0]), "b": jnp.asarray(3.0)},
        {"a": jnp.asarray([4.0, 5.0]), "b": jnp.asarray(6.0)},
    )
    assert tree.descend(left, 0.5, right)["a"].tolist() == [-1.0, -0.5]
    assert tree.add(left, right)["a"].tolist() == [5.0, 7.0]
    assert tree.subtract(right, left)["a"].tolist() == [3.0, 3.0]
    assert tree.scale(2.0, left)["a"].tolist() == [2.0, 4.0]
    assert float(tree.inner(left, right)) == 4 + 10 + 18
    assert float(tree.squared_norm(left)) == 1 + 4 + 9
    assert tree.choose(jnp.asarray(True), left, right)["a"].tolist() == [1.0, 2.0]
    rows = tree.choose_rows(jnp.asarray([True, False]), {"m": jnp.ones((2, 2))}, {"m": jnp.zeros((2, 2))})
    assert rows["m"].tolist() == [[1.0, 1.0], [0.0, 0.0]]


def test_inner_products_keep_the_precision_of_the_parameters():
    with jax.enable_x64(True):
        half = {"a": jnp.ones(2, jnp.float32)}
        assert tree.inner(half, half).dtype == jnp.float32
        assert tree.inner({"a": jnp.ones(2)}, {"a": jnp.ones(2)}).dtype == jnp.float64
