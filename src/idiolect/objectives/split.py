# SPDX-License-Identifier: Apache-2.0
"""Which parameters of a model are personal: parts by name, and the two blocks they make.

A part is `head` (the last top-level entry of the model's parameters: the last layer of a network, the bias of a
linear model), `body` (everything else), a dotted path or a leading piece of one (`dense_1`, `dense_1.bias`), a pattern
(`*.bias`), or a path with a slice of one axis (`dense_0.weights[10:]`, `weights[:, 10:]`). Commas separate several.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from idiolect.core import RequestError, nearest
from idiolect.core.types import Array, Params
from idiolect.models import Model

_PART = re.compile(r"(?P<path>[^\[\]]+)(?:\[(?P<before>(?:: *, *)*)(?P<start>(?:-?\d+)?):(?P<stop>(?:-?\d+)?)\])?")
_COMMA = re.compile(r",(?![^\[]*\])")  # between parts, not within a slice
ENDS = ("head", "body")
NORMALISATION = "*norm*"  # what fedbn keeps personal


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One array of the model; the runs that an axis of it is cut into go to the two blocks in turns."""

    path: tuple[str, ...]
    axis: int
    cuts: tuple[int, ...]  # where runs begin, but for the first; empty where the array goes undivided
    personal: bool  # where the first run goes

    @property
    def name(self) -> str:
        """The dotted path: its key in the blocks."""
        return ".".join(self.path)


@dataclasses.dataclass(frozen=True)
class Split:
    """A division of a model's parameters into a shared and a personal block, each {dotted path: array}."""

    parameters: tuple[Parameter, ...]

    def divide(self, params: Params) -> tuple[dict[str, Array], dict[str, Array]]:
        """The shared and the personal block of a model's own parameters."""
        blocks: tuple[dict[str, Array], dict[str, Array]] = ({}, {})
        for parameter in self.parameters:
            array = functools.reduce(lambda node, key: node[key], parameter.path, params)
            if not parameter.cuts:
                blocks[parameter.personal][parameter.name] = array
                continue
            runs = jnp.split(array, parameter.cuts, parameter.axis)
            for turn, personal in enumerate((parameter.personal, not parameter.personal)):
                blocks[personal][parameter.name] = jnp.concatenate(runs[turn::2], parameter.axis)
        return blocks

    def join(self, shared: dict[str, Array], personal: dict[str, Array]) -> Params:
        """The model's own parameters from the two blocks."""
        params: dict[str, Any] = {}
        for parameter in self.parameters:
            first, second = (personal, shared) if parameter.personal else (shared, personal)
            array = first[parameter.name]
            if parameter.cuts:
                array = _interleave(parameter, array, second[parameter.name])
            node: dict[str, Any] = functools.reduce(
                lambda node, key: node.setdefault(key, {}), parameter.path[:-1], params
            )
            node[parameter.path[-1]] = array
        return params


def _interleave(parameter: Parameter, *blocks: Array) -> Array:
    """The whole array from its part in the block that has the first run, and in the other."""
    size = sum(block.shape[parameter.axis] for block in blocks)
    lengths = np.diff([0, *parameter.cuts, size])
    runs = [jnp.split(block, np.cumsum(lengths[turn::2])[:-1], parameter.axis) for turn, block in enumerate(blocks)]
    return jnp.concatenate([runs[place % 2][place // 2] for place in range(len(lengths))], parameter.axis)


class _Owned(NamedTuple):
    """What of an array is personal: a mark per entry of one axis."""

    axis: int
    marks: np.ndarray


@functools.lru_cache(maxsize=256)
def split_of(model: Model, personal_part: str) -> Split:
    """The split that `personal_part` asks for; RequestError for a part the model does not have or an empty block."""
    shapes = parameter_shapes(model)
    # a mark per entry of one axis: a slice may make a part of an array personal
    owned = {path: _Owned(0, np.zeros(shape[0] if shape else 1, bool)) for path, shape in shapes.items()}
    for part in (piece.strip() for piece in _COMMA.split(personal_part)):
        _check_ends(part, type(model).__name__, shapes)
        _mark(part, shapes, owned)
    blocks = {"personal": any(marks.any() for _, marks in owned.values())}
    blocks["shared"] = any(not marks.all() for _, marks in owned.values())
    for block, filled in blocks.items():
        if not filled:
            raise RequestError(
                f"WS2.personal_part must leave both blocks something, got {personal_part!r}, which leaves the {block} "
                f"block empty. Name some of the model's parameters: {_listing(shapes)}, or a slice such as "
                f"{'.'.join(next(iter(shapes)))}[1:]."
            )
    return Split(
        tuple(
            Parameter(path, axis, tuple((np.flatnonzero(np.diff(marks)) + 1).tolist()), bool(marks[0]))
            for path, (axis, marks) in owned.items()
        )
    )


def parameter_shapes(model: Model) -> dict[tuple[str, ...], tuple[int, ...]]:
    """Path and shape of every array of the model, in the model's own order."""
    order: list[tuple[str, ...]] = []

    def start() -> dict[str, Array]:
        leaves = dict(_leaves(model.init(jax.random.key(0))))
        order.extend(leaves)  # taken here: JAX sorts the keys of what it returns
        return {".".join(path): leaf for path, leaf in leaves.items()}

    shapes = jax.eval_shape(start)
    return {path: shapes[".".join(path)].shape for path in order}


def _leaves(node: Params, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Array]]:
    if isinstance(node, dict):
        for key, inner in node.items():
            yield from _leaves(inner, (*path, str(key)))
    else:
        yield path, node


def _check_ends(part: str, model: str, shapes: dict[tuple[str, ...], tuple[int, ...]]) -> None:
    """RequestError for a head or a body where there is nothing beside it."""
    entries = {path[0] for path in shapes}
    if part not in ENDS or len(entries) > 1 or part in entries:
        return
    last = ".".join(list(shapes)[-1])
    raise RequestError(
        f"WS2.personal_part = {part!r} needs a model that has a body beside its head, got {model} with "
        f"{', '.join(entries)} alone; use a linear model with bias = true, a network of several layers such as mlp, or "
        f"name a piece such as {last if len(shapes) > 1 else f'{last}[1:]'}."
    )


def _mark(part: str, shapes: dict[tuple[str, ...], tuple[int, ...]], owned: dict[tuple[str, ...], _Owned]) -> None:
    """Mark the rows that `part` names as personal."""
    form = _PART.fullmatch(part)
    if form is None:
        raise RequestError(
            f"WS2.personal_part must be parts separated by commas, such as 'head', 'dense_1.bias' or 'weights[10:]', "
            f"got {part!r}. Known: {_listing(shapes)}."
        )
    sliced = form["start"] is not None
    chosen = _matches(form["path"], list(shapes), sliced=sliced)
    if not chosen:
        raise RequestError(_unknown(part, form["path"], shapes))
    for path in chosen:
        if not sliced:
            owned[path].marks[:] = True
            continue
        axis, stop = form["before"].count(","), form["stop"]
        rows = slice(int(form["start"] or 0), int(stop) if stop else None)
        owned[path] = _sliced(part, ".".join(path), shapes[path], owned[path], axis, rows)


def _sliced(part: str, name: str, shape: tuple[int, ...], found: _Owned, axis: int, rows: slice) -> _Owned:
    """What is personal of a parameter with some rows of an axis more."""
    if axis >= len(shape) or not np.empty(shape[axis])[rows].size:
        raise RequestError(
            f"WS2.personal_part must slice an axis within its length, got {part!r} for {name} of shape {shape}. Use a "
            "shorter slice, or name the whole parameter."
        )
    if found.marks.all():
        return found
    if axis != found.axis:
        if found.marks.any():
            raise RequestError(
                f"WS2.personal_part must slice one axis of a parameter, got {part!r} after another one of {name}. "
                "Leave one of them out."
            )
        found = _Owned(axis, np.zeros(shape[axis], bool))
    found.marks[rows] = True
    return found


def _unknown(part: str, name: str, shapes: dict[tuple[str, ...], tuple[int, ...]]) -> str:
    known = {".".join(path[:depth]) for path in shapes for depth in range(1, len(path) + 1)} | set(ENDS)
    pattern = ", a pattern that no layer matches" if set(name) & set("*?") else ""
    way_out = " Give the model normalisation, model.settings.normalize." if part == NORMALISATION else ""
    return f"WS2.personal_part has an unknown part {part!r}{pattern}.{nearest(name, known)}{way_out}"


def _matches(name: str, paths: list[tuple[str, ...]], sliced: bool) -> list[tuple[str, ...]]:
    """The parameters that a name stands for; the model's own names come before `head` and `body`."""

    pattern = bool(set(name) & set("*?"))  # of any case: Flax calls a layer BatchNorm_0 that is norm_0 here

    def fits(path: tuple[str, ...]) -> bool:
        depths = [len(path)] if sliced else range(1, len(path) + 1)
        names = (".".join(path[:depth]) for depth in depths)
        return any(fnmatch.fnmatchcase(one.lower(), name.lower()) if pattern else one == name for one in names)

    found = [path for path in paths if fits(path)]
    if found or name not in ENDS:
        return found
    last = paths[-1][0]
    return [path for path in paths if (path[0] == last) == (name == "head")]


def _listing(shapes: dict[tuple[str, ...], tuple[int, ...]]) -> str:
    return ", ".join(".".join(path) for path in shapes)
