# SPDX-License-Identifier: Apache-2.0
"""`idiolect deploy init | check | serve | join | submit | status | demo`: one spec over real sites."""

from __future__ import annotations

import enum
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from idiolect.cli.options import AsFormat, Live, Printing, Set, command, free_folder
from idiolect.cli.output import Format, put, remark
from idiolect.cli.training import show, use_cache, watched
from idiolect.record.errors import RequestError

app = typer.Typer(
    help="Train over real sites that keep their rows: kits, server, sites, and a rehearsal on this machine.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
LEAD = "lead@idiolect.local"
Kit = Annotated[Path, typer.Argument(help="Folder of a kit that `deploy init` made.")]


class Transport(enum.StrEnum):
    """What carries the messages."""

    tls = "tls"
    flare = "flare"
    flower = "flower"


@app.command()
@command
def init(
    folder: Annotated[Path, typer.Argument(help="New folder, in which each party gets a kit.")],
    spec: Annotated[Path, typer.Argument(help="A spec file on a table.")],
    sites: Annotated[str, typer.Option(help="Names of the sites, such as north,south.")],
    later: str = typer.Option("", help="Names of sites that may join in the middle."),
    host: str = typer.Option("localhost", help="Where sites find the server."),
    port: int = typer.Option(8443, help="Port that the server listens at."),
    transport: Transport = typer.Option(
        Transport.tls, help="tls: connections of our own. flare: NVIDIA FLARE. flower: Flower."
    ),
    lead: str = typer.Option(LEAD, help="flare: e-mail addresses of those who may start runs."),
    member: str | None = typer.Option(None, help="flare: e-mail addresses of those who may look on."),
    override: Set = None,
    as_format: AsFormat = Format.text,
) -> None:
    """Make certificates and a start-up kit for the server and for each site."""
    from idiolect.experiments.deploy.kits import check_place
    from idiolect.experiments.spec import load

    names, more, wanted = _names(sites), _names(later), load(spec, override or [])
    check_place(host, port)
    if transport is Transport.flare:
        from idiolect.experiments.flare.kits import Federation, make_flare_kits

        users = {"leads": tuple(_names(lead)), "members": tuple(_names(member or ""))}
        kits = make_flare_kits(folder, wanted, Federation(tuple(names), host, port, later=tuple(more), **users))
    else:
        if transport is Transport.flower:
            from idiolect.experiments.flower.kits import make_flower_kits as make
        else:
            from idiolect.experiments.deploy.kits import make_kits as make
        kits = make(folder, wanted, names, host, port, more)
    advice = "Send each kit to its owner by a way that you trust: it holds a key. Sites set table in site.toml."
    put(
        as_format,
        lambda: "\n".join([*(f"{name}: {kit}" for name, kit in kits.items()), advice]),
        lambda: {"kits": {name: str(kit) for name, kit in kits.items()}},
        lambda: [{"party": name, "kit": str(kit)} for name, kit in kits.items()],
    )


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


@app.command()
@command
def check(kit: Kit, as_format: AsFormat = Format.text) -> None:
    """At a site, before it joins: read its table and say what would be sent of it. Nothing leaves."""
    from idiolect.experiments.deploy.look import check_site

    found = check_site(kit)
    put(as_format, lambda: "\n".join(found.lines), lambda: found.facts)


@app.command()
@command
def serve(
    kit: Kit,
    printing: Printing,
    out: Path | None = typer.Option(None, help="Run folder. Default: KIT/result."),
    live: Live = False,
) -> None:
    """Run the server of a kit: train over its sites, or go on with it, and leave a run folder.

    A FLARE server waits for `deploy submit`, and stays until it is interrupted.
    """
    processes = _processes(kit, printing)
    with watched(out or kit / "result", live):
        show(processes.serve(kit, printing.say, out), printing)


@app.command()
@command
def join(kit: Kit, printing: Printing) -> None:
    """Run the site of a kit: answer the server from its own rows until the run is over, with FLARE for all runs."""
    _processes(kit, printing).join(kit, printing.say)
    printing.say("The run is over.")
    if printing.as_format is not Format.text:
        put(printing.as_format, str, lambda: {"kit": str(kit), "over": True})


def _processes(kit: Path, printing: Printing) -> ModuleType:
    """Where `serve` and `join` of the kit's transport are; with FLARE the command is its server or site, and ends."""
    from idiolect.experiments.deploy import kits

    if kits.is_flare(kit):
        from idiolect.experiments.flare.processes import run

        if printing.as_format is not Format.text:
            raise RequestError(
                f"With FLARE standard output is its log, got --format {printing.as_format}; leave it out."
            )
        raise typer.Exit(run(kit))
    use_cache(printing.quiet)
    if not kits.is_flower(kit):
        return kits
    from idiolect.experiments.flower import processes

    return processes


@app.command()
@command
def submit(
    kit: Kit,
    least: int = typer.Option(1, min=1, help="Sites without which the run does not begin."),
    hours: float = typer.Option(24.0, help="How long to wait for its end."),
    as_format: AsFormat = Format.text,
) -> None:
    """With FLARE: start a run, or go on with it, as the user of a kit whose role allows it."""
    from idiolect.experiments.flare.jobs import run_to_end

    say = remark if as_format is not Format.text else typer.echo
    job, ended = run_to_end(kit, least, 3600 * hours, say)
    if as_format is not Format.text:
        put(as_format, str, lambda: {"run": job, "ended": ended})


@app.command()
@command
def status(
    folder: Annotated[Path, typer.Argument(help="A kit, or the server's run folder.")],
    as_format: AsFormat = Format.text,
) -> None:
    """How far a run is: rounds, and where each site stands; with a FLARE user's kit, who is connected."""
    if (folder / "startup" / "fed_admin.json").is_file():
        from idiolect.experiments.flare.jobs import status_for

        seen = status_for(folder)
        put(as_format, lambda: "\n".join(seen.lines()), seen._asdict)
        return
    from idiolect.experiments.deploy.look import status_of

    found = status_of(folder)
    put(as_format, lambda: "\n".join(found.lines), lambda: found.facts)


@app.command()
@command
def demo(
    printing: Printing,
    spec: Path | None = typer.Argument(None, help="A spec on a table to rehearse; default: heart disease."),
    sites: int | None = typer.Option(None, help="Sites, of the default data. Default: 4."),
    transport: Transport = typer.Option(Transport.tls, help="tls, flare, or flower."),
    rounds: int | None = typer.Option(None, help="Rounds, of the default data. Default: 20."),
    out: Path | None = typer.Option(None, help="New folder. Default: runs/deploy-demo, or the next free."),
) -> None:
    """A whole deployment on this machine: certificates, a process for each site, a server; all stopped at the end."""
    from idiolect.experiments.deploy.demo import demo_spec, demo_tables, spec_tables
    from idiolect.experiments.deploy.kits import check_new
    from idiolect.experiments.spec import load

    use_cache(printing.quiet)
    for name, value, owner in (("sites", sites, "the table"), ("rounds", rounds, "training.rounds in it")):
        if spec is not None and value is not None:
            raise RequestError(
                f"--{name} is of the default data, got {value} beside {spec}, where {owner} decides; leave it out."
            )
    wanted = demo_spec(20 if rounds is None else rounds) if spec is None else load(spec)
    tables = demo_tables(4 if sites is None else sites) if spec is None else spec_tables(wanted)
    folder = out or free_folder(Path("runs") / "deploy-demo")
    check_new(folder)  # the folder itself: it may be that of a finished run, which kits/ and result/ would stand in
    if transport is Transport.tls:
        from idiolect.experiments.deploy.demo import run_demo as rehearse
    elif transport is Transport.flower:
        from idiolect.experiments.flower.demo import run_flower_demo as rehearse
    else:
        from idiolect.experiments.flare.demo import run_flare_demo as rehearse
    show(rehearse(folder, wanted, tables, printing.say), printing)
