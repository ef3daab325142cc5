# SPDX-License-Identifier: Apache-2.0
"""The comparison of methods as data, and as plain text and JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from rich.table import Table

from idiolect.record.codec import to_json
from idiolect.report.answer import Answer, answer
from idiolect.report.columns import Column, MethodRow, adaptation_columns, meanings_of_marks, method_row, score_columns
from idiolect.report.folder import Run
from idiolect.report.text import LABEL, WIDTH, TextColumn, arrange, printed, starred, tables_of
from idiolect.report.wording import NONE, better, known, leaders, listed
from idiolect.visible import plainly

_ADAPTATION = (
    "Generalized: accuracy of the model a client receives, before its rows move a parameter; personalized: of its own "
    "model. Better, same, worse: clients; same: both models are equal on its test rows, which may be too few to show a "
    "difference. Rows: mean over clients of the fraction that each model gets right. Worst: the worst tenth of clients"
)
MOST = 9  # a rank that every column is below
_GAINS = ("gain", "over_one", "helped", "hurt")  # columns that compare with another method
_RARE = ("choosing_mean", "new_clients", "suboptimality", "distance_to_optimum", "over_one", "new_acc_g", "new_acc_p")


@dataclasses.dataclass(frozen=True)
class ComparisonTable:
    """Methods side by side, with the answer they give and what the run folder did not hold."""

    run: Run
    rows: tuple[MethodRow, ...]
    scored: tuple[Column, ...]  # of scores and costs, for all places
    adaptation: tuple[Column, ...]  # the same methods before and after adaptation; empty where nothing is known of it
    answer: Answer

    def columns(self, place: str = "page") -> tuple[Column, ...]:
        """Those that a page, a terminal or a notebook shows."""
        return tuple(column for column in self.scored if place in column.places)

    def cells(self, columns: tuple[Column, ...]) -> list[list[tuple[str, bool]]]:
        """Per row and column: the text, and whether it is the best of its column."""
        best = {column.key: _best(self.rows, column) for column in columns}
        return [[(column.text(row), row.entry.method in best[column.key]) for column in columns] for row in self.rows]

    def heads(self, columns: tuple[Column, ...]) -> list[tuple[str, str, bool]]:
        """Per column of a page: its title in one line, what it means, and whether it holds words."""
        return [(column.heading, column.about, column.key == "method") for column in columns]

    def to_text(self, width: int = WIDTH, details: bool = True) -> str:
        """Plain text: a star marks the best of each column; the answer and what was not found follow.

        Without `details` what a practitioner asks for, and as many of the other columns as find room.
        """
        # a name may hold what a terminal would obey: what is printed is made plain, what a program reads is not
        run = dataclasses.replace(self.run, summary=plainly(self.run.summary), missing=plainly(self.run.missing))
        # columns have line breaks of their own
        seen = dataclasses.replace(self, run=run, rows=plainly(self.rows), answer=plainly(self.answer))
        parts, keys = seen._tables(self.columns("terminal"), width, MOST if details else 1)
        parts.append(f"* best of its column. {seen.legend(keys)}")
        if self.adaptation and details:
            parts += ["", *seen._tables(self.adaptation, width, MOST)[0], seen.adaptation_legend()]
        parts += ["", seen.answer.sentence, *(f"Not found: {sentence}" for sentence in seen.run.missing)]
        return printed(*parts, width=width)

    def _tables(self, columns: tuple[Column, ...], width: int, below: int) -> tuple[list[str | Table], set[str]]:
        """The columns as tables that fit, and the keys of those that are shown."""
        told: dict[str, TextColumn] = {}
        for column, cells in zip(columns, zip(*self.cells(columns))):
            # where nothing is known of a gain, its column would only take room
            if below == MOST or column.key not in _GAINS or any(text != NONE for text, _ in cells):
                texts, label = [starred(*cell) for cell in cells], column.key == "method"
                told[column.key] = TextColumn(column.title, texts, column.rank, label, LABEL if label else None)
        shown, keys = list(told.values()), list(told)
        groups = arrange(shown, width, below=below)
        return tables_of(shown, width, below=below), {keys[place] for group in groups for place in group}

    def as_dict(self) -> dict[str, object]:
        """Every number unrounded, in the units of its name; None where there is none."""
        return {
            "run": self.run.name,
            "score": self.run.score,
            "higher_is_better": self.run.higher_is_better,
            "methods": to_json([row.as_dict() for row in self.rows]),
            "best": {column.key: sorted(_best(self.rows, column)) for column in self.columns() if column.better},
            "answer": to_json(self.answer),
            "missing": list(self.run.missing),
        }

    def legend(self, keys: Collection[str] | None = None) -> str:
        """What the columns mean, in one line; `keys` are those that are shown, all of the page's unless given."""
        found = {column.key for column in self.columns()} if keys is None else keys
        sent = {
            "with the final models": True,
            "after a common preparation": any(row["preparation_bytes"] for row in self.rows),
            "without the rounds that chose settings": any(self.run.rounds_to_choose.values()),
        }
        # how a model of theirs came about
        alone = [row.entry.method for row in self.rows if row.entry.alone and known(row["new_clients"])]
        only = f" (with {listed(alone)}, all the training its model gets)" if alone else ""
        meanings = {
            "worst_decile": "worst 10 %: mean of the worst tenth of clients",
            "new_clients": f"new clients: those that never trained, each after one round on its own rows{only}",
            "gain": "gain: mean over clients [95 % interval]",
            "helped": "helped, hurt: percent of clients, clearly",
            "traffic_bytes": f"MB: all that is sent, {', '.join(filter(sent.get, sent))}",
            "gradients_shared": "gradients per example, by block",
            "gradients": "gradients per example, by block",
        }
        head = f"{self.run.words.title} of the personal models on test rows, {better(self.run.higher_is_better)}"
        marks = meanings_of_marks(self.run, self.rows)
        return "; ".join([head, *marks, *(text for key, text in meanings.items() if key in found)]) + "."

    def adaptation_legend(self) -> str:
        """What the columns of the second table mean."""
        score = self.run.score
        plain = f"This table is in plain accuracy (%), not in {score.replace('_', ' ')}. " * (score != "accuracy")
        shown = {column.key for column in self.adaptation}
        new = "; new: clients that never trained, before and after one round on their own rows"
        lost = ", or diverged" if any(row.entry.diverged for row in self.rows) else ""
        return (
            f"{plain}{_ADAPTATION}{new if shown & {'new_acc_g', 'new_acc_p'} else ''}. "
            f"A dash: the method sends, or declares, no whole model{lost}."
        )


def compare(run: Run) -> ComparisonTable:
    """The comparison table of a run."""
    best = run.summary.announced.method if run.summary.announced else None
    # what the others are compared with as one model for all
    one = next((entry.gain_over_one.reference for entry in run.methods if entry.gain_over_one), None)
    rows = tuple(method_row(entry, best, one) for entry in run.methods)
    # most runs have nothing for these columns
    empty = {key for key in _RARE if all(row[key] is None for row in rows)}
    scored, adaptation = (
        tuple(column for column in columns if column.key not in empty)
        for columns in (score_columns(run), adaptation_columns())
    )
    # accuracy before adaptation is known where something whole is sent, and of classes
    adapted = any(row["acc_g"] is not None for row in rows)
    return ComparisonTable(run, rows, scored, adaptation if adapted else (), answer(run))


def _best(rows: tuple[MethodRow, ...], column: Column) -> frozenset[str]:
    """The methods with the best value, of those that finished; none when nothing sets them apart."""
    if not column.better:
        return frozenset()
    contenders = [row for row in rows if not row.entry.diverged and row.entry.chosen is not False]
    return frozenset(leaders({row.entry.method: row[column.key] for row in contenders}, column.better))
