# SPDX-License-Identifier: Apache-2.0
"""The whole report as one HTML page that asks nothing of the network, and its figures as files beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from idiolect.record.files import remove_leftovers, write_whole
from idiolect.record.manifest import write_page_manifest
from idiolect.report import sections
from idiolect.report.adaptation_section import adaptation_section
from idiolect.report.choice import ChoiceFound
from idiolect.report.choice_figure import drawn_choice
from idiolect.report.choice_sections import choice_section
from idiolect.report.clients import client_table
from idiolect.report.figures import FIGURES, draw_all
from idiolect.report.folder import FolderError, Run
from idiolect.report.html import Frame, facts, fill
from idiolect.report.privacy import privacy_section
from idiolect.report.style import Drawn
from idiolect.report.table import compare
from idiolect.report.wording import NONE, plural, score_words, upper


def write_run_page(run: Run, choices: Sequence[ChoiceFound]) -> Path:
    """Draw, write figures/*.png|svg and report.html into the run folder, return the page's path."""
    drawn, undrawn = draw_all(run)
    drawn += [drawn_choice(choice, f"choice-{place}") for place, choice in enumerate(choices)]
    return write_page(run.path, render(run, drawn, undrawn, choices), drawn)


def write_page(path: Path, page: str, drawn: list[Drawn]) -> Path:
    """report.html and the figures' files, each whole or not at all; figures of an older report are removed."""
    try:
        folder = path / "figures"
        folder.mkdir(exist_ok=True)
        for one in drawn:
            write_whole(folder / f"{one.name}.png", one.png)
            write_whole(folder / f"{one.name}.svg", one.svg)
        for name in {name for name, *_ in FIGURES} - {one.name for one in drawn}:
            for kind in ("png", "svg"):  # an older report's figure would contradict this one
                (folder / f"{name}.{kind}").unlink(missing_ok=True)
        write_whole(path / "report.html", page.encode("utf-8"))
        remove_leftovers(path, others=False)
        write_page_manifest(path)
    except OSError as error:
        raise FolderError(
            f"The report must be written into {str(path)!r}, which refused it ({error.strerror}); copy the run "
            "to a folder you may write to."
        ) from error
    return path / "report.html"


def render(run: Run, drawn: list[Drawn], undrawn: list[str], choices: Sequence[ChoiceFound] = ()) -> str:
    """The page as text."""
    words, table = score_words(run.score), compare(run)
    tables = [client_table(run, entry.method) for entry in run.methods if not entry.diverged]
    tables = [one for one in tables if len(one)]
    wanted = table.answer.personalized or table.answer.best
    shown = next((place for place, one in enumerate(tables) if one.method == wanted), 0)
    frame = Frame(
        title=f"{run.name}: idiolect report",
        facts=[f"Run {run.name}", plural(len(run.methods), "method"), *_clients_counted(run)],
        answer=table.answer.sentence,
        tiles=sections.tiles(table.answer, words),
        folder=run.path.name,
    )
    return fill(
        "run.html",
        frame,
        caution=None if run.finished else run.missing[0],
        comparison_about=upper(table.legend()),
        comparison=sections.methods_grid(table, table.columns, "Methods side by side"),
        adaptation=adaptation_section(run, table),
        remarked=sections.remarks(run, [*run.missing, *undrawn]),
        drawn=drawn,
        choices=[choice_section(choice) for choice in choices],
        clients_about=_clients_about(run),
        clients=sections.clients(tables, shown, words),
        client_data=sections.client_data(tables, shown, words),
        none_mark=NONE,
        ledger=sections.ledger(run),
        privacy=privacy_section(run.privacy),
        seeds=sections.seeds(run),
        settings=sections.settings(run),
        spec=run.spec_text,
        machine=facts(run.machine),
    )


def _clients_counted(run: Run) -> list[str]:
    """'10 clients and 2 new': answers are about the first, so they are not counted together."""
    trained, new = len(run.names()), len(run.names(held_out=True))
    return [plural(trained, "client") + (f" and {new:,} new" if new else "")] if trained or new else []


def _clients_about(run: Run) -> str:
    seeds = max((len(entry.seeds) for entry in run.methods), default=1)
    over = f", mean over {seeds} seeds" if seeds > 1 else ""
    new = " New: a client that never trained; its model had one round on its own rows." if run.names(True) else ""
    return (
        f"Test {score_words(run.score).title} at the selected round{over}. Expected gain: the gain over training alone "
        "on the client's own test rows, moved toward the mean gain as far as its uncertainty asks. Helped, hurt: its "
        f"95 % interval excludes 0, and at most 5 % of such calls are false on average.{new}"
    )
