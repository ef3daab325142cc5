# SPDX-License-Identifier: Apache-2.0
"""What left each client: a run's privacy.json in lines of text and as a section of the page."""

from __future__ import annotations

from idiolect.record.privacy import Array, MethodSent, PreparationSent, Statement
from idiolect.record.words import counted
from idiolect.report.wording import count, size

EACH_SPLIT = (
    "Each split trained on other rows of the same clients and has a statement of its own, in its folder; what all of "
    "them state has left the clients."
)


def statement_lines(statement: Statement) -> list[str]:
    """The statement as text, for a terminal."""
    lines = ["What left each client", "", *common_lines(statement)]
    found = statement.exchange
    if found:
        times = [f", {count(one.uploads)} times up, {count(one.downloads)} down" for one in found.arrays]
        lines += [f"  {array_line(one)}{often}" for one, often in zip(found.arrays, times)]
        lines.append(f"  protection: {found.protection}")
    for entry in statement.methods:
        lines += ["", f"{entry.method}: {_method_line(entry)}"]
        ways = {"up    ": entry.uploads, "down  ": entry.downloads, "at the end  ": entry.deliveries}
        lines += [f"  {way}{array_line(one)}" for way, arrays in ways.items() for one in arrays]
        if entry.uploads:
            lines.append(f"  protection: {protection_line(entry)}")
    return lines


def protection_line(entry: MethodSent) -> str:
    """How a method was protected; of rows, what the clients that spent least and most have spent."""
    spent = sorted(entry.epsilons, key=lambda one: one.epsilon)
    if not spent:
        return entry.protection
    ends = [f"{one.epsilon:.3g} (client {one.client}, {counted(one.rows, 'row')})" for one in (spent[0], spent[-1])]
    return f"{entry.protection}; epsilon from {' to '.join(ends)}"


def common_lines(statement: Statement) -> list[str]:
    """Preparation, what is not counted in bytes, and what finding out who is alike sent."""
    lines = [_preparation_line(statement.preparation)] if statement.preparation else []
    for part in statement.also:
        amount = "" if part.numbers is None else f" ({counted(part.numbers, 'number')})"
        lines.append(f"Also, not counted in bytes: {part.what}{amount}.")
    found = statement.exchange
    if found:
        lines.append(
            f"Once, for {found.what}: {size(found.upload_bytes)} up and {size(found.download_bytes)} down, "
            f"each array up from {counted(found.rows_at_least or 0, 'row')} at least. {found.reveals}"
        )
    return lines


def _preparation_line(found: PreparationSent) -> str:
    if not found.columns:
        return f"Preparation, {found.way}: {found.meaning}."
    least, rest = found.rows_at_least, len(found.columns) - 3
    columns = "; ".join(f"{part.column}: {part.content}" for part in found.columns[:3])
    more = f"; and likewise for {counted(rest, 'more column')}" if rest > 0 else ""
    return (
        f"Preparation, {found.way} ({found.meaning}), once before round 0, {size(found.total_bytes)} in all, "
        f"from {least.rows} training rows at least (client {least.client}): {columns}{more}."
    )


def _method_line(entry: MethodSent) -> str:
    if not entry.uploads:
        return "nothing is sent"
    least, choosing = entry.rows_at_least, entry.rounds_to_choose
    chosen = f", after {counted(choosing, 'round')} to choose settings" if choosing else ""
    chosen += f", for each of {counted(entry.seeds, 'seed')}" if entry.seeds > 1 else ""
    return (
        f"{counted(entry.uploads_in_all, 'upload')} in {counted(entry.rounds, 'round')}{chosen}, "
        f"{size(entry.upload_bytes)}, each from {counted(least.rows, 'row')} at least (client {least.client})"
    )


def array_line(one: Array) -> str:
    """An array with its bytes."""
    return f"{array_name(one)}, {size(one.bytes)}"


def array_name(one: Array) -> str:
    """Name, shape and type."""
    return f"{one.array or 'value'} {one.shape} {one.dtype}"
