# SPDX-License-Identifier: Apache-2.0
"""The tables of `answers` as text: one line per table, then every fit's error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

HEADS = ("table", "ratio", "[95 %]", "winner", "right", "covered", "hurt", "true", "s", "announced", "best classical")
LEGEND = """\
ratio: test error of the announced method / of the best classical fit, [95 % by a bootstrap over clients]
winner: the same ratio of our best method over splits
right: the announced method is our best one over splits, or tied with it (corrected paired t over splits)
covered: client 95 % gain intervals that hold the client's mean gain on the other splits
hurt: client verdicts "hurt"; true: those whose mean gain on the other splits is negative too; s: seconds of a compare
error: mean over clients, then splits, of squared error or log loss on test rows; accuracy in brackets"""


def text_of(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """What answers.txt holds."""
    lines = [_line(name, found) for name, found in tables.items()]
    widths = [max(len(line[place]) for line in [HEADS, *lines]) for place in range(len(HEADS))]
    shown = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in [HEADS, *lines]]
    errors = [text for name, found in tables.items() for text in _errors(name, found)]
    return "\n".join([*shown, "", LEGEND, "", *errors])


def _line(name: str, found: Mapping[str, Any]) -> tuple[str, ...]:
    announced = ", ".join(f"{method} {times}" for method, times in found["announced"].items())
    return (
        name,
        f"{found['ratio']:.3f}",
        "[{:.2f}, {:.2f}]".format(*found["ratio, 95 % over clients"]),
        f"{found['ratio of the winner']:.3f}",
        *(_percent(found[what]) for what in ("right", "coverage", "hurt", "hurt elsewhere too")),
        f"{found['seconds of a compare']:.0f}",
        announced,
        found["best classical"],
    )


def _percent(value: float | None) -> str:
    return "none" if value is None else f"{100 * value:.1f} %"


def _errors(name: str, found: Mapping[str, Any]) -> list[str]:
    lines = [f"{name}, {found['splits']} splits"]
    for side, accuracy in (("classical", "classical accuracy"), ("ours", "our accuracy")):
        ranked = sorted(found[side].items(), key=lambda pair: pair[1])
        right = found[accuracy]
        words = [
            f"{fit} {error:.4g}" + (f" ({100 * right[fit]:.1f} %)" if fit in right else "") for fit, error in ranked
        ]
        lines.append(f"  {side}: {'; '.join(words)}")
    return lines
