# SPDX-License-Identifier: Apache-2.0
"""The whole report as one HTML page that asks nothing of the network, and its figures as files beside it."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from idiolect.record.files import remove_leftovers, write_whole
from idiolect.record.manifest import write_page_manifest
from idiolect.report import sections
from idiolect.report.adaptation_section import adaptation_section
from idiolect.report.choice import Choice, read_choices
from idiolect.report.choice_figure import drawn_choice
from idiolect.report.choice_sections import choices_section
from idiolect.report.clients import client_table
from idiolect.report.figures import FIGURES, Drawn, draw_all
from idiolect.report.folder import FolderError, Run
from idiolect.report.privacy import privacy_section
from idiolect.report.sections import e
from idiolect.report.table import compare
from idiolect.report.wording import plural, score_words

_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
_MAIN = re.compile(r"<main>.*</main>", re.DOTALL)
_PLACE = re.compile(r"\{\{(\w+)\}\}")


def write_report(run: Run) -> Path:
    """Draw, write figures/*.png|svg and report.html into the run folder, return the page's path."""
    drawn, undrawn = draw_all(run)
    choices = read_choices(run.path)
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


def fill_frame(*, title: str, eyebrow: str, answer: str, tiles: str, main: str, folder: str) -> str:
    """A page of other sections between a run's head and foot; all but title and folder are HTML."""
    template = _template()
    template = _MAIN.sub("<main>{{main}}</main>", template)
    parts = {
        "script_hash": _script_hash(template),
        "title": e(title),
        "eyebrow": eyebrow,
        "answer": answer,
        "caution": "",
        "tiles": tiles,
        "main": main,
        "folder": f"<code>{e(folder)}/</code>",
        "client_data": '{"methods":[]}',
    }
    return _PLACE.sub(lambda place: parts[place[1]], template)


def _template() -> str:
    return files("idiolect.report").joinpath("page.html").read_text(encoding="utf-8")


def render(run: Run, drawn: list[Drawn], undrawn: list[str], choices: Sequence[Choice] = ()) -> str:
    """The page as text."""
    words, table = score_words(run.score), compare(run)
    missing = [*run.missing, *undrawn]
    tables = [client_table(run, entry["method"]) for entry in run.methods if not entry.get("diverged")]
    tables = [one for one in tables if len(one)]
    wanted = table.answer.personalized or table.answer.best
    shown = next((place for place, one in enumerate(tables) if one.method == wanted), 0)
    facts = [f"Run {run.name}", plural(len(run.methods), "method"), *_clients_counted(run)]
    question = run.summary.get("question")
    eyebrow = e(" · ".join(facts)) + (f"<br>{e(question)}" if question else "")
    caution = "" if run.finished else f'<p class="caution" role="note">{e(run.missing[0])}</p>'
    template = _template()
    parts = {
        "script_hash": _script_hash(template),
        "title": e(f"{run.name}: idiolect report"),
        "eyebrow": eyebrow,
        "answer": e(table.answer.sentence),
        "caution": caution,
        "tiles": sections.tiles(table.answer, words),
        "comparison_about": e(_first_upper(table.legend()) + " The best of each column is marked."),
        "comparison": sections.comparison(table),
        "adaptation": adaptation_section(run, table),
        "remarks": sections.remarks(run, missing),
        "figures": sections.figures(drawn),
        "choices": choices_section(list(choices)),
        "clients_about": e(_clients_about(run)),
        "clients": sections.clients(tables, shown, words),
        "client_data": sections.client_data(tables, shown, words),
        "ledger": sections.ledger(run),
        "privacy": privacy_section(run.privacy),
        "seeds": sections.seeds(run),
        "settings": sections.settings(run),
        "machine": sections.facts_list(run.machine),
        "folder": f"<code>{e(run.path.name)}/</code>",
    }
    # One pass, so that a user's text that looks like a placeholder stays text.
    return _PLACE.sub(lambda place: parts[place[1]], template)


def _clients_counted(run: Run) -> list[str]:
    """'10 clients and 2 new': answers are about the first, so they are not counted together."""
    trained, new = len(run.names()), len(run.names(held_out=True))
    return [plural(trained, "client") + (f" and {new:,} new" if new else "")] if trained or new else []


def _clients_about(run: Run) -> str:
    seeds = max((len(entry.get("seeds") or []) for entry in run.methods), default=1)
    over = f", mean over {seeds} seeds" if seeds > 1 else ""
    new = " New: a client that never trained; its model had one round on its own rows." if run.names(True) else ""
    return (
        f"Test {score_words(run.score).title} at the selected round{over}. Expected gain: the gain over training alone "
        "on the client's own test rows, moved toward the mean gain as far as its uncertainty asks. Helped, hurt: its "
        f"95 % interval excludes 0, and at most 5 % of such calls are false on average.{new}"
    )


def _first_upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _script_hash(template: str) -> str:
    """The page allows this one script and no other, whatever a client is called."""
    script = _SCRIPT.search(template)
    assert script is not None
    digest = hashlib.sha256(script[1].encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
