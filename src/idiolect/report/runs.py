# SPDX-License-Identifier: Apache-2.0
"""Several runs side by side: every method of each, and the curves of what each announced."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from idiolect.record.errors import RequestError
from idiolect.record.files import write_whole
from idiolect.record.manifest import blame_folder
from idiolect.record.reading import read_json
from idiolect.record.schema import MethodSummary
from idiolect.report.answer import level_with
from idiolect.report.folder import FolderError, Run, read
from idiolect.report.text import LABEL, WIDTH, TextColumn, printed, tables_of
from idiolect.report.wording import NONE, ScoreWords, listed, megabytes, plural, score_words, ties, whole

HEADS = ("run", "method", "mean", "worst 10 %", "gain over alone [95 %]", "helped %", "hurt %", "rounds", "MB")
NEEDED = 5  # heads that are shown however narrow the terminal is


@dataclasses.dataclass(frozen=True)
class RunsFound:
    """Runs of one score, by names that set them apart."""

    runs: dict[str, Run]
    same_rows: bool  # whether all were tested on the same rows

    @property
    def words(self) -> ScoreWords:
        """How the score is written."""
        return score_words(next(iter(self.runs.values())).score)

    def lines(self) -> list[tuple[str, MethodSummary, bool]]:
        """(run, method, whether the run announces it) of every method with an answer."""
        return [
            (name, entry, entry.method == chosen_method(run))
            for name, run in self.runs.items()
            for entry in run.methods
            if entry.score.mean is not None
        ]

    def cells(self, entry: MethodSummary) -> list[tuple[float | None, str]]:
        """Numbers of a method, from its mean on, with their texts."""
        words, gain = self.words, entry.gain
        shown = NONE if gain is None else words.gain(gain.mean, gain.low, gain.high)
        return [
            (entry.score.mean, words.bare(entry.score.mean)),
            (entry.score.worst_decile, words.bare(entry.score.worst_decile)),
            (None if gain is None else gain.mean, "alone" if entry.alone else shown),
            (entry.helped, whole(entry.helped)),
            (entry.hurt, whole(entry.hurt)),
            (entry.rounds, str(entry.rounds)),
            (entry.traffic_bytes, megabytes(entry.traffic_bytes)),
        ]


def chosen_method(run: Run) -> str | None:
    """What a run announces; without validation rows the best on test rows."""
    if run.announced is not None:
        return run.announced.method
    known = [entry for entry in run.methods if entry.score.mean is not None]
    sign = 1 if run.higher_is_better else -1
    return max(known, key=lambda entry: sign * (entry.score.mean or 0.0)).method if known else None


def read_runs(folders: Sequence[str | os.PathLike[str]]) -> RunsFound:
    """Read them; RequestError where they cannot be compared."""
    runs = []
    for folder in folders:
        with blame_folder(Path(folder)):
            runs.append(read(folder))
    scores = list(dict.fromkeys(run.score for run in runs))
    if len(scores) > 1:
        found = ", ".join(f"{run.path.name} has {run.score}" for run in runs)
        raise RequestError(f"Runs are compared by one score, got several ({found}); name runs of one score.")
    named: dict[str, Run] = {}
    for run in runs:
        # folders of one name in different places: the second is "name (2)"
        name, number = run.path.resolve().name, 2
        while name in named:
            name, number = f"{run.path.resolve().name} ({number})", number + 1
        named[name] = run
    return RunsFound(named, _same_rows([run.path for run in runs]))


def _same_rows(folders: Sequence[Path]) -> bool:
    files = [folder / "rows.json" for folder in folders]
    if not all(file.is_file() for file in files):
        return False
    # a digest of the rows that were tested, which no two tables share by chance
    tested = [read_json(file).get("test") for file in files]
    return tested[0] is not None and all(one == tested[0] for one in tested)


def answer(found: RunsFound) -> str:
    """One sentence: whose announced method is best on test rows."""
    run = next(iter(found.runs.values()))
    chosen = {name: entry for name, entry, announced in found.lines() if announced}
    if not chosen:
        return f"None of {plural(len(found.runs), 'run')} has a score on test rows."
    means = {name: entry.score.mean or 0.0 for name, entry in chosen.items()}  # all of them have one
    best = (max if run.higher_is_better else min)(means, key=lambda name: means[name])
    entry = chosen[best]
    # to rounding: the same method in two folders is not better in one of them
    level = [name for name, mean in means.items() if name != best and ties(mean, means[best])]
    others = [
        f"{name} {found.words.show(one.score.mean)}" for name, one in chosen.items() if name not in (best, *level)
    ]
    subject = f"{best}{level_with(level)}," if level else best
    return (
        f"Of {plural(len(found.runs), 'run')}, {subject} has the best {found.words.spoken} with the method that it "
        f"chose: {entry.name}, {found.words.show(entry.score.mean)}" + (f"; {listed(others)}." if others else ".")
    )


def caution(found: RunsFound) -> str | None:
    """What keeps the scores from being compared."""
    if found.same_rows:
        return None
    return "The runs were not, or not provably, tested on the same rows: their scores differ by that, too."


def runs_text(found: RunsFound, width: int = WIDTH) -> str:
    """The table, what it means, and the answer."""
    lines = [
        [name, ("→ " if announced else "") + entry.method, *(text for _, text in found.cells(entry))]
        for name, entry, announced in found.lines()
    ]
    columns = [
        TextColumn(head, cells, 0 if place < NEEDED else place, place < 2, LABEL if place < 2 else None)
        for place, (head, *cells) in enumerate(zip(HEADS, *lines))
    ]
    doubt = caution(found)
    legend = f"{found.words.title} on test rows; →: chosen on validation rows."
    parts = [*tables_of(columns, width), legend, *([doubt] if doubt else []), "", answer(found)]
    return printed(*parts, width=width)


def runs_rows(found: RunsFound) -> list[dict[str, object]]:
    """The numbers of every method of every run."""
    keys = ("mean", "worst_decile", "gain", "helped", "hurt", "rounds", "traffic_bytes")
    return [
        {"run": name, "method": entry.method, "announced": announced}
        | dict(zip(keys, (value for value, _ in found.cells(entry)), strict=True))
        for name, entry, announced in found.lines()
    ]


def runs_facts(found: RunsFound) -> dict[str, object]:
    """For JSON."""
    facts = {"score": found.words.name, "same_rows": found.same_rows, "answer": answer(found)}
    return facts | {"runs": runs_rows(found)}


def write_runs_page(found: RunsFound, file: Path) -> Path:
    """Write the page; return its path."""
    from idiolect.report.client_data import score_facts
    from idiolect.report.figure_data import runs_figures
    from idiolect.report.html import Frame, fill

    chosen = {name: (run, method) for name, run in found.runs.items() if (method := chosen_method(run)) is not None}
    number = plural(len(found.runs), "run")
    frame = Frame(f"{number}: idiolect report", [number, *found.runs], answer(found), "the runs", caution(found))
    first = next(iter(found.runs.values()))  # all of them have its score
    data = {"figures": runs_figures(chosen), "score": score_facts(found.words, first.higher_is_better)}
    text = fill("runs.html", frame, found=found, heads=HEADS, page_data=data)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, text.encode("utf-8"))
    except OSError as error:
        raise FolderError(
            f"The page must be written to {str(file)!r}, which refused it ({error.strerror}); choose another --out."
        ) from error
    return file
