# SPDX-License-Identifier: Apache-2.0
"""Repeated splits as a person reads them: the answer over all splits, the methods, and the clients."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from idiolect.record.manifest import check_report_files
from idiolect.record.reading import read_record, read_rows
from idiolect.record.splits import SplitsMethod, SplitsRow, SplitsSummary
from idiolect.record.words import counted
from idiolect.report.columns import ANNOUNCED, UNFINISHED, with_marks
from idiolect.report.folder import FolderError
from idiolect.report.text import LABEL, WIDTH, TextColumn, more_clients, printed, starred, tables_of
from idiolect.report.wording import (
    NONE,
    ScoreWords,
    better,
    count,
    gains_said,
    leaders,
    listed,
    megabytes,
    score_words,
    upper,
    verdicts_said,
)
from idiolect.visible import plainly

MOST_CLIENTS = 30  # lines of the table of clients; all are in splits.parquet


@dataclasses.dataclass(frozen=True)
class SplitsFound:
    """A folder of repeated splits in memory."""

    path: Path
    found: SplitsSummary
    rows: list[SplitsRow]

    @property
    def words(self) -> ScoreWords:
        """How the score is written."""
        return score_words(self.found.score)

    @property
    def clients(self) -> list[SplitsRow]:
        """Those of the method whose clients are shown, in the order of the file."""
        return [row for row in self.rows if row.method == self.found.personalized]


def read_splits(folder: str | os.PathLike[str]) -> SplitsFound:
    """Read the folder; FolderError says in one sentence why it cannot be."""
    path = Path(folder)
    if not (path / "splits.json").is_file():
        raise FolderError(
            f"The splits in {str(path)!r} are not all finished; go on with `idiolect run {path} --resume`, or report "
            f"on a finished one, such as {path / 'split-01'}."
        )
    check_report_files(path)
    found = read_record(SplitsSummary, path / "splits.json")
    return SplitsFound(path, found, read_rows(SplitsRow, path / "splits.parquet"))


def splits_text(splits: SplitsFound, width: int = WIDTH) -> str:
    """The methods, the answer in words, and the clients of the method that was announced most."""
    splits = plainly(splits)
    parts = tables_of(_methods(splits), width, below=1)
    parts += [f"* best of its column. {legend(splits)}", "", answer(splits)]
    clients = splits.clients
    if clients:
        parts += ["", f"Clients with {splits.found.personalized}, means over splits:"]
        parts += tables_of(_clients(splits, clients[:MOST_CLIENTS]), width, gap=2, below=1)
        parts += more_clients(len(clients) - MOST_CLIENTS, " in splits.parquet")
    return printed(*parts, width=width)


def answer(splits: SplitsFound) -> str:
    """What the splits say together, in words."""
    first, others = clauses(splits)
    return "; ".join([*first, *others]) + "." + doubts(splits.found)


def clauses(splits: SplitsFound) -> tuple[list[str], list[str]]:
    """The answer in parts: what was announced and its means; how often that was right, and the clients."""
    found, words, announced = splits.found, splits.words, splits.found.announced
    line = next((one for one in found.methods if one.method == found.personalized), None)
    clients = [verdicts_said(line.compared, line.method, line.helped, line.hurt)] if line and line.compared else []
    if announced is None:
        return [f"No method was announced in any of {found.splits} splits, for want of validation rows"], clients
    first, *others = sorted(
        (one for one in found.methods if one.announced), key=lambda one: (-one.announced, one.method != announced.most)
    )
    said = [_announcements(first, others, found.splits)]
    score = announced.score
    subject, whose = ("the announced method", "the announced method's") if others else ("it", "its")
    if score is not None:
        text = f"{whose} {words.spoken} on test rows is {words.show(score.mean)}{words.around(score.low, score.high)}"
        said.append(f"{text} on average over splits{gains_said(words, announced.gain, announced.gain_over_one)}")
    right = f"best or within noise of the best on test rows in {_of_splits(announced.best_or_tied, found.splits)}"
    return said, [f"{subject} was {right}", *clients]


def _announcements(first: SplitsMethod, others: list[SplitsMethod], total: int) -> str:
    """'ditto was announced in 7 of 10 splits, fedavg in 2 and training alone in 1'."""
    subject = upper(first.name) if first.alone else first.method
    more = [f"{line.name} in {line.announced}" for line in others]
    return f"{subject} was announced in {_of_splits(first.announced, total)}" + (f", {listed(more)}" if more else "")


def _of_splits(number: int, total: int) -> str:
    if number == total:
        return "both splits" if total == 2 else f"all {total} splits"
    return f"{number} of {total} splits"


def doubts(found: SplitsSummary) -> str:
    """What a mean over splits leaves out, and what had not converged."""
    said = [
        f" {line.method} diverged in {counted(line.diverged, 'split')}, left out of its means."
        for line in found.methods
        if line.diverged
    ]
    late = [line.method for line in found.methods if line.unconverged]
    few = "had not converged when training stopped, in some split or all, and may do better with more rounds."
    return "".join([*said, *([f" {listed(late)} {few}"] if late else [])])


def legend(splits: SplitsFound) -> str:
    """What the columns mean."""
    found = splits.found
    slow = f"{UNFINISHED} had not converged in some split; " if any(x.unconverged for x in found.methods) else ""
    mark = f"{ANNOUNCED} announced most often; " if found.announced else ""
    return (
        f"{splits.words.title} of the personal models on test rows, {better(found.higher_is_better)}; means over "
        f"{found.splits} splits of means over clients, [95 % interval over splits, corrected for the rows that they "
        f"share]; {mark}{slow}worst 10 %: mean of the worst tenth of clients; helped, hurt: clients, clearly; "
        "announced: splits that chose it on validation rows; best: splits in which it was best on test rows."
    )


def method_cells(splits: SplitsFound, line: SplitsMethod) -> list[tuple[float | None, str]]:
    """One method's numbers in the order of the page's columns: the value to sort by, and how it reads."""
    words, score, worst = splits.words, line.score, line.worst_decile
    cells: list[tuple[float | None, str]] = [
        (None, NONE) if score is None else (score.mean, words.bare(score.mean) + words.around(score.low, score.high)),
        (None, NONE) if worst is None else (worst.mean, words.bare(worst.mean)),
    ]
    # without a method of one model there is nothing that this one could be
    one = "one model" if score and any(other.gain_over_one for other in splits.found.methods) else NONE
    for gain, reference in ((line.gain, "alone" if line.alone else NONE), (line.gain_over_one, one)):
        cells.append((None, reference) if gain is None else (gain.mean, words.gain(gain.mean, gain.low, gain.high)))
    numbers = (line.helped, line.hurt, line.announced, line.best)
    cells += [(number, NONE if number is None else str(number)) for number in numbers]
    return [*cells, (line.traffic_bytes, megabytes(line.traffic_bytes))]


def marked(splits: SplitsFound, line: SplitsMethod) -> str:
    """The method's label with its marks."""
    most = splits.found.announced and splits.found.announced.most
    return with_marks(line.method, line.method == most, line.unconverged > 0)


def _methods(splits: SplitsFound) -> list[TextColumn]:
    unit, way = f" {splits.words.unit}" if splits.words.unit else "", 1 if splits.found.higher_is_better else -1
    heads = (  # which way is better, and whether it may stand below the others in a narrow terminal
        *((f"mean{unit}\n[95 %]", way, 0), ("worst\n10 %", way, 0), ("gain over\nalone [95 %]", 1, 0)),
        *(("gain over one\nmodel [95 %]", 1, 1), ("helped", 0, 0), ("hurt", 0, 0), ("an-\nnounced", 0, 1)),
        *(("best", 0, 1), ("MB", 0, 1)),
    )
    lines = {line.method: method_cells(splits, line) for line in splits.found.methods}
    labels = [marked(splits, line) for line in splits.found.methods]
    columns = [TextColumn("method", labels, words=True, least=LABEL)]
    for (head, sign, rank), cells in zip(heads, zip(*lines.values())):
        best = leaders({name: value for name, (value, _) in zip(lines, cells)}, sign)
        texts = [starred(text, name in best) for name, (_, text) in zip(lines, cells)]
        columns.append(TextColumn(head, texts, rank))
    return columns


def _clients(splits: SplitsFound, rows: list[SplitsRow]) -> list[TextColumn]:
    scores = ("score", "gain over\nalone [95 %]", "expected\ngain [95 %]")
    heads = ("client", "splits", "training\nrows", *scores, "verdict")
    cells = zip(*((row.client, *client_cells(splits.words, row)) for row in rows))
    return [
        TextColumn(head, column, rank=int(place in (1, 2, 5)), words=place in (0, 6), least=None if place else LABEL)
        for place, (head, column) in enumerate(zip(heads, cells))
    ]


def client_cells(words: ScoreWords, row: SplitsRow) -> list[str]:
    """One client of a method, as text: splits with a score, rows, score, gain, expected gain, verdict."""
    gains = [
        words.gain(row.gain, row.gain_low, row.gain_high),
        words.gain(row.gain_expected, row.gain_expected_low, row.gain_expected_high),
    ]
    return [str(row.splits), count(row.train_rows), words.bare(row.score), *gains, row.verdict or NONE]
