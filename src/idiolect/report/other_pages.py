# SPDX-License-Identifier: Apache-2.0
"""The folders of `dial`, `compare --splits` and `advise` as text, data, and pages in the frame of a run's."""

from __future__ import annotations

from pathlib import Path

from idiolect.record.codec import to_json
from idiolect.report import Reported, advise_table, choice_table, splits_table
from idiolect.report.advise_figure import drawn_map, map_data
from idiolect.report.choice import read_dial
from idiolect.report.choice_figure import choice_data, drawn_choice
from idiolect.report.html import Frame
from idiolect.report.page import files_of, write_other_page
from idiolect.report.privacy import EACH_SPLIT
from idiolect.report.wording import plural, upper


def report_dial(folder: Path) -> Reported:
    """Write figures/dial.png, dial.svg and report.html into a dial's folder."""
    choice = read_dial(folder)
    found, (first, *others) = choice.found, choice_table.sentences(choice)
    told = [f"Dial {found.name}", found.method, plural(len(found.clients), "client"), plural(len(found.seeds), "seed")]
    frame = Frame(f"{found.name}: idiolect dial", told, first, folder.name, further=" ".join(others))
    drawn, data = drawn_choice(choice, "dial"), {"dial": choice_data(choice)}
    legend = choice_table.legend(choice)
    page = write_other_page(folder, "dial.html", frame, drawn, data, choice=choice, legend=legend)
    return Reported(
        page,
        lambda details, width: choice_table.choice_text(choice, width),
        lambda: to_json(found) | files_of(page, "dial"),
        lambda: to_json(found.values),
    )


def report_splits(folder: Path) -> Reported:
    """Write report.html into a folder of repeated splits."""
    splits = splits_table.read_splits(folder)
    found, number = splits.found, plural(splits.found.splits, "split")
    told = [f"Run {found.name}", number, plural(len(found.methods), "method"), plural(found.all_clients, "client")]
    first, others = ("; ".join(part) for part in splits_table.clauses(splits))
    further = (f"{upper(others)}." if others else "") + splits_table.doubts(found)
    frame = Frame(f"{found.name}: idiolect, {number}", told, f"{first}.", folder.name, further=further)
    parts = {"splits": splits, "told": splits_table, "each_split": EACH_SPLIT}
    page = write_other_page(folder, "splits.html", frame, [], {}, **parts)
    return Reported(
        page,
        lambda details, width: splits_table.splits_text(splits, width),
        lambda: (
            to_json(found)
            | {"answer": splits_table.answer(splits), "clients": to_json(splits.clients)}
            | files_of(page)
        ),
        lambda: to_json(found.methods),
    )


def report_advice(folder: Path) -> Reported:
    """Write figures/map.png, map.svg and report.html into a folder of advice."""
    advised = advise_table.read_advice(folder)
    found, (first, *others) = advised.found, advise_table.sentences(advised)
    told = [f"Advice on {found.name}", plural(found.all_clients, "client"), f"split {found.seed}"]
    frame = Frame(f"{found.name}: idiolect advise", told, first, folder.name, further=" ".join(others))
    drawn, data = drawn_map(advised), {"map": map_data(advised)}
    page = write_other_page(folder, "advise.html", frame, drawn, data, advised=advised, told=advise_table)
    return Reported(
        page,
        lambda details, width: advise_table.advice_text(advised, details, width),
        lambda: to_json(found) | files_of(page, "map"),
        advised.rows,
    )
