# SPDX-License-Identifier: Apache-2.0
"""Start-up kits: a folder for the server and one for each site, with all that the party needs but its rows."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

from idiolect.core.checks import RequestError, setting
from idiolect.engines.deploy.link import Rules
from idiolect.engines.deploy.site import Site
from idiolect.engines.deploy.tls import Papers, TlsServer, serve_site
from idiolect.engines.deploy.transport import Transport
from idiolect.experiments.deploy.agreement import check_deployable, check_names, check_runnable
from idiolect.experiments.deploy.desk import make_site
from idiolect.experiments.deploy.serve import coordinate
from idiolect.experiments.deploy.site_file import FILE, SPEC, SiteFile, read_site_file, read_toml
from idiolect.experiments.spec import Spec, load, to_toml
from idiolect.experiments.strict import fill
from idiolect.record import standing

SERVER_FILE, CONNECT_FILE, RESULT = "server.toml", "connect.toml", "result"
MOST_PORT = 2**16 - 1
Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class ServerFile:
    """server.toml: who takes part, where to listen, when a round closes."""

    sites: list[str]
    later: list[str] = dataclasses.field(default_factory=list)  # who may join in the middle
    host: str = "0.0.0.0"
    port: int = setting(default=8443, at_least=0, at_most=MOST_PORT)  # 0: a free one
    patience: float = 600.0  # seconds that all sites have to come, at the beginning
    rules: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Connect:
    """connect.toml of a site's kit: where the server is."""

    host: str
    port: int = setting(at_least=1, at_most=MOST_PORT)


def make_kits(
    folder: Path, spec: Spec, sites: Sequence[str], host: str, port: int, later: Sequence[str] = ()
) -> dict[str, Path]:
    """A kit for "server" and for each site; each goes to its owner, by a way that you trust: it holds a key."""
    from idiolect.experiments.deploy.certificates import make_authority, make_papers

    kits, authority = new_kits(folder, spec, sites, later), make_authority(spec.name)
    for name, kit in kits.items():
        make_papers(kit, authority, name, server=name == "server")
    fill_kits(kits, spec, later, Connect(host, port))
    return kits


def check_place(host: str, port: int) -> None:
    """RequestError for what cannot be the address of a server."""
    if not 1 <= port <= MOST_PORT:
        raise RequestError(f"--port must be from 1 to {MOST_PORT}, got {port}; 8443 is the usual one.")
    if not re.fullmatch(r"[A-Za-z0-9_.:-]{1,253}", host):
        raise RequestError(f"--host must be a name or an address such as server.example.org, got {host!r}; give one.")


def fill_kits(kits: Mapping[str, Path], spec: Spec, later: Sequence[str], where: Connect | None = None) -> None:
    """What a kit holds whatever carries its messages: the spec, the party's own file, and where the server is."""
    # where the organiser keeps a table of their own is nobody else's business
    content = to_toml(dataclasses.replace(spec, data=dataclasses.replace(spec.data, path=None)))
    # the later ones are listed apart: no one waits for them at the beginning
    server = {"sites": [name for name in kits if name not in ("server", *later)], "later": list(later)}
    for name, kit in kits.items():
        (kit / SPEC).write_text(content, encoding="utf-8")
        if where is not None:
            (kit / CONNECT_FILE).write_text(tomli_w.dumps(dataclasses.asdict(where)), encoding="utf-8")
        if name != "server":
            own = {"name": name, "table": "rows.csv", "allows": {"least_rows": 5, "texts": True}}
            said = "# where your table is, relative to this file, and what you agree to\n"
            (kit / FILE).write_text(said + tomli_w.dumps(own), encoding="utf-8")
    listen = {} if where is None else {"host": "0.0.0.0", "port": where.port}
    (kits["server"] / SERVER_FILE).write_text(tomli_w.dumps(server | listen), encoding="utf-8")


def is_flare(kit: Path) -> bool:
    """Whether a kit was made for FLARE."""
    return (kit / "startup").is_dir()


def is_flower(kit: Path) -> bool:
    """Whether a kit was made for Flower."""
    return (kit / "flower").is_dir()


def new_kits(folder: Path, spec: Spec, sites: Sequence[str], later: Sequence[str]) -> dict[str, Path]:
    """The kits to make.

    RequestError for a spec that cannot be deployed, names that cannot be sites', and a folder that holds files.
    """
    check_deployable(spec)
    check_names(sites, later)
    check_runnable(spec, len(sites) + len(later))
    check_new(folder)
    return {name: folder / name for name in ("server", *sites, *later)}


def check_new(folder: Path) -> None:
    """RequestError for a folder that holds files: an old kit's key would stay valid beside the new ones."""
    if folder.exists() and any(folder.iterdir()):
        raise RequestError(f"Kits need a new folder, and {folder} holds files; choose another.")


def read_server_file(kit: Path) -> ServerFile:
    """server.toml, checked."""
    found = fill(ServerFile, read_toml(kit / SERVER_FILE), SERVER_FILE)
    check_names(found.sites, found.later)
    return found


def coordinate_kit(transport: Transport, kit: Path, say: Say = lambda text: None, out: Path | None = None) -> Path:
    """Run the spec of a server's kit over any transport; the run folder that it leaves."""
    own = read_server_file(kit)
    rules = fill(Rules, own.rules, "rules")
    folder = out or kit / RESULT
    coordinate(transport, load(kit / SPEC), folder, own.sites, rules, say, own.patience, own.later)
    return folder


def read_certified(kit: Path) -> SiteFile:
    """A kit's site.toml; RequestError where its certificate, which those of FLARE and Flower lack, has another name."""
    own = read_site_file(kit)
    if Papers.of(kit).certificate.is_file():
        from idiolect.experiments.deploy.certificates import check_certified

        check_certified(kit, own.name)
    return own


def site_of_kit(kit: Path) -> Site:
    """The site of a kit, for any transport: it answers messages."""
    return make_site(read_certified(kit))


def read_connect(kit: Path) -> Connect:
    """Where the server of a site's kit is; RequestError for the server's own kit."""
    if (kit / SERVER_FILE).is_file():
        raise RequestError(f"{kit} is the kit of the server; run it with `deploy serve`, or give a site's kit.")
    return fill(Connect, read_toml(kit / CONNECT_FILE), CONNECT_FILE)


def serve(kit: Path, say: Say, out: Path | None = None) -> Path:
    """The server of a kit over the reference transport, until the run is done."""
    own = read_server_file(kit)
    server = TlsServer((own.host, own.port), Papers.of(kit), [*own.sites, *own.later])
    say(f"Listening at {server.address[0]}:{server.address[1]} for {', '.join([*own.sites, *own.later])}.")
    with server:
        return coordinate_kit(server, kit, say, out)


def join(kit: Path, say: Say, stop: Callable[[], bool] = lambda: False) -> None:
    """A site of a kit over the reference transport, until the run is over."""
    where, site = read_connect(kit), site_of_kit(kit)
    with standing.at(site.folder, f"`idiolect deploy join {kit}` goes on from there"):
        serve_site((where.host, where.port), Papers.of(kit), site, stop, say=say)
