# SPDX-License-Identifier: Apache-2.0
"""The dial as a person reads it: score and price of every value, and what the clients' own choices give."""

from __future__ import annotations

import dataclasses
import io
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from idiolect.report.folder import FolderError
from idiolect.report.wording import ScoreWords, count, megabytes, plural, score_words, size

MOST_CLIENTS = 30  # lines of the table of clients; more are in dial.parquet


@dataclasses.dataclass(frozen=True)
class Dial:
    """A dial's folder in memory."""

    path: Path
    found: dict[str, Any]  # dial.json
    clients: pa.Table  # dial.parquet

    @property
    def words(self) -> ScoreWords:
        """How the score is written."""
        return score_words(self.found["score"])

    @property
    def values(self) -> list[float]:
        """The values, in the order of the path."""
        return [float(entry["value"]) for entry in self.found["values"]]

    def of_client(self, name: str) -> list[dict[str, Any]]:
        """The rows of one client, in the order of the path."""
        return [row for row in self.clients.to_pylist() if row["client"] == name]


def is_dial(folder: str | os.PathLike[str]) -> bool:
    """Whether the folder holds a finished dial."""
    return (Path(folder) / "dial.json").is_file()


def read_dial(folder: str | os.PathLike[str]) -> Dial:
    """Read a dial's folder; FolderError says in one sentence why it cannot be."""
    path = Path(folder)
    try:
        found = json.loads((path / "dial.json").read_text(encoding="utf-8"))
        clients = pq.read_table(path / "dial.parquet")
    except (OSError, ValueError) as error:
        raise FolderError(
            f"{str(path)!r} needs a dial.json and a dial.parquet that can be read ({error}); run the dial again."
        ) from None
    return Dial(path, found, clients)


def dial_text(dial: Dial, width: int = 120) -> str:
    """Two tables and the answer in words."""
    console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False, emoji=False)
    console.print(_by_value(dial))
    console.print(escape(legend(dial)))
    console.print()
    console.print(_by_client(dial))
    hidden = len(dial.found["clients"]) - MOST_CLIENTS
    if hidden > 0:
        console.print(f"{plural(hidden, 'more client')} in dial.parquet.")
    console.print("\n" + escape(answer(dial)))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in lines).strip("\n") + "\n"


def legend(dial: Dial) -> str:
    """What the columns mean."""
    direction = "higher" if dial.found["higher_is_better"] else "lower"
    return (
        f"{dial.words.title} of the personal models, {direction} is better; worst 10 %: mean of the worst tenth of "
        "clients; MB both ways and delivered, gradients per example: for the stretch, and in all so far. "
        "* best mean on validation rows of the fixed values."
    )


def answer(dial: Dial) -> str:
    """What the choice on validation rows is worth, and what the whole path cost."""
    found, words = dial.found, dial.words
    best = next(entry for entry in found["values"] if entry["value"] == found["best_fixed"])
    total, chosen = found["values"][-1]["spent_so_far"], found["chosen"]
    own, fixed = (
        f"{words.show(entry['test']['mean'])} (worst tenth {words.show(entry['test']['worst_decile'])})"
        for entry in (chosen, best)
    )
    sentence = (
        f"Each client's own {found['setting']}, chosen on its validation rows, gives {own} on test rows; the best "
        f"fixed value, {best['value']:g}, gives {fixed}. The whole path cost {size(total['total_bytes'])} and "
        f"{count(total['gradients'])} gradients."
    )
    without = sum(not own for own in chosen["own"])
    if without:
        sentence += (
            f" {plural(without, 'client')} without a score on validation rows took the value that is best on average."
        )
    return sentence


def _by_value(dial: Dial) -> Table:
    words, found = dial.words, dial.found
    unit = f" {words.unit}" if words.unit else ""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    table.add_column(found["setting"], no_wrap=True)
    titles = (
        f"validation\nmean{unit}",
        "worst\n10 %",
        f"test\nmean{unit}",
        "worst\n10 %",
        "chosen\nby",
        "rounds",
        "MB",
        "MB\nin all",
        "gradients",
        "gradients\nin all",
    )
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    for entry in found["values"]:
        star = "*" if entry["value"] == found["best_fixed"] else " "
        table.add_row(
            f"{entry['value']:g}{star}",
            *_four(entry, words),
            str(entry["chosen_by"]),
            count(entry["rounds"]),
            megabytes(entry["spent"]["total_bytes"]),
            megabytes(entry["spent_so_far"]["total_bytes"]),
            count(entry["spent"]["gradients"]),
            count(entry["spent_so_far"]["gradients"]),
        )
    last = found["values"][-1]["spent_so_far"]
    rounds = sum(entry["rounds"] for entry in found["values"])
    totals = (megabytes(last["total_bytes"]), "", count(last["gradients"]), "")
    table.add_row("own choice", *_four(found["chosen"], words), str(len(found["clients"])), count(rounds), *totals)
    return table


def _four(entry: dict[str, Any], words: ScoreWords) -> list[str]:
    return [words.bare(entry[split][part]) for split in ("validation", "test") for part in ("mean", "worst_decile")]


def _by_client(dial: Dial) -> Table:
    """Every client's test score at every value; brackets mark its choice."""
    words = dial.words
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    table.add_column("client", overflow="fold")
    table.add_column("rows", justify="right", no_wrap=True)
    for value in dial.values:
        table.add_column(f"test at\n{value:g}", justify="right", no_wrap=True)
    table.add_column("chooses", justify="right", no_wrap=True)
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in dial.clients.to_pylist():
        rows.setdefault(row["client"], []).append(row)
    for name in dial.found["clients"][:MOST_CLIENTS]:
        own = rows[name]
        cells = [
            escape(f"[{words.bare(row['test'])}]") if row["chosen"] else f"{words.bare(row['test'])} " for row in own
        ]
        chosen = next(row["value"] for row in own if row["chosen"])
        table.add_row(escape(name), count(own[0]["train_rows"]), *cells, f"{chosen:g}")
    return table
