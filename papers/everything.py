# SPDX-License-Identifier: Apache-2.0
"""Every reproduction, several at once: what is finished is found again, and a failure does not end the others."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import tomli_w

from idiolect import RequestError
from idiolect.core.checks import AbsentDataError
from idiolect.experiments.compilation import enable_cache
from idiolect.record.files import make_writable
from idiolect.record.manifest import blame_folder, check_files
from idiolect.record.reproduced import Count
from papers.catalogue import SLUGS, load_spec
from papers.outcome import Outcome
from papers.reproduction import Progress
from papers.runner import is_in_cells, judge, make_spec, reproduce
from papers.side_by_side import work_side_by_side

# heads of the summary, and the origins that they count
COLUMNS = {
    "claims": ("paper",),
    "theory": ("theory",),
    "others'": ("released", "independent"),
    "regression": ("regression",),
}
SPEC, NUMBERS, MACHINE = "spec.toml", "numbers.json", "machine.json"
CELLS = "cells"  # a folder that all tables of cells share


@dataclasses.dataclass(frozen=True)
class Line:
    """One reproduction in the summary."""

    slug: str
    verdict: str  # as documented, changed, no data, failed
    remark: str = ""  # what changed, or the sentence of what went wrong
    seconds: float | None = None
    counts: Mapping[str, Count] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Summary:
    """All of them."""

    lines: tuple[Line, ...]
    folder: Path

    @property
    def changed(self) -> tuple[Line, ...]:
        """Those that are not as documented; data that are not here are no change."""
        return tuple(line for line in self.lines if line.verdict in ("changed", "failed"))

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"reproductions": [dataclasses.asdict(line) for line in self.lines]}

    def to_text(self) -> str:
        """One line per reproduction: how many numbers of each origin hold, how long it took, and its verdict."""
        width = max(len(line.slug) for line in self.lines)
        head = " ".join(f"{name:>10}" for name in (*COLUMNS, "seconds"))
        lines = [f"{'':{width}} {head}  verdict"]
        for line in self.lines:
            shown = " ".join(f"{_held(line, origins):>10}" for origins in COLUMNS.values())
            seconds = "-" if line.seconds is None else f"{line.seconds:.0f}"
            lines.append(f"{line.slug:<{width}} {shown} {seconds:>10}  {line.verdict}")
        remarks = [f"{line.slug}: {line.remark}" for line in self.lines if line.remark]
        known = sum(part.miss for line in self.lines for part in line.counts.values())
        verdicts = [line.verdict for line in self.lines]
        last = f"{verdicts.count('as documented')} of {len(verdicts)} are as documented, {verdicts.count('no data')} "
        return "\n".join([*lines, "", *remarks, f"{last}without their data; {known} claims are known not to hold."])


def _held(line: Line, origins: Sequence[str]) -> str:
    counts = [line.counts[origin] for origin in origins if origin in line.counts]
    return f"{sum(one.hold for one in counts)} of {sum(one.of for one in counts)}" if counts else "-"


def reproduce_all(
    folder: Path,
    progress: Progress | None = None,
    *,
    sizes: Sequence[str] = (),
    resume: bool = False,
    jobs: int = 1,
) -> Summary:
    """Each into a folder of its own in `folder`; with `resume` those that are finished there are not repeated.

    `jobs` of them at once, if more than one, are processes of their own.
    """
    if folder.exists() and not folder.is_dir():
        raise RequestError(f"`reproduce all` needs a folder, and {folder} is a file; choose another --out.")
    if not resume and folder.is_dir() and any(folder.iterdir()):
        raise RequestError(
            f"The folder {folder} holds other files; add --resume to go on in it, or choose another --out."
        )
    if resume and not folder.is_dir():
        raise RequestError(f"There is nothing to resume in {folder}; start without --resume.")
    make_writable(folder, "folder of reproductions", "--out")
    report = progress or (lambda *news: None)
    if jobs == 1:
        return Summary(tuple(_one_by_one(folder, report, sizes)), folder)
    work = functools.partial(_reproduce_apart, folder, tuple(sizes))
    return Summary(_side_by_side(work, report, jobs), folder)


def _one_by_one(folder: Path, progress: Progress, sizes: Sequence[str]) -> Iterator[Line]:
    for place, slug in enumerate(SLUGS):
        progress(slug, place, len(SLUGS))
        yield _try(slug, folder, sizes, _within(progress, slug, place))
    progress("all", len(SLUGS), len(SLUGS))


def _side_by_side(work: Callable[..., Line], progress: Progress, jobs: int) -> tuple[Line, ...]:
    found: dict[str, Line] = {}
    groups: dict[str, list[str]] = {}
    for slug in SLUGS:  # those of one paper that are made of cells read each other's, one after another
        groups.setdefault(slug.split("-")[0] if is_in_cells(slug) else slug, []).append(slug)
    for slug, news, line in work_side_by_side(sorted(groups.values(), key=len, reverse=True), work, jobs):
        if news is not None:
            _within(progress, slug, len(found))(*news)
            continue
        lost = f"its process ended with exit code {line}."
        found[slug] = line if isinstance(line, Line) else Line(slug, "failed", lost)
        progress(slug, len(found), len(SLUGS))
    return tuple(found[slug] for slug in SLUGS)


def _reproduce_apart(folder: Path, sizes: Sequence[str], slug: str, progress: Progress) -> Line:
    enable_cache()  # this is a process of its own
    return _try(slug, folder, sizes, progress)


def _try(slug: str, folder: Path, sizes: Sequence[str], progress: Progress) -> Line:
    try:
        return _line(find_or_reproduce(slug, folder, sizes, progress))
    except AbsentDataError as error:
        return Line(slug, "no data", str(error))
    except RequestError as error:
        return Line(slug, "failed", str(error))
    except Exception as error:  # whatever it is, the others can still be had
        return Line(slug, "failed", f"{type(error).__name__}: {error}")
    finally:
        jax.clear_caches()  # programs of one are of no use to the next, and take memory


def _within(progress: Progress, slug: str, place: int) -> Progress:
    """News of one reproduction as those of all; how far it is itself is in the label."""
    return lambda label, done, total: progress(f"{slug}, {label}, {done} of {total}", place, len(SLUGS))


def find_or_reproduce(slug: str, folder: Path, sizes: Sequence[str], progress: Progress) -> Outcome:
    """The outcome in the folder's part for this slug, judged by today's expectations, or a new one."""
    own = folder / slug
    asked = sizes if "size" in load_spec(slug) else ()
    if (own / "done").is_file():
        check_files(own, (SPEC, NUMBERS, MACHINE))  # all that is read of it here: an edited one is not believed
        spec = make_spec(slug, asked)
        with blame_folder(own):  # of an earlier version, which no manifest vouches for
            if (own / SPEC).read_bytes() != tomli_w.dumps(spec).encode():
                raise RequestError(f"The folder {own} holds another request; delete it, or choose another --out.")
            rows = json.loads((own / NUMBERS).read_text(encoding="utf-8"))["numbers"]
            # JSON has no not-a-number
            numbers = {row["name"]: math.nan if row["measured"] is None else row["measured"] for row in rows}
            return judge(slug, spec, numbers, own)
    if not is_in_cells(slug):
        return reproduce(slug, own, progress, sizes=asked)
    begun = (own / SPEC).is_file()
    return reproduce(slug, own, progress, sizes=asked, resume=begun, cells=folder / CELLS)


def _line(outcome: Outcome) -> Line:
    with blame_folder(outcome.folder):
        seconds = json.loads((outcome.folder / MACHINE).read_text(encoding="utf-8"))["seconds"]
    changed = ", ".join(row.name for row in outcome.changed)
    absent = ", ".join(outcome.left_out)
    remark = (
        f"changed: {changed}." if changed else f"without {absent}, which `idiolect datasets fetch` gets." * bool(absent)
    )
    return Line(outcome.slug, "changed" if changed else "as documented", remark, seconds, outcome.counts)
