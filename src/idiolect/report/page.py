# SPDX-License-Identifier: Apache-2.0
"""The whole report as one HTML page that asks nothing of the network, and its figures as files beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from idiolect.record.files import remove_leftovers, write_whole
from idiolect.record.manifest import write_page_manifest
from idiolect.report import answer as answers
from idiolect.report import choice_table
from idiolect.report.choice import ChoiceFound
from idiolect.report.choice_figure import choice_data, drawn_choice
from idiolect.report.client_data import client_data, score_facts
from idiolect.report.clients import ClientTable, client_table
from idiolect.report.figure_data import run_figures
from idiolect.report.figures import FIGURES, draw_all
from idiolect.report.folder import FolderError, Run
from idiolect.report.html import Frame, facts, fill
from idiolect.report.style import Drawn, method_colours
from idiolect.report.table import compare
from idiolect.report.wording import plural, score_words


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
    words, table = run.words, compare(run)
    tables = [client_table(run, entry.method) for entry in run.methods if not entry.diverged]
    tables = [one for one in tables if len(one)]
    # the clients of the method that the answer speaks of are shown first
    wanted = table.answer.personalized or table.answer.best
    shown = next((place for place, one in enumerate(tables) if one.method == wanted), 0)
    # answers are about the clients that trained, so new ones are not counted among them
    trained, new = len(run.names()), len(run.names(held_out=True))
    counted = [plural(trained, "client") + (f" and {new:,} new" if new else "")] if trained or new else []
    frame = Frame(
        title=f"{run.name}: idiolect report",
        facts=[f"Run {run.name}", plural(len(run.methods), "method"), *counted],
        answer=table.answer.headline,
        folder=run.path.name,
        caution=None if run.finished else run.missing[0],
        further=table.answer.further,
    )
    return fill(
        "run.html",
        frame,
        run=run,
        words=words,
        share=score_words("accuracy"),
        compared=table,
        told=answers,
        chosen=choice_table,
        missing=[*run.missing, *undrawn],
        drawn=drawn,
        choices=choices,
        seeds=max((len(entry.seeds) for entry in run.methods), default=1),
        tables=tables,
        shown=shown,
        page_data=_page_data(run, tables, shown, choices),
        privacy=run.privacy,
        spec=run.spec_text,
        machine=facts(run.machine),
    )


def _page_data(
    run: Run, tables: Sequence[ClientTable], shown: int, choices: Sequence[ChoiceFound]
) -> dict[str, object]:
    """What the page's script draws from."""
    figures = run_figures(run) | {f"choice-{place}": choice_data(choice) for place, choice in enumerate(choices)}
    clients = client_data(tables, shown, method_colours(run))
    score = score_facts(run.words, run.higher_is_better)
    return {"score": score, "clients": clients, "figures": figures}
