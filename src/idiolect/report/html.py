# SPDX-License-Identifier: Apache-2.0
"""Pages from the templates beside this file; autoescape makes whatever a client is called harmless."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from idiolect.report import choice, privacy, wording
from idiolect.report.columns import INSTANCES
from idiolect.report.wording import NONE, ScoreWords, plural

LIMIT = 100  # clients shown at first


class Frame(NamedTuple):
    """The head and foot that all pages have."""

    title: str
    facts: Sequence[str]
    answer: str
    folder: str
    caution: str | None = None
    further: str = ""  # the rest of the answer, in the size of the text


def left_out(clients: int, file: str) -> str:
    """Where the clients beyond `LIMIT` are; nothing where there are none."""
    return f"{plural(clients - LIMIT, 'more client')} in {file}." if clients > LIMIT else ""


def facts(values: Mapping[str, object]) -> list[tuple[str, str]]:
    """Names and values as text; nested ones are written as JSON, absent ones are left out."""
    return [(name.replace("_", " "), _in_words(value)) for name, value in values.items() if value is not None]


def _in_words(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _each_bare(values: Iterable[float | None], words: ScoreWords) -> str:
    return ", ".join(map(words.bare, values))


def fill(template: str, frame: Frame, **parts: object) -> str:
    """The page as text."""
    pages = _environment()
    rare: dict[str, object] = {"page_data": {"figures": {}}, "live": False}
    # The page allows these scripts and no other, whatever a client is called.
    scripts = [_library(), pages.get_template("page.js").render()]
    rare |= {"script_hashes": [_digest(script) for script in scripts], "library": scripts[0]}
    return pages.get_template(template).render(rare | parts, frame=frame)


@functools.cache
def _library() -> str:
    """The charting library: our own copy, as it was published, so that it needs no escaping."""
    return (Path(__file__).parent / "vendor" / "echarts.common.min.js").read_text(encoding="utf-8")


def _digest(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode()


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
    spoken = ("count", "megabytes", "kilobytes", "percent", "plural", "size", "listed")
    pages.filters |= {name: getattr(wording, name) for name in spoken}
    pages.filters |= {"upper_first": wording.upper, "facts": facts, "left_out": left_out, "each_bare": _each_bare}
    pages.filters |= {"shown": choice.shown, "zip": zip, "common_lines": privacy.common_lines}
    pages.filters |= {"array_name": privacy.array_name, "array_line": privacy.array_line}
    pages.filters |= {"protection_line": privacy.protection_line}
    pages.globals |= {"NONE": NONE, "LIMIT": LIMIT, "INSTANCES": INSTANCES}
    return pages
