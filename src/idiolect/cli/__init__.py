# SPDX-License-Identifier: Apache-2.0
"""The command line: one file per command, no logic, no heavy import before a command runs."""

from __future__ import annotations

import typer

from idiolect.cli import (
    advise,
    compare,
    datasets,
    deploy,
    dial,
    explain,
    interruption,
    listing,
    pack,
    predict,
    report,
    reproduce,
    run,
    sweep,
    verify,
)
from idiolect.cli.failures import exit_code_of
from idiolect.record import last_words, standing
from idiolect.search_path import leave_out_working_directory

app = typer.Typer(
    name="idiolect",
    help="Personalized federated learning: should each client train alone, share one model, or personalize?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command in (
    *(compare.compare, run.run, sweep.sweep, dial.dial, advise.advise, reproduce.reproduce, predict.predict),
    *(pack.pack, report.report, verify.verify, listing.list_names, explain.explain),
):
    app.command(_command.__name__.removesuffix("_names"))(_command)
app.add_typer(datasets.app, name="datasets")
app.add_typer(deploy.app, name="deploy")


def _version(wanted: bool) -> None:
    if wanted:
        from idiolect import __version__

        typer.echo(f"idiolect {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Shared options."""


def main() -> None:
    """Run the command line: 0 done, 1 the run or a reproduction missed, 2 the request was wrong."""
    leave_out_working_directory()
    with interruption.heard() as leave:
        code = exit_code_of(app, leave)
    if code and standing.has_others():
        last_words.spoken()
        interruption.leave(code)
    raise SystemExit(code)
