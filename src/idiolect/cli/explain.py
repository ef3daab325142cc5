# SPDX-License-Identifier: Apache-2.0
"""`idiolect explain NAME`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from idiolect.cli.options import AsFormat, Plugins
from idiolect.cli.output import Format, put
from idiolect.record.errors import RequestError
from idiolect.record.privacy import Statement


def explain(
    name: Annotated[str, typer.Argument(help="An algorithm, an objective, or the folder of a run, a dial or advice.")],
    objective: str | None = typer.Option(None, help="Objective for an algorithm; default: its own."),
    clients: int = typer.Option(20, help="Of the example: clients M."),
    rows: int = typer.Option(100, help="Of the example: rows n per client."),
    smoothness: float = typer.Option(1.0, help="Of the example: L' of every client's loss."),
    convexity: float = typer.Option(0.01, help="Of the example: strong convexity mu'."),
    component_smoothness: float | None = typer.Option(
        None, help="Of the example: Lc' of a single row's loss; default: L'."
    ),
    epsilon: float = typer.Option(1e-6, help="Accuracy to reach, as a fraction of the start's gap."),
    changes: list[str] | None = typer.Option(
        None, "--set", help="A setting of algorithm or objective, as TOML: 'penalty = 0.1'."
    ),
    plugins: Plugins = None,
    as_format: AsFormat = Format.text,
) -> None:
    """Equations, settings, wire types with their bytes, what ever leaves a client, what theory says, the citation.

    Of a run folder: what left each client, how often, how many bytes, from how many rows.
    """
    if Path(name).is_dir():
        _explain_run(Path(name), as_format)
        return
    from idiolect.core.importing import own_code
    from idiolect.experiments.explain import Example
    from idiolect.experiments.explain import explain as look_up
    from idiolect.report.explanation import explanation_text

    example = Example(clients, rows, smoothness, convexity, component_smoothness, epsilon)
    with own_code(plugins, only=[name]):  # what the user has typed, and nothing that a file names
        facts = look_up(name, objective, example, changes or [])
    put(as_format, lambda: explanation_text(facts), lambda: facts)


def _explain_run(folder: Path, as_format: Format) -> None:
    """What left each client in a run, a dial, advice, or repeated splits, each of which is a run of its own."""
    from idiolect.record.codec import to_json
    from idiolect.report.folder import Kind, kind_of
    from idiolect.report.privacy import EACH_SPLIT, statement_lines

    several = kind_of(folder) is Kind.splits
    # a folder of splits has no statement of its own: each split is a run, and all are alike but for their rows
    inner = sorted(path for path in folder.glob("split-*") if path.is_dir()) if several else []
    stated = {path.name: _statement(path) for path in inner} or {folder.name: _statement(folder)}
    first = next(iter(stated))
    above = [EACH_SPLIT, f"That of {first}:", ""] if inner else []
    put(
        as_format,
        lambda: "\n".join([*above, *statement_lines(stated[first])]),
        lambda: to_json(stated if inner else stated[first]),
    )


def _statement(folder: Path) -> Statement:
    from idiolect.record.manifest import check_report_files
    from idiolect.record.reading import read_statement
    from idiolect.report.folder import refuse_unknown_files

    refuse_unknown_files(folder)
    check_report_files(folder)
    statement = read_statement(folder)
    if statement is None:
        raise RequestError(f"{folder} has no privacy.json, which says what left each client; run it again to have one.")
    return statement
