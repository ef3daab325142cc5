# SPDX-License-Identifier: Apache-2.0
"""Bytes read off types."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from idiolect.accounting import bytes_of, model_units, wire
from idiolect.core.addressing import PerClient
from idiolect.core.checks import RequestError


class Broadcast(NamedTuple):
    shared: Any
    control: Any
    coin: Any


class Upload(NamedTuple):
    drift: Any
    weight: Any


class PersonalUpload(NamedTuple):
    personal: Any
    weight: Any


MODEL = {"weight": jnp.zeros((10, 4)), "bias": jnp.zeros(4)}


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (MODEL, 4 * (40 + 4)),
        (jnp.zeros((3, 5), jnp.bfloat16), 2 * 15),
        (np.zeros(7, np.float64), 8 * 7),
        (jnp.zeros(9, bool), 9),
        ((), 0),
        (jnp.zeros((0, 3)), 0),
        ({"step_size": 0.1, "local_steps": 3, "coin": True}, 4 + 4 + 1),  # 32-bit numbers, one-byte truth
        (PerClient(jnp.zeros((100, 6))), 4 * 6),
        (PerClient(jnp.zeros(100)), 4),
        (PerClient({"a": jnp.zeros((100, 2)), "b": jnp.zeros((100, 3, 2), jnp.int8)}), 4 * 2 + 6),
        (Broadcast(MODEL, PerClient(jnp.zeros((8, 44))), jnp.int32(1)), 176 + 176 + 4),
    ],
)
def test_bytes(tree, expected):
    assert bytes_of(tree) == expected
    assert isinstance(bytes_of(tree), int)


def test_shapes_alone_are_enough():
    def produce(key):
        return Broadcast(jax.random.normal(key, (10**6, 10**4)), PerClient(jnp.zeros((10**7, 3))), True)

    shapes = jax.eval_shape(produce, jax.random.key(0))
    assert bytes_of(shapes) == 4 * 10**10 + 12 + 1  # past 32 bits, and nothing of it was ever computed
    seen = []
    jax.jit(lambda tree: seen.append(bytes_of(tree)))(MODEL)
    assert seen == [176]


def test_keys_are_never_sent():
    with pytest.raises(RequestError, match=r"never sent.*shared\.seed"):
        bytes_of(Broadcast({"seed": jax.random.key(0)}, (), ()))
    with pytest.raises(RequestError, match="str at coin"):
        bytes_of(Broadcast((), (), "yes"))
    with pytest.raises(RequestError, match="client axis"):
        bytes_of(PerClient(jnp.float32(1)))


def test_model_units_ignore_scalars():
    assert model_units(Broadcast(MODEL, MODEL, 1), MODEL) == 2
    # a split of one network: shared part + personal part = 1 u
    shared, personal = {"weight": MODEL["weight"]}, {"bias": MODEL["bias"]}
    assert model_units(shared, MODEL) + model_units(personal, MODEL) == 1
    # an addressed scalar (alpha_i) is a scalar to its client; half precision is half a unit
    assert model_units(PerClient(jnp.zeros(50)), MODEL) == 0
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), MODEL)
    assert model_units(half, MODEL) == 0.5
    with pytest.raises(RequestError, match="not a scalar"):
        model_units(MODEL, jnp.float32(0))


def test_wire_table():
    table = wire(Broadcast(MODEL, PerClient(jnp.zeros((8, 5))), True), Upload(MODEL, jnp.float32(1)))
    assert [leaf.path for leaf in table.down] == ["shared.bias", "shared.weight", "control", "coin"]
    assert [leaf.shape for leaf in table.down] == [(4,), (10, 4), (5,), ()]
    assert [leaf.addressed for leaf in table.down] == [False, False, True, False]
    assert [leaf.dtype for leaf in table.up] == ["float32"] * 3
    assert (table.download_bytes, table.upload_bytes) == (16 + 160 + 20 + 1, 16 + 160 + 4)
    assert table.warnings == ()
    assert json.loads(json.dumps(table.to_dict()))["up"][1]["shape"] == [10, 4]


def test_personal_parameters_that_leave_are_reported():
    (warning,) = wire((), PersonalUpload(MODEL, 1.0)).warnings
    assert "personal.bias, personal.weight" in warning
    assert "176 bytes" in warning
    # an empty personal field sends nothing
    assert wire((), PersonalUpload((), 1.0)).warnings == ()
    # what comes down is the server's own
    assert wire(PersonalUpload(MODEL, 1.0), ()).warnings == ()
