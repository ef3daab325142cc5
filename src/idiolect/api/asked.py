# SPDX-License-Identifier: Apache-2.0
"""What a call may be given, read off its annotations: one check for all functions, before any of them begins."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

import numpy as np

from idiolect.api.sentences import in_python
from idiolect.record.errors import RequestError

if TYPE_CHECKING:
    from idiolect.api.tables import Setting

Given = ParamSpec("Given")
Found = TypeVar("Found")

MOST = 10_000  # entries of a list, as on the command line; a slip such as range(10**9) would take all memory
LONGEST = 100  # characters of a value in a sentence, and digits of a number


class Kind(NamedTuple):
    """What one part of an annotation admits."""

    words: str
    admits: Callable[[Any], bool]
    entry: str | None = None  # of a list: the kind of its entries


def _is_setting(value: object) -> bool:
    if isinstance(value, list):
        return all(map(_is_setting, value))
    return isinstance(value, (bool, str)) or _is_number(value)


def _is_table(value: object) -> bool:
    """Settings by name, whose values a spec can hold."""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        return False
    return all(not isinstance(one, Mapping) and _is_setting(_as_python(one)) for one in value.values())


def _is_read(value: object) -> bool:
    from idiolect.api.tables import Table  # whose functions are checked here, too

    return isinstance(value, Table)


def _is_path(value: object) -> bool:
    return isinstance(value, (str, os.PathLike)) and os.fsdecode(value) != "" and "\0" not in os.fsdecode(value)


def _is_number(value: object) -> bool:
    return isinstance(value, float) or _is_whole(value)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**LONGEST


KINDS = {  # by the text of an annotation, between its bars
    "str": Kind("a text", lambda value: isinstance(value, str)),
    "int": Kind("a whole number", _is_whole),
    "float": Kind("a number", _is_number),
    "bool": Kind("True or False", lambda value: isinstance(value, bool)),
    "Progress": Kind("a function of a method, rounds done and rounds in all", callable),
    "Table": Kind("from il.read_table(rows, client=..., target=...)", _is_read),
    "PATH": Kind("a path", _is_path),
    "Mapping[str, Setting]": Kind('settings by name, such as {"training.precision": "float64"}', _is_table),
    "Setting": Kind("a number, a text, True or False, or a list of them", _is_setting),
    "Sequence[str]": Kind("a list of texts", lambda value: isinstance(value, (list, range)), "str"),
    "Sequence[int]": Kind("a list of whole numbers", lambda value: isinstance(value, (list, range)), "int"),
    "Sequence[float]": Kind("a list of numbers", lambda value: isinstance(value, (list, range)), "float"),
}
PATH = "str | os.PathLike[str]"
AS_THEY_ARE = {"Table", "PATH", "Progress", "Mapping[str, Setting]"}
LEAVE = "give one, or leave it out"


def checked(
    options: type | None = None, besides: str = ""
) -> Callable[[Callable[Given, Found]], Callable[Given, Found]]:
    """A function whose arguments are held against their annotations; refusals are in the words of Python.

    Further arguments are held against the fields of `options`, where it has them; None leaves one of these out.
    `besides` is what a refusal of an argument that is needed says at its end.
    """

    def around(function: Callable[Given, Found]) -> Callable[Given, Found]:
        signature = inspect.signature(function)
        hints = {name: str(one.annotation) for name, one in signature.parameters.items() if name != "self"}
        fields = {} if options is None else {name: _text(one) for name, one in options.__annotations__.items()}
        more = next((one.name for one in signature.parameters.values() if one.kind is one.VAR_KEYWORD), None)
        bare = [name for name, one in signature.parameters.items() if name in hints and one.default is one.empty]
        needed = [name for name in bare if name != more]
        way_out = f"write {function.__name__}({', '.join(needed)}){besides}"

        @functools.wraps(function)
        def call(*args: Given.args, **kwargs: Given.kwargs) -> Found:
            bound = signature.bind(*args, **kwargs)
            for name, value in bound.arguments.items():
                if name == more:
                    bound.arguments[name] = _check_more(value, fields)
                elif name in hints:
                    bound.arguments[name] = check_given(name, value, hints[name], way_out if name in needed else LEAVE)
            return function(*bound.args, **bound.kwargs)

        return in_python()(call)

    return around


def _text(annotation: Any) -> str:
    return str(getattr(annotation, "__forward_arg__", annotation))


def _check_more(given: Mapping[str, Any], fields: Mapping[str, str]) -> dict[str, Any]:
    """Options by their fields, settings as what a spec can hold."""
    kept = {name: value for name, value in given.items() if name not in fields or value is not None}
    return {name: check_given(name, value, fields.get(name, "Setting | None"), LEAVE) for name, value in kept.items()}


def check_given(name: str, value: Any, hint: str, way_out: str) -> Any:
    """The value, with Python's numbers for NumPy's; RequestError unless the annotation `hint` admits it."""
    parts = hint.replace(PATH, "PATH").split(" | ")
    kinds = [part for part in parts if part != "None"]
    if (value is None and "None" in parts) or any(kind not in KINDS for kind in kinds):
        return value
    own = value if set(kinds) <= AS_THEY_ARE else _as_python(value)
    found = next((KINDS[kind] for kind in kinds if KINDS[kind].admits(own)), None)
    wrong = [] if found is None else _misfits(name, own, found)
    if found is None or wrong:
        words = " or ".join(KINDS[kind].words for kind in kinds)
        got = f"{_shown(wrong[0])} in it" if wrong else _shown(value)
        raise RequestError(f"{name} must be {words}, got {got}; {way_out}.")
    return own


def _misfits(name: str, value: Any, kind: Kind) -> list[Any]:
    """Entries of a list that are none of its kind."""
    if kind.entry is None:
        return []
    if len(value) > MOST:
        raise RequestError(f"{name} must have at most {MOST} entries, got {len(value)}; give fewer.")
    return [one for one in value if not KINDS[kind.entry].admits(one)]


def _as_python(value: Any) -> Any:
    """A list of what has a length, and Python's numbers for NumPy's; the rest, a generator also, as it is."""
    if isinstance(value, range) and len(value) > MOST:
        return value  # it has a length, and would fill the memory
    if isinstance(value, (str, bytes, Mapping)):
        return value
    several = hasattr(value, "__len__") and isinstance(value, Iterable)
    return plain(value) if several or isinstance(value, np.generic) else value


def _shown(value: object) -> str:
    """A value short enough for a sentence; of an object its type."""
    entries = list(value) if isinstance(value, (list, tuple)) else [value]
    short = all(one is None or isinstance(one, (bytes, range)) or _is_setting(one) for one in entries)
    text = repr(value) if short else f"an object of type {type(value).__name__}"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def plain(value: object) -> Setting:
    """What a spec can hold: numbers of NumPy as Python's own; a range, a tuple or an index as a list."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "__iter__") and not isinstance(value, str):
        return [plain(entry) for entry in value]  # type: ignore[return-value]
    return value  # type: ignore[return-value]
