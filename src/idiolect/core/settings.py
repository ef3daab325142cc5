# SPDX-License-Identifier: Apache-2.0
"""Settings: frozen dataclasses that are pytrees. Floats are leaves, what shapes the program is static."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax.typing import DTypeLike

from idiolect.core.addressing import PerClient, is_per_client
from idiolect.core.checks import check, setting
from idiolect.core.tree import Tree

Class = TypeVar("Class", bound=type)
Owner = TypeVar("Owner", bound=Any)  # an instance of a class with settings
Values = tuple[object, ...]


class Settings:
    """Marks a class whose instances may themselves be a field of other settings."""


@typing.dataclass_transform(
    frozen_default=True, kw_only_default=True, eq_default=False, field_specifiers=(dataclasses.field, setting)
)
def settings(cls: Class) -> Class:
    """Make `cls` a frozen dataclass and a pytree.

    A field annotated with `float`, `PerClient`, a `Settings` class or a NamedTuple of arrays (`Neighbours`) is a leaf
    or a subtree: it can be swept, traced and replaced without compiling again. Every other field (integers, names,
    models) is static: it shapes the program.
    """
    dataclasses.dataclass(frozen=True, kw_only=True, eq=False)(cls)
    hints = typing.get_type_hints(cls)
    names = [field.name for field in dataclasses.fields(cls)]
    leaves = [name for name in names if _is_leaf(hints[name])]
    static = [name for name in names if name not in leaves]
    register(cls, leaves, static)
    return cls


def register(cls: type, leaves: Sequence[str], static: Sequence[str]) -> None:
    """Make the class a pytree of its own kind, with these fields as leaves and those as structure."""
    # register_dataclass of JAX 0.10 compares fields only: a program compiled for one class is found for another, too

    def flatten(settings: object) -> tuple[Values, Values]:
        return tuple([getattr(settings, name) for name in leaves]), tuple([getattr(settings, name) for name in static])

    def flatten_with_keys(settings: object) -> tuple[tuple[tuple[object, object], ...], Values]:
        children, rest = flatten(settings)
        return tuple(zip(map(jax.tree_util.GetAttrKey, leaves), children)), rest

    def unflatten(rest: Values, children: Iterable[object]) -> object:
        return cls(**dict(zip(leaves, children)), **dict(zip(static, rest)))

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)


def _is_leaf(hint: object) -> bool:
    kinds = [kind for kind in typing.get_args(hint) or (hint,) if isinstance(kind, type)]
    return any(issubclass(kind, float | PerClient | Settings) or _is_arrays(kind) for kind in kinds)


def _is_arrays(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def array_fields(cls: type) -> tuple[str, ...]:
    """Fields of `cls` that hold a NamedTuple of arrays: no file can."""
    hints = typing.get_type_hints(cls)
    return tuple(name for name, hint in hints.items() if any(map(_is_arrays, typing.get_args(hint) or (hint,))))


def in_precision(owner: Owner, dtype: DTypeLike) -> Owner:
    """`owner` on the device: floats and what is given client by client as `dtype`, other whole numbers as int32."""

    def cast(node: Tree) -> Tree:
        whole = not is_per_client(node) and np.asarray(node).dtype.kind in "iu" and np.ndim(node) > 0
        return jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf, np.int32 if whole else dtype)), node)

    moved: Owner = jax.tree.map(cast, owner, is_leaf=is_per_client)
    return moved


def check_settings(owner: Any, place: str = "", only: Collection[str] | None = None) -> None:
    """Check the declared ranges of `owner` and of the settings inside it; raises RequestError on the first miss.

    `place` is what a sentence calls the owner (default: its class). `only` names the fields to check of an owner that
    was made of a checked one. Settings are frozen: what has passed is not checked again.
    """
    if vars(owner).get(_PASSED):
        return
    for field in dataclasses.fields(owner):
        value = getattr(owner, field.name)
        if isinstance(value, Settings):
            check_settings(value, place, only)
        elif "range" in field.metadata and (only is None or field.name in only) and not _is_arrays(type(value)):
            entries = value.values if isinstance(value, PerClient) else value
            check(place or type(owner).__name__, field.name, entries, field.metadata["range"])
    object.__setattr__(owner, _PASSED, True)  # no field: a copy with other values does not have it


_PASSED = "_passed_its_checks"


def know_population(owner: Owner, clients: int, participation: float = 1.0) -> Owner:
    """`owner`, and the settings inside it, told how many clients there are and how likely each is in a round."""
    facts = {"clients": clients, "participation": participation}
    names = {field.name for field in dataclasses.fields(owner)}
    inner = {
        name: know_population(value, clients, participation)
        for name in names
        if isinstance(value := getattr(owner, name), Settings)
    }
    return dataclasses.replace(owner, **inner, **{name: fact for name, fact in facts.items() if name in names})
