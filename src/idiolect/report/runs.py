# SPDX-License-Identifier: Apache-2.0
"""Several runs side by side: every method of each, and the curves of what each announced."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from idiolect.record.errors import RequestError
from idiolect.record.files import write_whole
from idiolect.record.manifest import blame_folder
from idiolect.record.reading import read_json
from idiolect.record.schema import MethodSummary
from idiolect.record.words import counted
from idiolect.report.answer import level_with
from idiolect.report.figure_data import Shown, method_figures, score_facts
from idiolect.report.folder import FolderError, Run, read
from idiolect.report.html import Frame, fill
from idiolect.report.reported import Reported
from idiolect.report.style import series_colours
from idiolect.report.text import LABEL, TextColumn, printed, tables_of
from idiolect.report.wording import NONE, listed, megabytes, ties, whole

HEADS = ("run", "method", "mean", "worst 10 %", "gain over alone [95 %]", "helped %", "hurt %", "rounds", "MB")
KEYS = ("mean", "worst_decile", "gain", "helped", "hurt", "rounds", "traffic_bytes")  # of the numbers, for programs
NEEDED = 5  # heads that are shown however narrow the terminal is
DOUBT = "The runs were not, or not provably, tested on the same rows: their scores differ by that, too."


class Line(NamedTuple):
    """A method with an answer, in one of the runs, and its numbers with their texts."""

    run: str  # a name that sets it apart
    entry: MethodSummary
    announced: bool  # by its run
    cells: list[tuple[float | None, str]]


def read_runs(folders: Sequence[str | os.PathLike[str]]) -> dict[str, Run]:
    """Read them, by names that set them apart; RequestError where they cannot be compared."""
    runs = []
    for folder in folders:
        with blame_folder(Path(folder)):
            runs.append(read(folder))
    if len({run.score for run in runs}) > 1:
        found = ", ".join(f"{run.path.name} has {run.score}" for run in runs)
        raise RequestError(f"Runs are compared by one score, got several ({found}); name runs of one score.")
    named: dict[str, Run] = {}
    for run in runs:
        # folders of one name in different places: the second is "name (2)"
        name, number = run.path.resolve().name, 2
        while name in named:
            name, number = f"{run.path.resolve().name} ({number})", number + 1
        named[name] = run
    return named


def report_runs(folders: Sequence[str | os.PathLike[str]], file: Path) -> Reported:
    """Compare several runs on one page, which is written to `file`."""
    runs = read_runs(folders)
    first, number, lines = next(iter(runs.values())), counted(len(runs), "run"), _lines(runs)
    words, said = first.words, answer(first, number, lines)  # all runs have the score of the first
    same_rows = _same_rows([run.path / "rows.json" for run in runs.values()])
    doubt = None if same_rows else DOUBT
    frame = Frame(f"{number}: idiolect report", [number, *runs], said, "the runs", doubt)
    chosen = {name: entry for name, run in runs.items() if (entry := chosen_method(run))}
    colours = series_colours(list(chosen))
    # methods of several runs may have one label: lines are called by run and method
    shown = [Shown(runs[name], one, f"{name}: {one.method}", colours[name]) for name, one in chosen.items()]
    data = {"figures": method_figures(shown, words), "score": score_facts(words, first.higher_is_better)}
    page = fill("runs.html", frame, title=words.title, lines=lines, heads=HEADS, page_data=data)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, page.encode("utf-8"))
    except OSError as error:
        raise FolderError(
            f"The page must be written to {str(file)!r}, which refused it ({error.strerror}); choose another --out."
        ) from error
    below = [f"{words.title} on test rows; →: chosen on validation rows.", *([doubt] if doubt else []), "", said]
    rows: list[dict[str, object]] = [
        {"run": line.run, "method": line.entry.method, "announced": line.announced}
        | {key: value for key, (value, _) in zip(KEYS, line.cells, strict=True)}
        for line in lines
    ]
    facts = {"score": words.name, "same_rows": same_rows, "answer": said, "runs": rows, "report": str(file)}
    return Reported(file, lambda _, width: _text(lines, below, width), lambda: facts, lambda: rows)


def chosen_method(run: Run) -> MethodSummary | None:
    """What a run announces; without validation rows the best on test rows."""
    announced, sign = run.summary.announced, 1 if run.higher_is_better else -1
    if announced is not None:
        return next(entry for entry in run.methods if entry.method == announced.method)
    scored = (entry for entry in run.methods if entry.score.mean is not None)
    return max(scored, key=lambda entry: sign * (entry.score.mean or 0.0), default=None)


def _lines(runs: dict[str, Run]) -> list[Line]:
    lines = []
    for name, run in runs.items():
        chosen, words = chosen_method(run), run.words
        for entry in run.methods:
            score, gain = entry.score, entry.gain
            if score.mean is None:
                continue
            shown = NONE if gain is None else words.gain(gain.mean, gain.low, gain.high)
            cells = [
                (score.mean, words.bare(score.mean)),
                (score.worst_decile, words.bare(score.worst_decile)),
                (None if gain is None else gain.mean, "alone" if entry.alone else shown),
                (entry.helped, whole(entry.helped)),
                (entry.hurt, whole(entry.hurt)),
                (entry.rounds, str(entry.rounds)),
                (entry.traffic_bytes, megabytes(entry.traffic_bytes)),
            ]
            lines.append(Line(name, entry, entry is chosen, cells))
    return lines


def _same_rows(files: list[Path]) -> bool:
    # a digest of the rows that were tested, which no two tables share by chance
    tested = [read_json(file).get("test") if file.is_file() else None for file in files]
    return tested[0] is not None and all(one == tested[0] for one in tested)


def answer(first: Run, number: str, lines: Sequence[Line]) -> str:
    """One sentence: whose announced method is best on test rows; `first` has the score of all of the runs."""
    chosen = {line.run: line.entry for line in lines if line.announced}
    if not chosen:
        return f"None of {number} has a score on test rows."
    means = {name: entry.score.mean or 0.0 for name, entry in chosen.items()}  # all of them have one
    best = (max if first.higher_is_better else min)(means, key=lambda name: means[name])
    # to rounding: the same method in two folders is not better in one of them
    level = [name for name, mean in means.items() if name != best and ties(mean, means[best])]
    others = [f"{name} {first.words.show(mean)}" for name, mean in means.items() if name not in (best, *level)]
    subject = f"{best}{level_with(level)}," if level else best
    return (
        f"Of {number}, {subject} has the best {first.words.spoken} with the method that it chose: "
        f"{chosen[best].name}, {first.words.show(means[best])}" + (f"; {listed(others)}." if others else ".")
    )


def _text(lines: Sequence[Line], below: Sequence[str], width: int) -> str:
    """The table, and the sentences below it."""
    cells = [
        [line.run, ("→ " if line.announced else "") + line.entry.method, *(text for _, text in line.cells)]
        for line in lines
    ]
    columns = [
        TextColumn(head, texts, 0 if place < NEEDED else place, place < 2, LABEL if place < 2 else None)
        for place, (head, *texts) in enumerate(zip(HEADS, *cells))
    ]
    return printed(*tables_of(columns, width), *below, width=width)
