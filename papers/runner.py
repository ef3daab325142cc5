# SPDX-License-Identifier: Apache-2.0
"""Reproduce a published result: measure, compare every number with what is expected, write a complete folder."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

from idiolect import RequestError
from idiolect.experiments.run_folder import RunFolder, machine_facts
from idiolect.record.files import make_writable
from idiolect.record.schema import SCHEMA
from papers.catalogue import find_code, find_entry, load_expected, load_spec, sized
from papers.cells import Cells
from papers.drawing import drawing, to_bytes
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
    spec = load_spec(slug, (*sized(slug, sizes), *overrides))
    expected = [entry for entry in load_expected(slug) if entry.belongs_to(spec)]
    code = find_code(slug)
    in_cells = "cells" in inspect.signature(code.measure).parameters
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
        measured = code.measure(spec, tell, **kept)
        outcome = Outcome(slug, *find_entry(slug), compare(slug, expected, measured.numbers), folder, measured.table)
        with drawing(slug):
            figure = code.draw(spec, measured.curves)
            images = {kind: to_bytes(figure, kind) for kind in ("png", "svg")}
        _write(target, outcome, images)
    return outcome


def _check_folders(target: RunFolder, spec: dict[str, Any], resume: bool, cells: Path | None) -> None:
    """RequestError unless the folders can take the result, before anything is computed."""
    if cells is not None and (cells.is_file() or cells == Path()):
        raise RequestError(f"--cells must name a folder, got {str(cells)!r}; it will be made if need be.")
    target.check(resume)
    if cells is not None:
        make_writable(cells, "folder of cells", "--cells")
    if resume and (target.path / "spec.toml").read_text(encoding="utf-8") != tomli_w.dumps(spec):
        raise RequestError(
            f"The folder {target.path} was begun with another request; repeat that one, or choose another --out."
        )


def _write(target: RunFolder, outcome: Outcome, images: Mapping[str, bytes]) -> None:
    summary = {"schema": SCHEMA} | outcome.as_dict()
    target.write_table("numbers.parquet", summary["numbers"])
    for kind, content in images.items():
        target.write_bytes(f"figure.{kind}", content)
    facts = machine_facts("")
    facts.pop("time_model")  # nothing is modelled: no bytes are sent anywhere slow
    target.write_json("machine.json", facts)
    target.write_json("numbers.json", summary)
    target.finish()
