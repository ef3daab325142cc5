# SPDX-License-Identifier: Apache-2.0
"""The result of `peers` as a text: a table per problem."""

from __future__ import annotations

from typing import Any

COLUMNS = ("", "s a round", "x ours", "(least, most)", "CPU s", "x ours", "first, s", "peak MB", "loss", "")


def table(numbers: dict[str, Any]) -> str:
    """Every library beside ours, and what could not be measured with its reason."""
    lines: list[str] = []
    for name, facts in numbers["environments"].items():
        lines += [f"{name}: {note}" for note in facts["notes"]]
    for name, part in numbers.items():
        if name != "environments":
            lines += ["", *_problem(name, part)]
    return "\n".join(lines).strip()


def _problem(name: str, part: dict[str, Any]) -> list[str]:
    load = " -> ".join(f"{value:.1f}" for value in part["load before and after"])
    head = f"{name}: {part['rounds']} rounds of {part['steps of a round']} steps, load {load}"
    measured = {each: found for each, found in part["libraries"].items() if not isinstance(found, str)}
    rows = [COLUMNS, *(_row(each, found) for each, found in measured.items())]
    widths = [max(len(row[place]) for row in rows) for place in range(len(COLUMNS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    reasons = [f"{each}: {found}" for each, found in part["libraries"].items() if isinstance(found, str)]
    return [head, *lines, *reasons]


def _row(name: str, found: dict[str, Any]) -> tuple[str, ...]:
    least, most = found["seconds of a round, ratios"]
    return (
        f"{name}, {found['how']}",
        f"{found['seconds of a round, median']:.4g}",
        f"{found['seconds of a round, ratio']:.3g}",
        f"({least:.3g}, {most:.3g})",
        f"{found['CPU seconds of a round, median']:.4g}",
        "-" if (cpu := found["CPU seconds of a round, ratio"]) is None else f"{cpu:.3g}",
        f"{found['first result, s']:.1f}",
        f"{found['peak MB']:.0f}",
        f"{found['loss at the end']:.4f}",
        "" if found["same loss"] else f"ELSEWHERE: {found['loss apart, of the progress']:.1%} of the progress apart",
    )
