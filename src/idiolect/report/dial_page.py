# SPDX-License-Identifier: Apache-2.0
"""A dial's folder as one HTML page, in the frame of a run's."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from idiolect.report.choice import Choice, read_dial
from idiolect.report.choice_figure import drawn_choice
from idiolect.report.choice_sections import clients_table, values_table
from idiolect.report.choice_table import answer, legend
from idiolect.report.figures import Drawn
from idiolect.report.page import fill_frame, write_page
from idiolect.report.privacy import privacy_section, read_statement
from idiolect.report.sections import e, facts_list, figures, remarks_section
from idiolect.report.wording import count, plural, size


def build_dial_report(folder: str | os.PathLike[str]) -> Path:
    """Write figures/dial.png, dial.svg and report.html into a dial's folder; return the page's path."""
    choice = read_dial(folder)
    drawn = drawn_choice(choice, "dial")
    return write_page(choice.path, render(choice, drawn), [drawn])


def render(choice: Choice, drawn: Drawn) -> str:
    """The page as text."""
    found = choice.found
    seeds = plural(len(found["seeds"]), "seed")
    facts = [f"Dial {found['name']}", found["method"], plural(len(found["clients"]), "client"), seeds]
    return fill_frame(
        title=f"{found['name']}: idiolect dial",
        eyebrow=e(" · ".join(facts)),
        answer=e(answer(choice)),
        tiles=_tiles(choice),
        main=_main(choice, drawn),
        folder=choice.path.name,
    )


def _tiles(choice: Choice) -> str:
    found, words = choice.found, choice.words
    best = next(entry for entry in found["values"] if entry["value"] == found["best_fixed"])
    total = found["values"][-1]["spent_so_far"]
    shown_tiles = (
        ("Own choice", words.show(found["chosen"]["test"]["mean"]), "mean over clients, test rows"),
        ("Best fixed value", choice.named(best["value"]), f"{words.show(best['test']['mean'])} on test rows"),
        ("The worst tenth", words.show(found["chosen"]["test"]["worst_decile"]), "with their own choice"),
        ("The whole path", size(total["total_bytes"]), f"{count(total['gradients'])} gradients"),
    )
    return "".join(
        f'<div class="tile"><span>{e(title)}</span><b>{e(value)}</b><span>{e(about)}</span></div>'
        for title, value, about in shown_tiles
    )


def _main(choice: Choice, drawn: Drawn) -> str:
    about = f'<p class="about">{e(legend(choice))} Click a heading to sort.</p>'
    clients = (
        f'<p class="about">Test {e(choice.words.title)} after the last round of every value'
        f"{e(choice.seeds_about())}, and what the client itself sent and was sent; its choice is marked.</p>"
    )
    remarks = {key: choice.found.get(key) or [] for key in ("warnings", "notes")}
    reason = choice.found.get("score_reason")
    notes = ([reason] if reason else []) + remarks["notes"]
    sections = (
        ("comparison", "Values side by side", about + values_table(choice)),
        ("figures", "Figure", figures([drawn])),
        ("clients", "Client by client", clients + clients_table(choice)),
    )
    later = (
        ("settings", "Settings", _settings(choice)),
        ("machine", "Machine", facts_list(_json(choice.path / "machine.json"))),
    )
    keep = remarks_section((("Warnings", remarks["warnings"]),)) + _folded(notes)
    sent = privacy_section(read_statement(choice.path))
    return "".join(map(_section, sections)) + sent + keep + "".join(map(_section, later))


def _folded(notes: list[str]) -> str:
    body = "".join(f"<li>{e(line)}</li>" for line in notes)
    return f"<details><summary><b>Notes</b></summary><ul>{body}</ul></details>" if notes else ""


def _section(part: tuple[str, str, str]) -> str:
    name, title, body = part
    return f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{e(title)}</h2>{body}</section>'


def _settings(choice: Choice) -> str:
    found = choice.found
    facts = {key: found[key] for key in ("method", "algorithm", "objective", "setting", "seeds")}
    path = choice.path / "spec.toml"
    spec = path.read_text(encoding="utf-8") if path.is_file() else ""
    shown_spec = f"<details><summary><b>spec.toml</b></summary><pre>{e(spec)}</pre></details>" if spec else ""
    return facts_list(facts) + shown_spec


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
