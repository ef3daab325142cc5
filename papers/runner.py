# SPDX-License-Identifier: Apache-2.0
"""Reproduce a published result: measure, compare every number with what is expected, write a complete folder."""

from __future__ import annotations

import contextlib
import inspect
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from idiolect import RequestError
from idiolect.experiments.run_folder import RunFolder, machine_facts
from idiolect.record.files import make_writable
from idiolect.record.reproduced import CURVES
from idiolect.record.schema import SCHEMA
from papers.catalogue import find_code, find_entry, find_folder, load_expected, load_spec, sized
from papers.cells import Cells
from papers.drawing import drawing, lines_of, to_bytes
from papers.outcome import Outcome
from papers.reproduction import Progress
from papers.verdicts import compare


def reproduce(
    slug: str,
    folder: Path,
    progress: Progress | None = None,
    overrides: Sequence[str] = (),
    *,
    sizes: Sequence[str] = (),
    resume: bool = False,
    cells: Path | None = None,
) -> Outcome:
    """Measure the named result and leave numbers, figure, spec and machine facts at `folder`.

    A result that is made of cells keeps them in `cells` (default: a folder of that name in `folder`) and finds there
    what an earlier command computed; with `resume`, `folder` is one that an earlier command left unfinished.
    """
    begun, code = time.monotonic(), find_code(slug)
    spec = make_spec(slug, sizes, overrides)
    in_cells = is_in_cells(slug)
    if hasattr(code, "check"):
        code.check(spec)
    if not in_cells and (resume or cells is not None):
        raise RequestError(f"{slug} is not made of cells, which could be found again; leave out --resume and --cells.")
    target = RunFolder(folder, "reproduce --resume" if in_cells else "reproduce")
    _check_folders(target, spec, resume, cells)
    with target.open(resume, {"command": target.command, "slug": slug}):
        target.write_text("spec.toml", tomli_w.dumps(spec))  # begun: what is computed from here on can be found again
        tell = progress or (lambda label, done, total: None)
        kept = {"cells": Cells(cells or folder / "cells")} if in_cells else {}
        with _blame(slug, overrides):
            measured = code.measure(spec, tell, **kept)
        outcome = judge(slug, spec, measured.numbers, folder, measured.table)
        with _blame(slug, overrides), drawing(slug):
            figure = code.draw(spec, measured.curves)
            images = {kind: to_bytes(figure, kind) for kind in ("png", "svg")}
        target.write_json(CURVES, {"schema": SCHEMA, "panels": lines_of(figure)})
        _write(target, outcome, images, time.monotonic() - begun)
    return outcome


@contextlib.contextmanager
def _blame(slug: str, overrides: Sequence[str]) -> Iterator[None]:
    """What fails inside is the fault of overrides, where there are any: each may be in its range, and not go together.

    A number that is not finite is no error: the table tells of it.
    """
    if not overrides:
        yield
        return
    try:
        with np.errstate(all="ignore"):
            yield
    except (RequestError, UnicodeError):
        raise
    except (ArithmeticError, LookupError, ValueError, TypeError, AssertionError) as error:
        reason = f"{type(error).__name__} {' '.join(str(error).split()):.200}".rstrip()
        raise RequestError(
            f"{slug} cannot be computed with --set {'; '.join(overrides)} ({reason}); choose values nearer to those of "
            f"{find_folder(slug) / 'spec.toml'}."
        ) from error


def make_spec(slug: str, sizes: Sequence[str] = (), overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The settings that a request asks for, without the data sets that are not here where the others say enough."""
    code, spec = find_code(slug), load_spec(slug, (*sized(slug, sizes), *overrides))
    return code.reduce(spec) if hasattr(code, "reduce") else spec


def is_in_cells(slug: str) -> bool:
    """Whether the reproduction is made of cells."""
    return "cells" in inspect.signature(find_code(slug).measure).parameters


def judge(slug: str, spec: Mapping[str, Any], numbers: Mapping[str, float], folder: Path, table: str = "") -> Outcome:
    """Measured numbers beside what expected.toml says today."""
    expected = [entry for entry in load_expected(slug) if entry.belongs_to(spec)]
    absent = tuple(spec.get("left_out", ()))
    return Outcome(slug, *find_entry(slug), compare(slug, expected, numbers), folder, table, absent)


def _check_folders(target: RunFolder, spec: dict[str, Any], resume: bool, cells: Path | None) -> None:
    """RequestError unless the folders can take the result, before anything is computed."""
    if cells is not None and (cells.is_file() or cells == Path()):
        raise RequestError(f"--cells must name a folder, got {str(cells)!r}; it will be made if need be.")
    target.check(resume)
    if cells is not None:
        make_writable(cells, "folder of cells", "--cells")
    # as bytes: a damaged file need not be a text
    if resume and (target.path / "spec.toml").read_bytes() != tomli_w.dumps(spec).encode():
        raise RequestError(
            f"The folder {target.path} was begun with another request, or its spec.toml was changed; repeat that "
            "request, or choose another --out."
        )


def _write(target: RunFolder, outcome: Outcome, images: Mapping[str, bytes], seconds: float) -> None:
    summary = {"schema": SCHEMA} | outcome.as_dict()
    target.write_table("numbers.parquet", summary["numbers"])
    for kind, content in images.items():
        target.write_bytes(f"figure.{kind}", content)
    facts = machine_facts("")
    facts.pop("time_model")  # nothing is modelled: no bytes are sent anywhere slow
    target.write_json("machine.json", facts | {"seconds": round(seconds, 1), "commit": _find_commit()})
    target.write_json("numbers.json", summary)
    target.finish()


def _find_commit() -> str:
    """The commit of this checkout, with a plus where files differ from it; empty where git does not know."""
    asked = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        found = subprocess.run(asked, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return found.stdout.strip()
