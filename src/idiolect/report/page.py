# SPDX-License-Identifier: Apache-2.0
"""The folder of each command as one HTML page that asks nothing of the network, its figures as files beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from idiolect.record.codec import to_json
from idiolect.record.files import remove_leftovers, write_whole
from idiolect.record.manifest import write_page_manifest
from idiolect.record.reading import read_statement
from idiolect.record.words import counted
from idiolect.report import advise_table, choice_table, splits_table
from idiolect.report import answer as answers
from idiolect.report.advise_figure import drawn_map, map_data
from idiolect.report.choice_figure import choice_data, drawn_choice
from idiolect.report.choice_table import ChoiceFound, read_choices, read_dial
from idiolect.report.clients import NO_INTERVALS, SAME, client_table, has_intervals
from idiolect.report.figure_data import Data, client_data, run_figures, score_facts, sent
from idiolect.report.figures import FIGURES, draw_all
from idiolect.report.folder import FolderError, Run, read, read_machine, read_spec
from idiolect.report.html import Frame, fill
from idiolect.report.privacy import EACH_SPLIT
from idiolect.report.reported import Reported
from idiolect.report.style import Drawn, method_colours
from idiolect.report.table import compare
from idiolect.report.wording import score_words, upper


def report_run(folder: Path) -> Reported:
    """Draw, write figures/*.png|svg and report.html into the run folder."""
    run, choices = read(folder), read_choices(folder)
    found, undrawn = draw_all(run)
    chosen = (drawn_choice(choice, f"choice-{place}") for place, choice in enumerate(choices))
    drawn = [*found, *(one for figure in chosen for one in figure)]
    page, table = write_page(folder, render(run, drawn, undrawn, choices), drawn), compare(run)
    own = {"choices": to_json([choice.found for choice in choices])} if choices else {}
    return Reported(
        page,
        lambda details, width: "\n".join(
            [table.to_text(width, details), *(choice_table.choice_text(one, width) for one in choices)]
        ),
        lambda: table.as_dict() | own | files_of(page),
        lambda: [row.as_dict() for row in table.rows],
    )


def report_dial(folder: Path) -> Reported:
    """Write figures/dial.png, dial.svg and report.html into a dial's folder."""
    choice = read_dial(folder)
    found, (first, *others) = choice.found, choice_table.sentences(choice)
    told = [
        f"Dial {found.name}",
        found.method,
        counted(len(found.clients), "client"),
        counted(len(found.seeds), "seed"),
    ]
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
    found, number = splits.found, counted(splits.found.splits, "split")
    told = [f"Run {found.name}", number, counted(len(found.methods), "method"), counted(found.all_clients, "client")]
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
    told = [f"Advice on {found.name}", counted(found.all_clients, "client"), f"split {found.seed}"]
    frame = Frame(f"{found.name}: idiolect advise", told, first, folder.name, further=" ".join(others))
    drawn, data = drawn_map(advised), {"map": map_data(advised)}
    page = write_other_page(folder, "advise.html", frame, drawn, data, advised=advised, told=advise_table)
    return Reported(
        page,
        lambda details, width: advise_table.advice_text(advised, details, width),
        lambda: to_json(found) | files_of(page, "map"),
        advised.rows,
    )


def files_of(page: Path, figure: str | None = None) -> dict[str, str]:
    """For JSON: where a page is, and the figure that says most."""
    drawn = {"figure": str(page.parent / "figures" / f"{figure}.png")} if figure else {}
    return {"folder": str(page.parent)} | drawn | {"report": str(page)}


def write_page(path: Path, page: str, drawn: Sequence[Drawn]) -> Path:
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


def write_other_page(
    path: Path, template: str, frame: Frame, drawn: Sequence[Drawn], figures: Mapping[str, Data], **parts: object
) -> Path:
    """The page of a folder that is no run's, with what every folder holds: spec, machine, what left each client."""
    statement = read_statement(path)
    left = sent(statement)
    data = {"figures": {**figures, **({"sent": left} if left else {})}}
    parts |= {"drawn": drawn, "page_data": data, "privacy": statement}
    return write_page(path, fill(template, frame, spec=read_spec(path), machine=read_machine(path), **parts), drawn)


def render(run: Run, drawn: list[Drawn], undrawn: list[str], choices: Sequence[ChoiceFound] = ()) -> str:
    """The page of a run as text."""
    table = compare(run)
    tables = [client_table(run, entry.method) for entry in run.methods if not entry.diverged]
    tables = [one for one in tables if len(one)]
    # the clients of the method that the answer speaks of are shown first
    wanted = table.answer.personalized or table.answer.best
    shown = next((place for place, one in enumerate(tables) if one.method == wanted), 0)
    # answers are about the clients that trained, so new ones are not counted among them
    trained, new = len(run.names()), len(run.names(held_out=True))
    who = [counted(trained, "client") + (f" and {new:,} new" if new else "")] if trained or new else []
    figures = run_figures(run) | {f"choice-{place}": choice_data(choice) for place, choice in enumerate(choices)}
    frame = Frame(
        title=f"{run.name}: idiolect report",
        facts=[f"Run {run.name}", counted(len(run.methods), "method"), *who],
        answer=table.answer.headline,
        folder=run.path.name,
        caution=None if run.finished else run.missing[0],
        further=table.answer.further,
    )
    data: dict[str, object] = {"score": score_facts(run.words, run.higher_is_better)}
    data["words"] = {"same": SAME, "no_intervals": NO_INTERVALS}
    data |= {"clients": client_data(tables, shown, method_colours(run)), "figures": figures}
    return fill(
        "run.html",
        frame,
        run=run,
        share=score_words("accuracy"),
        compared=table,
        told=answers,
        chosen=choice_table,
        missing=[*run.missing, *undrawn],
        drawn=drawn,
        choices=choices,
        tables=tables,
        shown=shown,
        judged=has_intervals(run),
        page_data=data,
    )
