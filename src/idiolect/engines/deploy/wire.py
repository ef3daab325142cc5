# SPDX-License-Identifier: Apache-2.0
"""Messages between coordinator and sites: one safetensors block each, plain facts in its header, never a pickle.

The receiver knows the form of the arrays that it awaits, and refuses all others with a sentence.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from idiolect.core.checks import RequestError
from idiolect.core.tree import Tree

MARK = "idiolect"  # where the header keeps the facts
MOST_HEADER = 1 << 20  # bytes: names of arrays and facts are short
MOST_BYTES = 1 << 30  # of a message, unless told otherwise
# what a message weighs beyond its arrays: a name, a type, a shape and a place for each, and the facts
HEADER_BYTES, HEADER_BYTES_OF_ARRAY = 640, 160
BEFORE = ("hello", "sums", "constants")  # training: plain facts alone, both ways
ANSWERS = dict(zip(BEFORE, BEFORE)) | {  # what the coordinator asks -> what a site answers, unless it refuses
    "begin": "ready",
    "keys": "keys",
    "shares": "shares",
    "round": "upload",
    "unmask": "unmasked",
    "settle": "settled",
    "record": "scores",
    "finish": "finished",
}
REFUSED = "refused"

Facts = dict[str, Any]  # plain values of JSON


class WireError(RequestError):
    """A message that is refused; the sentence names the sender."""


class UnreadyError(WireError):
    """The site must begin the method first; the coordinator then asks again."""


class Message(NamedTuple):
    """What one side tells the other."""

    kind: str
    run: str  # digest of spec, versions and method: whose run it is
    round: int
    number: int  # of the client; -1 where it has none yet
    sequence: int  # of the question; an answer repeats it
    content: Facts
    arrays: Mapping[str, np.ndarray]


def encode(message: Message) -> bytes:
    """The bytes of a message."""
    facts = {name: getattr(message, name) for name in _TYPES}
    # not ascontiguousarray: it makes a vector of one out of a scalar
    arrays = {name: np.asarray(array, order="C") for name, array in message.arrays.items()}
    return bytes(save(arrays, {MARK: json.dumps(facts, allow_nan=False, separators=(",", ":"))}))


def decode(block: bytes, sender: str, limit: int = MOST_BYTES) -> Message:
    """The message in a block; WireError names the `sender` where it is none."""
    if len(block) > limit:
        raise WireError(f"{sender} sent {len(block)} bytes, more than the {limit} allowed in a message.")
    try:
        facts = _facts(block)
        arrays = load(block)
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise WireError(f"{sender} sent a message that cannot be read ({type(error).__name__}).") from None
    for name, kind in _TYPES.items():
        if type(facts.get(name)) is not kind:  # true and false are whole numbers to isinstance
            raise WireError(f"{sender} sent a message whose {name} is not a {kind.__name__}.")
    if set(facts) != set(_TYPES):
        raise WireError(f"{sender} sent a message with other facts than {', '.join(_TYPES)}.")
    if facts["kind"] not in {*ANSWERS, *ANSWERS.values(), REFUSED}:
        raise WireError(f"{sender} sent a message of an unknown kind.")
    return Message(**facts, arrays=arrays)


_TYPES: dict[str, type] = {"kind": str, "run": str, "round": int, "number": int, "sequence": int, "content": dict}


def _facts(block: bytes) -> Facts:
    """The facts in the header: eight bytes say how long it is."""
    length = int.from_bytes(block[:8], "little")
    if not 2 <= length <= min(MOST_HEADER, len(block) - 8):
        raise ValueError("no header")
    header = json.loads(block[8 : 8 + length].decode("utf-8"))
    found = json.loads(header["__metadata__"][MARK], parse_constant=_refuse_constant)
    if not isinstance(found, dict):
        raise ValueError("no facts")
    return found


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")


def pack(prefix: str, tree: Tree) -> dict[str, np.ndarray]:
    """The leaves of a pytree by name, for a message."""
    return {name: np.asarray(leaf) for name, leaf in _named(prefix, tree).items()}


def form_of(prefix: str, tree: Tree) -> dict[str, tuple[tuple[int, ...], str]]:
    """Name -> shape and type of each leaf; leaves may be arrays or their shapes alone."""
    return {name: (tuple(leaf.shape), np.dtype(leaf.dtype).name) for name, leaf in _named(prefix, tree).items()}


def _named(prefix: str, tree: Tree) -> dict[str, Any]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    named = [(jax.tree_util.keystr(path, simple=True, separator="."), leaf) for path, leaf in leaves]
    return {f"{prefix}.{name}" if name else prefix: leaf for name, leaf in named}


def unpack(message: Message, forms: Mapping[str, Tree], sender: str) -> dict[str, Tree]:
    """The pytrees of a message, one for each prefix; WireError unless it holds just what their forms say.

    The leaves of a form need shape and dtype alone, as `jax.eval_shape` gives them.
    """
    wanted = {prefix: _named(prefix, form) for prefix, form in forms.items()}
    names = {name for leaves in wanted.values() for name in leaves}
    check_names(message.arrays, names, sender)
    for leaves in wanted.values():
        for name, leaf in leaves.items():
            check_array(message.arrays[name], tuple(leaf.shape), np.dtype(leaf.dtype), name, sender)
    return {
        prefix: jax.tree.unflatten(jax.tree.structure(form), [message.arrays[name] for name in wanted[prefix]])
        for prefix, form in forms.items()
    }


def check_names(arrays: Mapping[str, np.ndarray], names: set[str], sender: str) -> None:
    """WireError unless these are the arrays."""
    missing, more = sorted(names - set(arrays)), sorted(set(arrays) - names)
    if missing or more:
        what = f"lacks the array {missing[0]!r}" if missing else "holds an array that was not asked for"
        raise WireError(f"{sender} sent a message that {what}.")


def check_array(array: np.ndarray, shape: tuple[int, ...], dtype: np.dtype, name: str, sender: str) -> None:
    """WireError for another shape or type, and for a number that is not finite."""
    if array.shape != shape:
        raise WireError(f"{sender} sent {name} with the shape {array.shape}, and {shape} is awaited.")
    if array.dtype != dtype:
        raise WireError(f"{sender} sent {name} as {array.dtype.name}, and {dtype.name} is awaited.")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise WireError(f"{sender} sent {name} with a number that is not finite.")


def norm_of(arrays: Mapping[str, np.ndarray]) -> float:
    """The Euclidean norm of all floating arrays together, in float64."""
    floats = [array.astype(np.float64) for array in arrays.values() if array.dtype.kind == "f"]
    with np.errstate(over="ignore"):
        return math.sqrt(sum(float(np.sum(array * array)) for array in floats))


def digest(*parts: object) -> str:
    """A short name for plain values: equal where all of them are."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
