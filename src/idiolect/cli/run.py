# SPDX-License-Identifier: Apache-2.0
"""`idiolect run SPEC.toml`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from idiolect.cli.options import Details, Live, Running, command
from idiolect.cli.output import speak_for_hosts
from idiolect.cli.training import Request, refuse_live, split_and_show, train_and_show
from idiolect.record.errors import RequestError

if TYPE_CHECKING:
    from idiolect.experiments.spec import Spec

Hosts = Annotated[
    str | None,
    typer.Option(
        "--hosts", help="One of several hosts: 'auto' (SLURM, Open MPI, Kubernetes) or HOST:PORT,HOSTS,NUMBER."
    ),
]


@command
def run(
    spec: Annotated[Path, typer.Argument(help="A spec file, or a run folder with --resume or a new --out.")],
    running: Running,
    details: Details = False,
    live: Live = False,
    hosts: Hosts = None,
) -> None:
    """Train what a spec describes and leave a complete run folder."""
    from idiolect.experiments.splits import asked_splits

    splits = asked_splits(spec)
    wanted, folder, repeats = _read(spec, running)
    if hosts is not None or splits is not None:
        refuse_live(live)
    if hosts is not None:
        _run_on(hosts, wanted, folder, running, details, splits or repeats)
    elif splits is not None:
        split_and_show(wanted, folder, splits, running)
    else:
        train_and_show(wanted, folder, running, Request(details=details, repeats=repeats, live=live))


def _read(spec: Path, running: Running) -> tuple[Spec, Path, Path | None]:
    """The spec with its overrides, the folder that it runs into, and the folder of the run that it repeats."""
    from idiolect.experiments import spec as specs

    out, repeats = running.out, None
    if spec.is_dir():  # a run's resolved spec: the same choices, executor, chunk and block as before
        repeats = None if running.resume or out is None else spec
        out, spec = out or spec, spec / "spec.toml"
    wanted = specs.load(spec, running.overrides)
    if running.override and not running.resume and not specs.is_same_run(specs.load(spec), wanted):
        # executor, steps and rounds that were right for the run as it was could be wrong for this one
        wanted = dataclasses.replace(wanted, resolved={})  # it was chosen for another run
    return wanted, out or Path("runs") / wanted.name, repeats


def _run_on(hosts: str, spec: Spec, folder: Path, running: Running, details: bool, other: object) -> None:
    """The part of this host: all train, the first one writes and shows."""
    from idiolect.experiments import hosts as several
    from idiolect.experiments.execute import execute

    if other is not None:
        raise RequestError("--hosts takes a spec file, or a run folder with --resume; a run is repeated on one host.")
    speak_for_hosts()
    spec = several.join(hosts, spec)
    with several.workplace(folder, spec, running.resume) as own:
        # every host computes the same; the others have no terminal that anyone reads
        if several.is_first():
            train_and_show(spec, own, running, Request(details=details))
        else:
            execute(spec, own, resume=running.resume)
