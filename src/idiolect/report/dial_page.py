# SPDX-License-Identifier: Apache-2.0
"""A dial's folder as one HTML page, in the frame of a run's."""

from __future__ import annotations

from pathlib import Path

from idiolect.record.reading import read_statement
from idiolect.report.choice import ChoiceFound
from idiolect.report.choice_figure import drawn_choice
from idiolect.report.choice_sections import clients_grid, values_grid
from idiolect.report.choice_table import answer, legend
from idiolect.report.folder import read_machine, read_spec
from idiolect.report.html import Frame, Tile, facts, fill
from idiolect.report.page import write_page
from idiolect.report.privacy import privacy_section
from idiolect.report.style import Drawn
from idiolect.report.wording import count, plural, size


def write_dial_page(choice: ChoiceFound) -> Path:
    """Write figures/dial.png, dial.svg and report.html into a dial's folder; return the page's path."""
    drawn = drawn_choice(choice, "dial")
    return write_page(choice.path, render(choice, drawn), [drawn])


def render(choice: ChoiceFound, drawn: Drawn) -> str:
    """The page as text."""
    found = choice.found
    seeds = plural(len(found.seeds), "seed")
    frame = Frame(
        title=f"{found.name}: idiolect dial",
        facts=[f"Dial {found.name}", found.method, plural(len(found.clients), "client"), seeds],
        answer=answer(choice),
        tiles=_tiles(choice),
        folder=choice.path.name,
    )
    return fill(
        "dial.html",
        frame,
        choice=choice,
        legend=legend(choice),
        by_value=values_grid(choice),
        by_client=clients_grid(choice),
        drawn=[drawn],
        privacy=privacy_section(read_statement(choice.path)),
        warnings=found.warnings,
        notes=[*([found.score_reason] if found.score_reason else []), *found.notes],
        settings=facts({key: getattr(found, key) for key in ("method", "algorithm", "objective", "setting", "seeds")}),
        spec=read_spec(choice.path),
        machine=facts(read_machine(choice.path)),
    )


def _tiles(choice: ChoiceFound) -> list[Tile]:
    found, words = choice.found, choice.words
    best, total = found.best, found.total
    return [
        Tile("Own choice", words.show(found.chosen.test.mean), "mean over clients, test rows"),
        Tile("Best fixed value", choice.named(best.value), f"{words.show(best.test.mean)} on test rows"),
        Tile("The worst tenth", words.show(found.chosen.test.worst_decile), "with their own choice"),
        Tile("The whole path", size(total.total_bytes), f"{count(total.gradients)} gradients"),
    ]
