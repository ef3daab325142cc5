# SPDX-License-Identifier: Apache-2.0
"""Pages from the templates beside this file: tables, tiles and facts as plain values that autoescape makes harmless."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from idiolect.report.wording import absent, count, plural

LIMIT = 100  # clients shown at first


class Tile(NamedTuple):
    """One part of the answer: a heading, a value, a remark."""

    title: str
    value: str
    about: str


class Frame(NamedTuple):
    """The head and foot that all pages have."""

    title: str
    facts: Sequence[str]
    answer: str
    tiles: Sequence[Tile]
    folder: str


class Head(NamedTuple):
    """The heading of a column; one of words sorts by letters."""

    title: str
    about: str = ""
    words: bool = False


class Cell(NamedTuple):
    """How a value reads, what it sorts by, what stands small behind it; a mark says why it is set apart."""

    text: str
    value: object
    small: str = ""
    mark: str = ""
    words: bool = False


class Row(NamedTuple):
    """A name and its cells; it sorts by `value`, or else by the name."""

    name: str
    cells: Sequence[Cell]
    value: str = ""


class Grid(NamedTuple):
    """A sortable table, and what its rows leave out."""

    label: str
    heads: Sequence[Head]
    rows: Sequence[Row]
    more: str = ""


def number(value: float | None, text: str) -> Cell:
    """A cell that sorts by its number; one without sorts last."""
    return Cell(text, "" if absent(value) else value)


def counted(value: float | None) -> Cell:
    """A cell with a count."""
    return number(value, count(value))


def text_cell(text: str) -> Cell:
    """A cell of words."""
    return Cell(text, text, words=True)


def number_heads(titles: Iterable[str]) -> list[Head]:
    """Headings of columns of numbers."""
    return [Head(title) for title in titles]


def word_heads(titles: Iterable[str]) -> list[Head]:
    """Headings of columns of words."""
    return [Head(title, words=True) for title in titles]


def left_out(clients: int, file: str) -> str:
    """Where the clients beyond `LIMIT` are; nothing where there are none."""
    return f"{plural(clients - LIMIT, 'more client')} in {file}." if clients > LIMIT else ""


def facts(values: Mapping[str, object]) -> list[tuple[str, str]]:
    """Names and values as text; nested ones are written as JSON, absent ones are left out."""
    return [(name.replace("_", " "), _in_words(value)) for name, value in values.items() if value is not None]


def _in_words(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def fill(template: str, frame: Frame, **parts: object) -> str:
    """The page as text."""
    pages = _environment()
    script = pages.get_template("page.js").render()
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode()
    rare: dict[str, object] = {"caution": None, "client_data": {"methods": []}}
    # The page allows this one script and no other, whatever a client is called.
    return pages.get_template(template).render(rare | parts, frame=frame, script_hash=f"sha256-{digest}")


@functools.cache
def _environment() -> Environment:
    pages = Environment(
        loader=PackageLoader("idiolect.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return pages
