# SPDX-License-Identifier: Apache-2.0
"""Repeated splits as a person reads them: the answer over all splits, the methods, and the clients."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from idiolect.record.codec import to_json
from idiolect.record.manifest import check_report_files
from idiolect.record.reading import read_record, read_rows
from idiolect.record.splits import SplitsAnnounced, SplitsMean, SplitsMethod, SplitsRow, SplitsSummary
from idiolect.report.columns import ANNOUNCED, UNFINISHED, with_marks
from idiolect.report.folder import FolderError
from idiolect.report.text import LABEL, WIDTH, TextColumn, more_clients, printed, starred, tables_of
from idiolect.report.wording import (
    NONE,
    ScoreWords,
    count,
    gains_said,
    leaders,
    listed,
    megabytes,
    plural,
    score_words,
    upper,
    verdicts_said,
)
from idiolect.visible import plainly

MOST_CLIENTS = 30  # lines of the table of clients; all are in splits.parquet
_SECOND = ("gain over one\nmodel [95 %]", "an-\nnounced", "best", "MB")  # below the others in a narrow terminal


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

    def of_method(self, method: str | None) -> list[SplitsRow]:
        """The clients of one method, in the order of the file."""
        return [row for row in self.rows if row.method == method]

    def as_dict(self) -> dict[str, object]:
        """Everything, for JSON: the summary, the answer, and the clients of the method that is shown."""
        shown = self.of_method(self.found.personalized)
        return to_json(self.found) | {"answer": answer(self), "clients": to_json(shown)}


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
    clients = splits.of_method(splits.found.personalized)
    if clients:
        parts += ["", f"Clients with {splits.found.personalized}, means over splits:"]
        parts += tables_of(_clients(splits, clients[:MOST_CLIENTS]), width, gap=2, below=1)
        parts += more_clients(len(clients) - MOST_CLIENTS, "in splits.parquet")
    return printed(*parts, width=width)


def answer(splits: SplitsFound) -> str:
    """What the splits say together, in words."""
    first, others = clauses(splits)
    return "; ".join([*first, *others]) + "." + doubts(splits.found)


def clauses(splits: SplitsFound) -> tuple[list[str], list[str]]:
    """The answer in parts: what was announced and its means; how often that was right, and the clients."""
    found = splits.found
    announced, total = found.announced, found.splits
    if announced is None:
        first = [f"No method was announced in any of {total} splits, for want of validation rows"]
        return first, _client_counts(splits)
    right = f"best or within noise of the best on test rows in {_of_splits(announced.best_or_tied, total)}"
    subject = "the announced method" if len(_times(found)) > 1 else "it"
    first = [_announcements(splits), *_announced_means(splits, announced)]
    return first, [f"{subject} was {right}", *_client_counts(splits)]


def _times(found: SplitsSummary) -> list[SplitsMethod]:
    """Methods that were announced at all, the most often announced first."""
    most = found.announced and found.announced.most
    named = [line for line in found.methods if line.announced]
    return sorted(named, key=lambda line: (-line.announced, line.method != most))


def _announcements(splits: SplitsFound) -> str:
    """'ditto was announced in 7 of 10 splits, fedavg in 2 and training alone in 1'."""
    found = splits.found
    first, *others = _times(found)
    subject = upper(first.name) if first.alone else first.method
    number = _of_splits(first.announced, found.splits)
    more = [f"{line.name} in {line.announced}" for line in others]
    return f"{subject} was announced in {number}" + (f", {listed(more)}" if more else "")


def _of_splits(number: int, total: int) -> str:
    if number == total:
        return "both splits" if total == 2 else f"all {total} splits"
    return f"{number} of {total} splits"


def _announced_means(splits: SplitsFound, announced: SplitsAnnounced) -> list[str]:
    """The announced methods' mean score and gains, with their intervals over splits."""
    words, score = splits.words, announced.score
    if score is None:
        return []
    who = "its" if len(_times(splits.found)) == 1 else "the announced method's"
    text = f"{who} {words.spoken} on test rows is {words.show(score.mean)}{interval(words, score)}"
    return [f"{text} on average over splits{gains_said(words, announced.gain, announced.gain_over_one)}"]


def _client_counts(splits: SplitsFound) -> list[str]:
    method = splits.found.personalized
    line = next((one for one in splits.found.methods if one.method == method), None)
    if line is None or not line.compared:
        return []
    return [verdicts_said(line.compared, line.method, line.helped, line.hurt)]


def doubts(found: SplitsSummary) -> str:
    """What a mean over splits leaves out, and what had not converged."""
    sentences = []
    for line in found.methods:
        if line.diverged:
            sentences.append(f"{line.method} diverged in {plural(line.diverged, 'split')}, left out of its means.")
    late = [line.method for line in found.methods if line.unconverged]
    if late:
        sentences.append(
            f"{listed(late)} had not converged when training stopped, in some split or all, and may do better "
            "with more rounds."
        )
    return "".join(f" {text}" for text in sentences)


def legend(splits: SplitsFound) -> str:
    """What the columns mean."""
    found = splits.found
    direction = "higher" if found.higher_is_better else "lower"
    slow = f"{UNFINISHED} had not converged in some split; " if any(x.unconverged for x in found.methods) else ""
    mark = f"{ANNOUNCED} announced most often; " if found.announced else ""
    return (
        f"{splits.words.title} of the personal models on test rows, {direction} is better; means over "
        f"{found.splits} splits of means over clients, [95 % interval over splits, corrected for the rows that they "
        f"share]; {mark}{slow}worst 10 %: mean of the worst tenth of clients; helped, hurt: clients, clearly; "
        "announced: splits that chose it on validation rows; best: splits in which it was best on test rows."
    )


def interval(words: ScoreWords, value: SplitsMean) -> str:
    """' [low, high]' of a mean, or nothing where it is unknown."""
    return f" {words.around(value.low, value.high)}".rstrip()


def method_cells(splits: SplitsFound, line: SplitsMethod) -> list[tuple[float | None, str]]:
    """One method's numbers in the order of the page's columns: the value to sort by, and how it reads."""
    words, score, worst = splits.words, line.score, line.worst_decile
    cells: list[tuple[float | None, str]] = [
        (None, NONE) if score is None else (score.mean, words.bare(score.mean) + interval(words, score)),
        (None, NONE) if worst is None else (worst.mean, words.bare(worst.mean)),
    ]
    # without a method of one model there is nothing that this one could be
    compared = any(one.gain_over_one for one in splits.found.methods)
    alone = "alone" if line.alone else NONE
    for gain, reference in ((line.gain, alone), (line.gain_over_one, "one model" if compared and score else NONE)):
        cells.append((None, reference) if gain is None else (gain.mean, words.gain(gain.mean, gain.low, gain.high)))
    cells += [(number, NONE if number is None else str(number)) for number in (line.helped, line.hurt)]
    cells += [(number, str(number)) for number in (line.announced, line.best)]
    return [*cells, (line.traffic_bytes, megabytes(line.traffic_bytes))]


def marked(splits: SplitsFound, line: SplitsMethod) -> str:
    """The method's label with its marks."""
    most = splits.found.announced and splits.found.announced.most
    return with_marks(line.method, line.method == most, line.unconverged > 0)


def _methods(splits: SplitsFound) -> list[TextColumn]:
    unit, way = f" {splits.words.unit}" if splits.words.unit else "", 1 if splits.found.higher_is_better else -1
    scores = (f"mean{unit}\n[95 %]", "worst\n10 %", "gain over\nalone [95 %]", "gain over one\nmodel [95 %]")
    heads = (*scores, "helped", "hurt", "an-\nnounced", "best", "MB")
    lines = {line.method: method_cells(splits, line) for line in splits.found.methods}
    labels = [marked(splits, line) for line in splits.found.methods]
    columns = [TextColumn("method", labels, words=True, least=LABEL)]
    for place, head in enumerate(heads):
        sign = (way, way, 1, 1)[place] if place < len(scores) else 0
        best = leaders({name: cells[place][0] for name, cells in lines.items()}, sign) if sign else set[str]()
        cells = [starred(cells[place][1], name in best) for name, cells in lines.items()]
        columns.append(TextColumn(head, cells, rank=int(head in _SECOND)))
    return columns


def _clients(splits: SplitsFound, rows: list[SplitsRow]) -> list[TextColumn]:
    heads = (
        "client",
        "splits",
        "training\nrows",
        "score",
        "gain over\nalone [95 %]",
        "expected\ngain [95 %]",
        "verdict",
    )
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
