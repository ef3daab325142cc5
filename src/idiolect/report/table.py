# SPDX-License-Identifier: Apache-2.0
"""The comparison of methods as data, and as a terminal table, plain text, Markdown and JSON."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from idiolect.report.answer import Answer, answer
from idiolect.report.clients import ClientTable
from idiolect.report.folder import Run, is_alone
from idiolect.report.wording import (
    NONE,
    ScoreWords,
    absent,
    count,
    finite,
    megabytes,
    percent,
    score_words,
    small,
)

WIDTH = 120  # columns of the narrowest terminal we count on


@dataclasses.dataclass(frozen=True)
class MethodRow:
    """One method: scores over clients (personal models, test rows, selected round) and what they cost."""

    method: str
    mean: float | None
    interval_low: float | None
    interval_high: float | None
    worst_decile: float | None
    spread: float | None
    shared_mean: float | None
    gain: float | None
    gain_low: float | None
    gain_high: float | None
    helped: float | None  # percent of clients that score strictly better than alone
    hurt: float | None
    rounds: int | None
    upload_bytes: int | None
    download_bytes: int | None
    delivery_bytes: int | None
    gradients_shared: int | None
    gradients_personal: int | None
    gradients_both: int | None
    alone: bool  # this is training alone: nothing to gain against itself
    diverged: str | None
    new_clients: float | None = None  # mean score of clients that never trained
    suboptimality: float | None = None  # of the training objective, where its optimum is known
    distance_to_optimum: float | None = None

    @property
    def gradients(self) -> int | None:
        """Gradient evaluations whatever the block, or None when none was recorded."""
        known = [n for n in (self.gradients_shared, self.gradients_personal, self.gradients_both) if n is not None]
        return sum(known) if known else None


class Column(NamedTuple):
    """One column of the table: where its number is, how it reads, and which way is better (0: neither)."""

    key: str
    title: str  # a line break where the heading may be split
    better: int
    text: Callable[[MethodRow], str]
    about: str  # one sentence for whoever wonders


@dataclasses.dataclass(frozen=True)
class ComparisonTable:
    """Methods side by side, with the answer they give and what the run folder did not hold."""

    run: str
    score: str
    higher_is_better: bool
    rows: tuple[MethodRow, ...]
    columns: tuple[Column, ...]
    answer: Answer
    missing: tuple[str, ...]

    def cells(self, columns: tuple[Column, ...]) -> list[list[tuple[str, bool]]]:
        """Per row and column: the text, and whether it is the best of its column."""
        best = {column.key: _best(self.rows, column) for column in columns}
        return [[(column.text(row), row.method in best[column.key]) for column in columns] for row in self.rows]

    def to_rich(self) -> Table:
        """A table for a terminal; the best of each column is bold."""
        columns = _narrow(self.columns)
        table = _frame(columns, self.rows)
        for line in self.cells(columns):
            table.add_row(*(Text(text, style="bold" if best else "") for text, best in line))
        return table

    def to_text(self, width: int = WIDTH) -> str:
        """Plain text: a star marks the best of each column; the answer and what was not found follow."""
        columns = _narrow(self.columns)
        table = _frame(columns, self.rows)
        for line in self.cells(columns):
            # A blank in the star's place keeps the digits of a column under each other.
            table.add_row(*(Text(text + ("*" if best else " ")) for text, best in line))
        console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False, emoji=False)
        console.print(table)
        console.print(f"* best of its column. {escape(self.legend())}")
        console.print("\n" + escape(self.answer.sentence))
        for sentence in self.missing:
            console.print(escape(f"Not found: {sentence}"))
        lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
        return "\n".join(line.rstrip() for line in lines).strip("\n") + "\n"

    def to_markdown(self) -> str:
        """A Markdown table; ** marks the best of each column."""
        titles = [_markdown(column.title.replace("\n", " ")) for column in self.columns]
        lines = ["| " + " | ".join(titles) + " |", "|:--|" + "--:|" * (len(titles) - 1)]
        for line in self.cells(self.columns):
            texts = (f"**{_markdown(text)}**" if best else _markdown(text) for text, best in line)
            lines.append("| " + " | ".join(texts) + " |")
        lines += ["", _markdown(self.legend()), "", _markdown(self.answer.sentence)]
        lines += [f"\nNot found: {_markdown(sentence)}" for sentence in self.missing]
        return "\n".join(lines) + "\n"

    def to_json(self) -> str:
        """Every number unrounded, in the units of its name; null where there is none."""
        return json.dumps(self.as_dict(), indent=2, allow_nan=False)

    def as_dict(self) -> dict[str, Any]:
        """What `to_json` writes."""
        return {
            "run": self.run,
            "score": self.score,
            "higher_is_better": self.higher_is_better,
            "methods": [_plain(row) for row in self.rows],
            "best": {column.key: sorted(_best(self.rows, column)) for column in self.columns if column.better},
            "answer": _plain(self.answer),
            "missing": list(self.missing),
        }

    def legend(self) -> str:
        """What the columns mean, in one line."""
        direction = "higher" if self.higher_is_better else "lower"
        return (
            f"{score_words(self.score).title} of the personal models on test rows, {direction} is better; "
            "worst 10 %: mean of the worst tenth of clients; gain: mean over clients against training alone "
            "[95 % interval]; gradients per example, by block."
        )


def compare(run: Run) -> ComparisonTable:
    """The comparison table of a run."""
    rows = tuple(_row(entry) for entry in run.methods)
    columns = _columns(score_words(run.score), run.higher_is_better)
    for key in ("new_clients", "suboptimality", "distance_to_optimum"):  # most runs have none of these
        if all(getattr(row, key) is None for row in rows):
            columns = tuple(column for column in columns if column.key != key)
    return ComparisonTable(run.name, run.score, run.higher_is_better, rows, columns, answer(run), run.missing)


def client_table_to_rich(clients: ClientTable, score: str, limit: int | None = None) -> Table:
    """One method's clients for a terminal, the most hurt first; `limit` keeps the first so many."""
    words = score_words(score)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, title=None)
    table.add_column("client", overflow="fold")
    for title in ("rows", "alone", "shared", "personal", "gain"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("95 % interval", justify="right", no_wrap=True)
    table.add_column("verdict")
    colour = {"helped": "green", "hurt": "red"}
    for m in clients.order()[:limit]:
        verdict = str(clients.verdict[m])
        table.add_row(
            Text(str(clients.client[m]) + (" (never trained)" if clients.held_out[m] else "")),
            percent(clients.train_rows[m]),
            words.bare(clients.alone[m]),
            words.bare(clients.shared[m]),
            words.bare(clients.personal[m]),
            words.signed(clients.gain[m]),
            words.interval(clients.gain_low[m], clients.gain_high[m]) or NONE,
            Text(verdict or NONE, style=colour.get(verdict, "")),
        )
    return table


def _columns(words: ScoreWords, higher_is_better: bool) -> tuple[Column, ...]:
    way = 1 if higher_is_better else -1
    unit = f" {words.unit}" if words.unit else ""

    def gradients(block: str) -> Callable[[MethodRow], str]:
        return lambda row: count(getattr(row, f"gradients_{block}"))

    return (
        Column("method", "method", 0, lambda row: row.method, "The label of the method in the spec."),
        Column("mean", f"mean{unit}", way, lambda row: words.bare(row.mean), "Mean over clients and seeds."),
        Column(
            "worst_decile",
            "worst\n10 %",
            way,
            lambda row: words.bare(row.worst_decile),
            "Mean over the worst tenth of the clients.",
        ),
        Column(
            "new_clients", "new\nclients", way, lambda row: words.bare(row.new_clients), "Clients that never trained."
        ),
        Column("spread", "spread", -1, lambda row: words.bare(row.spread), "Standard deviation over the clients."),
        Column("suboptimality", "subopti-\nmality", -1, lambda row: small(row.suboptimality), "F minus its optimum."),
        Column(
            "distance_to_optimum",
            "squared\ndistance",
            -1,
            lambda row: small(row.distance_to_optimum),
            "Mean squared distance of the models to the optimum.",
        ),
        Column("gain", "gain\n[95 %]", 1, lambda row: _gain(row, words), "Mean gain against training alone."),
        Column("helped", "helped\n%", 1, lambda row: percent(row.helped), "Clients that score better than alone."),
        Column("hurt", "hurt\n%", -1, lambda row: percent(row.hurt), "Clients that score worse than alone."),
        Column("rounds", "rounds", 0, lambda row: count(row.rounds), "Exchanges with the server."),
        Column("upload_bytes", "MB\nup", -1, lambda row: megabytes(row.upload_bytes), "From all clients."),
        Column("download_bytes", "MB\ndown", -1, lambda row: megabytes(row.download_bytes), "To all clients."),
        Column(
            "gradients_shared",
            "gradients\nshared",
            0,
            gradients("shared"),
            "Gradients of the shared block, counted per example.",
        ),
        Column(
            "gradients_personal",
            "\npersonal",
            0,
            gradients("personal"),
            "Gradients of the personal block, counted per example.",
        ),
        Column("gradients_both", "\nboth", 0, gradients("both"), "Gradients of both blocks in one pass."),
    )


def _row(entry: dict[str, Any]) -> MethodRow:
    score, gain = entry.get("score") or {}, entry.get("gain") or {}
    low, high = entry.get("interval") or (None, None)
    alone, diverged = is_alone(entry), entry.get("diverged")
    counts = {name: entry.get(name) for name in _COUNTS}
    compared = bool(gain) and not alone
    return MethodRow(
        method=str(entry["method"]),
        mean=score.get("mean"),
        interval_low=low,
        interval_high=high,
        worst_decile=score.get("worst_decile"),
        spread=score.get("spread"),
        shared_mean=entry.get("shared_mean"),
        gain=gain.get("mean") if compared else None,
        gain_low=gain.get("low") if compared else None,
        gain_high=gain.get("high") if compared else None,
        helped=entry.get("helped") if compared else None,
        hurt=entry.get("hurt") if compared else None,
        alone=alone,
        diverged=diverged,
        new_clients=(entry.get("new_clients") or {}).get("mean"),
        suboptimality=entry.get("suboptimality"),
        distance_to_optimum=entry.get("distance_to_optimum"),
        **counts,
    )


_COUNTS = (
    "rounds",
    "upload_bytes",
    "download_bytes",
    "delivery_bytes",
    "gradients_shared",
    "gradients_personal",
    "gradients_both",
)


def _best(rows: tuple[MethodRow, ...], column: Column) -> frozenset[str]:
    """The methods with the best value, of those that finished; none when nothing sets them apart."""
    if not column.better:
        return frozenset()
    values = {row.method: getattr(row, column.key) for row in rows if not row.diverged}
    values = {method: column.better * value for method, value in values.items() if not absent(value)}
    if len(set(values.values())) < 2:
        return frozenset()
    return frozenset(method for method, value in values.items() if value == max(values.values()))


def _gain(row: MethodRow, words: ScoreWords) -> str:
    if row.diverged and absent(row.gain):
        return "diverged"
    if row.alone:
        return "alone"
    return f"{words.signed(row.gain)} {words.interval(row.gain_low, row.gain_high)}".rstrip()


def _narrow(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """The same columns for a terminal: the three counts of gradients side by side in one."""

    def blocks(row: MethodRow) -> str:
        return "/".join(count(getattr(row, column.key)).replace(" ", "") for column in columns[-3:])

    about = "Gradients per example by block; ranked by their sum."
    return columns[:-3] + (Column("gradients", "gradients\nshared/\npersonal/both", 0, blocks, about),)


def _frame(columns: tuple[Column, ...], rows: tuple[MethodRow, ...]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=0)
    label = max((len(row.method) for row in rows), default=0)
    for column in columns:
        words = column.key == "method"
        table.add_column(
            column.title,
            justify="left" if words else "right",
            no_wrap=not words,
            overflow="fold" if words else "ellipsis",
            # Only labels can be wrapped, so a narrow terminal would squeeze them to nothing.
            min_width=min(label, 14) if words else None,
        )
    return table


def _plain(record: Any) -> dict[str, Any]:
    return {
        name: finite(value) if isinstance(value, float) else value for name, value in dataclasses.asdict(record).items()
    }


def _markdown(text: str) -> str:
    """Text that a table cell shows as it is."""
    for mark in "\\`*_|<>[]":
        text = text.replace(mark, "\\" + mark)
    return " ".join(text.split())
