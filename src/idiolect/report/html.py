# SPDX-License-Identifier: Apache-2.0
"""Pages from the templates beside this file; autoescape makes whatever a client is called harmless."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from idiolect.record.words import counted
from idiolect.report import choice_table, privacy, wording
from idiolect.report.clients import NO_INTERVALS, SAME, VERDICTS
from idiolect.report.columns import INSTANCES
from idiolect.report.wording import NONE

LIMIT = 100  # clients shown at first
SCRIPTS = ("base", "tables", "clients", "charts", "gain", "cost", "bars", "choice", "map", "lines", "start", "live")


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
    return f"{counted(clients - LIMIT, 'more client')} in {file}." if clients > LIMIT else ""


def facts(values: Mapping[str, object]) -> list[tuple[str, str]]:
    """Names and values as text; nested ones are written as JSON, absent ones are left out."""
    written = json.JSONEncoder(ensure_ascii=False, default=str).encode
    told = {name.replace("_", " "): value for name, value in values.items() if value is not None}
    return [(name, value if isinstance(value, str) else written(value)) for name, value in told.items()]


def fill(template: str, frame: Frame, **parts: object) -> str:
    """The page as text; only one that is served while training is `live`."""
    return _environment().get_template(template).render({"live": False} | parts, frame=frame, scripts=_scripts())


@functools.cache
def _scripts() -> list[tuple[str, str]]:
    """The charting library as it was published, and the script of all pages, each with its hash.

    The page allows these scripts and no other, whatever a client is called. Neither holds anything of a run: what they
    draw stands in the page as data.
    """
    here = Path(__file__).parent
    scripts = [here / "templates" / "script" / f"{name}.js" for name in SCRIPTS]
    library, *own = (file.read_text(encoding="utf-8") for file in (here / "vendor" / "echarts.common.min.js", *scripts))
    texts = (library, "".join(own))
    return [(text, base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()) for text in texts]


@functools.cache
def _environment() -> Environment:
    pages = Environment(
        loader=PackageLoader("idiolect.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # not-a-number is no JSON: better an error here than a page whose script stops
    pages.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    spoken = (wording.count, wording.megabytes, wording.kilobytes, wording.whole, counted, wording.size)
    stated = (privacy.common_lines, privacy.array_name, privacy.array_line, privacy.protection_line)
    others = (wording.listed, choice_table.shown, facts, left_out, zip)
    pages.filters |= {one.__name__: one for one in (*spoken, *stated, *others)}
    pages.filters["upper_first"] = wording.upper
    pages.globals |= {"NONE": NONE, "LIMIT": LIMIT, "INSTANCES": INSTANCES, "VERDICTS": VERDICTS}
    pages.globals |= {"SAME": SAME, "NO_INTERVALS": NO_INTERVALS}
    return pages
