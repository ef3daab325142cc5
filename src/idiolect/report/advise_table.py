# SPDX-License-Identifier: Apache-2.0
"""Advice as a person reads it: one line per client, then the sentences that say what it is worth."""

from __future__ import annotations

import dataclasses
import io
import json
import os
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from idiolect.report.folder import FolderError
from idiolect.report.wording import NONE, ScoreWords, known, plural, score_words, size

MOST_CLIENTS = 40  # lines of the table of clients; more are in advise.parquet
MOST_NEIGHBOURS = 4  # named in a line
WORDS = {"alone": "train alone", "everybody": "join everybody", "neighbours": "join neighbours"}
SURE = 0.9  # probability from which advice is given without reservation


@dataclasses.dataclass(frozen=True)
class Advised:
    """A folder of `idiolect advise` in memory."""

    path: Path
    found: dict[str, Any]  # advise.json

    @property
    def words(self) -> ScoreWords:
        """How the loss is written."""
        return score_words(self.found["score"])


def is_advice(folder: str | os.PathLike[str]) -> bool:
    """Whether the folder holds finished advice."""
    return (Path(folder) / "advise.json").is_file()


def read_advice(folder: str | os.PathLike[str]) -> Advised:
    """Read the folder; FolderError says in one sentence why it cannot be."""
    path = Path(folder)
    try:
        return Advised(path, json.loads((path / "advise.json").read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise FolderError(
            f"{str(path)!r} needs an advise.json that can be read ({error}); run `idiolect advise` again."
        ) from error


def advice_text(advised: Advised) -> str:
    """Everything that is printed."""
    found = advised.found
    parts = [_regime(found), "", _clients(advised), *_summary(advised)]
    if found["verify"] is not None:
        parts += ["", _verification(advised)]
    return "\n".join(parts)


def _regime(found: dict[str, Any]) -> str:
    """Paper 000's quantities and sizes, in two lines."""
    facts = found["regime"]
    if not facts:
        return "Heterogeneity and curvature are not known for this model."
    rows = facts["rows"]
    return (
        f"{plural(len(found['clients']), 'client')}, {rows['least']} to {rows['most']} rows each (median "
        f"{rows['median']:g}), {found['coefficients']} coefficients, {found['model'].replace('_', ' ')} loss.\n"
        f"Regime (paper 000): heterogeneity zeta* = {facts['zeta']:.3g}, gradient noise sigma = {facts['sigma']:.3g}, "
        f"condition kappa = {facts['kappa']:.3g}, radius B = {facts['radius']:.3g}; l2 = {facts['l2']:.2g}."
    )


def _clients(advised: Advised) -> str:
    found, words = advised.found, advised.words
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    verified = found["verify"] is not None
    table.add_column("client", no_wrap=True)
    for heading in ("rows", f"alone\n{words.name.replace('_', ' ')}"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("advice", no_wrap=True)
    table.add_column("expected gain\n[95 %]", justify="right", no_wrap=True)
    table.add_column("with whom (share)", overflow="fold")
    table.add_column("worth\nrows x", justify="right", no_wrap=True)
    table.add_column("bytes\na round", justify="right", no_wrap=True)
    if verified:
        table.add_column("on test\nrows", no_wrap=True)
    for place, entry in enumerate(found["clients"][:MOST_CLIENTS]):
        gain = entry["gain"][entry["advice"]]
        row = [
            escape(entry["client"]),
            str(entry["rows"]),
            words.bare(entry["loss"]["alone"]),
            WORDS[entry["advice"]] + ("" if entry["surety"] >= SURE else "?"),
            NONE
            if entry["advice"] == "alone"
            else f"{words.signed(gain['expected'])} {words.interval(gain['low'], gain['high'])}",
            escape(_with_whom(entry)),
            "1" if entry["advice"] == "alone" else f"{_worth(found, entry):.3g}",
            str(entry["round_bytes"][entry["advice"]]),
        ]
        table.add_row(*row, *([_tested(found["verify"]["clients"][place])] if verified else []))
    text = _render(table)
    left = len(found["clients"]) - MOST_CLIENTS
    return text + (f"\n{plural(left, 'more client')} in advise.parquet." if left > 0 else "")


def _worth(found: dict[str, Any], entry: dict[str, Any]) -> float:
    """How many times its own rows an agent's training then counts."""
    if entry["advice"] == "neighbours":
        return float(entry["worth"])
    total: int = sum(one["rows"] for one in found["clients"])
    return total / max(entry["rows"], 1)


def _with_whom(entry: dict[str, Any]) -> str:
    if entry["advice"] == "alone":
        return ""
    if entry["advice"] == "everybody":
        return "all, by rows"
    named = entry["neighbours"]
    shown = ", ".join(f"{one['client']} {100 * one['share']:.0f} %" for one in named[:MOST_NEIGHBOURS])
    more = f" and {len(named) - MOST_NEIGHBOURS} more" if len(named) > MOST_NEIGHBOURS else ""
    return f"self {100 * entry['own_share']:.0f} %" + (f", {shown}{more}" if named else "")


def _tested(entry: dict[str, Any]) -> str:
    if entry["right"] is None:
        return "no rows"
    if not entry["decidable"]:
        return "undecidable"
    return "right" if entry["right"] else "wrong"


def _summary(advised: Advised) -> list[str]:
    """Plain sentences under the table."""
    found, words = advised.found, advised.words
    picks = [entry["advice"] for entry in found["clients"]]
    counts = {way: picks.count(way) for way in WORDS}
    said = ", ".join(f"{plural(amount, 'client')} should {WORDS[way]}" for way, amount in counts.items() if amount)
    unsure = sum(entry["surety"] < SURE for entry in found["clients"])
    means = found["mean_loss"]
    lines = [
        f"{said}. A question mark: another way may be as good (probability of being best below {SURE:.0%}; "
        f"{plural(unsure, 'client')}).",
        f"Held-out {words.name.replace('_', ' ')}, mean over clients: "
        + ", ".join(f"{way} {words.show(means[way])}" for way in WORDS)
        + ".",
        f"Predicted by the weights: {found['map']['speed_up']:.3g} times fewer samples than alone (harmonic mean over "
        "clients of how many times their own rows their neighbours' rows are worth).",
    ]
    sent = found["exchange"]
    lines.append(
        f"Finding this out would send {size(sent['upload_bytes'])} up and {size(sent['download_bytes'])} down in a "
        f"federation ({plural(sent['pairs'], 'pair')} judged). {sent['reveals']}"
    )
    return lines


def _verification(advised: Advised) -> str:
    verdict, words = advised.found["verify"], advised.words
    name = words.name.replace("_", " ")
    tested, splits = verdict["tested"], len(verdict["seeds"])
    over = f" over {splits} splits" if splits > 1 else ""
    lines = [
        f"Verified on test rows{over}: the advice was best, or within noise of best, for {verdict['right']} of "
        f"{tested} clients ({100 * verdict['right'] / max(tested, 1):.0f} %). {verdict['decidable']} could be decided "
        f"at all; of these it was right for {verdict['right_of_decidable']}.",
        f"Regret, mean {name} above each client's best way [95 %]:",
    ]
    for way, numbers in verdict["regret"].items():
        lines.append(f"  {way:<18} {words.bare(numbers['mean'])} {_plain_interval(words, numbers)}")
    for way, numbers in verdict["saved_against"].items():
        if known(numbers["low"]) and way != "always neighbours":
            lines.append(
                f"Against {way} the advice saves {words.signed(numbers['mean'])} "
                f"{words.interval(numbers['low'], numbers['high'])}."
            )
    return "\n".join(lines)


def _plain_interval(words: ScoreWords, numbers: dict[str, float]) -> str:
    if not known(numbers["low"]):
        return ""
    return f"[{words.bare(numbers['low'])}, {words.bare(numbers['high'])}]"


def _render(table: Table) -> str:
    target = io.StringIO()
    Console(file=target, width=132, force_terminal=False, color_system=None).print(table)
    return "\n".join(line.rstrip() for line in target.getvalue().splitlines())
