# SPDX-License-Identifier: Apache-2.0
"""The folders of `dial`, `compare --splits` and `advise` as HTML pages, in the frame of a run's."""

from __future__ import annotations

from pathlib import Path

from idiolect.record.reading import read_statement
from idiolect.report import advise_table, choice_table, splits_table
from idiolect.report.advise_figure import drawn_map, map_data
from idiolect.report.advise_table import Advised
from idiolect.report.choice import ChoiceFound
from idiolect.report.choice_figure import choice_data, drawn_choice
from idiolect.report.figure_data import sent
from idiolect.report.folder import read_machine, read_spec
from idiolect.report.html import Frame, facts, fill
from idiolect.report.page import write_page
from idiolect.report.privacy import EACH_SPLIT
from idiolect.report.splits_table import SplitsFound
from idiolect.report.wording import plural, upper


def write_dial_page(choice: ChoiceFound) -> Path:
    """Write figures/dial.png, dial.svg and report.html into a dial's folder; return the page's path."""
    found, drawn = choice.found, [drawn_choice(choice, "dial")]
    told = [f"Dial {found.name}", found.method, plural(len(found.clients), "client"), plural(len(found.seeds), "seed")]
    frame = Frame(f"{found.name}: idiolect dial", told, *_headed(choice_table.sentences(choice), choice.path))
    parts: dict[str, object] = {"choice": choice, "legend": choice_table.legend(choice), "drawn": drawn}
    parts["page_data"] = {"figures": {"dial": choice_data(choice)} | _sent(choice.path)}
    return write_page(choice.path, fill("dial.html", frame, **parts, **_of_folder(choice.path)), drawn)


def write_splits_page(splits: SplitsFound) -> Path:
    """Write report.html into the folder; return the page's path."""
    found, number = splits.found, plural(splits.found.splits, "split")
    told = [f"Run {found.name}", number, plural(len(found.methods), "method"), plural(found.all_clients, "client")]
    first, others = ("; ".join(part) for part in splits_table.clauses(splits))
    further = (f"{upper(others)}." if others else "") + splits_table.doubts(found)
    frame = Frame(f"{found.name}: idiolect, {number}", told, f"{first}.", splits.path.name, further=further)
    parts = {"splits": splits, "told": splits_table, "each_split": EACH_SPLIT}
    return write_page(splits.path, fill("splits.html", frame, **parts, **_of_folder(splits.path)), [])


def write_advice_page(advised: Advised) -> Path:
    """Write figures/map.png, map.svg and report.html into a folder of advice; return the page's path."""
    found, drawn = advised.found, [drawn_map(advised)]
    _, *unsure = advise_table.answer(advised)
    told = [f"Advice on {found.name}", plural(found.all_clients, "client"), f"split {found.seed}"]
    frame = Frame(f"{found.name}: idiolect advise", told, *_headed(advise_table.sentences(advised), advised.path))
    parts: dict[str, object] = {"advised": advised, "told": advise_table, "unsure": unsure, "drawn": drawn}
    parts["page_data"] = {"figures": {"map": map_data(advised)} | _sent(advised.path)}
    return write_page(advised.path, fill("advise.html", frame, **parts, **_of_folder(advised.path)), drawn)


def _headed(sentences: list[str], path: Path) -> tuple[str, str, None, str]:
    """The first sentence as the headline of a folder's page, the others below it."""
    return sentences[0], path.name, None, " ".join(sentences[1:])


def _of_folder(path: Path) -> dict[str, object]:
    """What every folder holds: the spec, the machine, what left each client."""
    return {"spec": read_spec(path), "machine": facts(read_machine(path)), "privacy": read_statement(path)}


def _sent(path: Path) -> dict[str, object]:
    """The figure of what left each client, where that was kept."""
    data = sent(read_statement(path))
    return {} if data is None else {"sent": data}
