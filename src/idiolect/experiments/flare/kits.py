# SPDX-License-Identifier: Apache-2.0
"""Start-up kits: a certificate authority, and one folder for the server, for every site and for every user."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from nvflare.lighter.constants import CtxKey
from nvflare.lighter.entity import Participant, Project
from nvflare.lighter.impl.cert import CertBuilder
from nvflare.lighter.impl.static_file import StaticFileBuilder
from nvflare.lighter.impl.workspace import WorkspaceBuilder
from nvflare.lighter.provisioner import Provisioner

from idiolect.core.checks import RequestError
from idiolect.experiments.deploy.kits import fill_kits, new_kits
from idiolect.experiments.flare import policy
from idiolect.experiments.spec import Spec

AUTHORITY = "authority"  # holds the key that signs all others: it never leaves the organiser
SERVER = "server"  # the name of its kit, whatever its host is called
YEAR = 360


@dataclass(frozen=True)
class Federation:
    """Who takes part: host and port of the server, names of sites, users who may start runs and who may look on."""

    sites: tuple[str, ...]
    host: str = "localhost"
    port: int = 8002
    leads: tuple[str, ...] = ("lead@idiolect.local",)
    members: tuple[str, ...] = ()
    later: tuple[str, ...] = ()  # sites that may join in the middle


def make_flare_kits(folder: Path, spec: Spec, federation: Federation) -> dict[str, Path]:
    """A kit for "server", each site and each user, with the spec and the party's own file."""
    parties = new_kits(folder, spec, federation.sites, federation.later)
    kits = provision(folder, federation)
    fill_kits({name: kits[name] for name in parties}, spec, federation.later)
    return kits


def provision(folder: Path, federation: Federation) -> dict[str, Path]:
    """Make the kits that `folder` has not got yet, by name. The authority is made once and kept.

    Called again with more sites, the old kits stay as they are: theirs are given away already.
    """
    errors: list[str] = []
    # where the provisioning writes what it does: other problems come as exceptions
    report = SimpleNamespace(error=errors.append, **dict.fromkeys(("warning", "info", "debug"), str))
    # jobs are signed by the user who submits them: a server cannot make one up
    builders = [
        WorkspaceBuilder(),
        StaticFileBuilder(config_folder="config", scheme="http", require_signed_jobs=True),
        CertBuilder(root_valid_days=10 * YEAR),
    ]
    context = Provisioner(str(folder / AUTHORITY), builders).provision(_project(federation), logger=report)
    if context.get(CtxKey.BUILD_ERROR) or errors:
        raise RequestError(f"The start-up kits could not be made: {'; '.join(errors)}")
    made = Path(context[CtxKey.CURRENT_PROD_DIR])
    named = {SERVER if kit.name == federation.host else kit.name: kit for kit in sorted(made.iterdir())}
    kits = {name: _keep(kit, folder.resolve() / name) for name, kit in named.items()}
    shutil.rmtree(made)
    _protect(folder / AUTHORITY)
    return kits


def _project(federation: Federation) -> Project:
    """The same in FLARE's words. An organisation per site: no site has a say at another."""
    names = (*federation.sites, *federation.later)
    try:
        server = Participant("server", federation.host, "coordinator", {"fed_learn_port": federation.port})
        sites = [Participant("client", site, site.replace("-", "_")) for site in names]
        users = [
            Participant("admin", user, "coordinator", {"role": role})
            for role, names in (("lead", federation.leads), ("member", federation.members))
            for user in names
        ]
        return Project("idiolect", "idiolect", participants=[server, *sites, *users])
    except ValueError as error:
        raise RequestError(
            f"FLARE refuses a name: {error}. Sites have letters, digits, - and _; users an e-mail address."
        ) from error


def _keep(made: Path, kit: Path) -> Path:
    """Move a new kit to its place, unless one is there, and give it our policy."""
    if not kit.exists():
        kit.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(made, kit)
        kit.chmod(0o700)
        _protect(kit / "startup")
        if not (kit / "startup" / "fed_admin.json").exists():
            write_policy(kit)
    return kit


def write_policy(kit: Path) -> None:
    """Our roles and classes in place of FLARE's defaults, which files of these names override."""
    resources = policy.server_resources(_storage(kit)) if _is_server(kit) else policy.site_resources()
    for name, content in (("resources.json", resources), ("authorization.json", policy.permissions())):
        (kit / "local" / name).write_text(json.dumps(content, indent=2))


def follow(kit: Path) -> None:
    """Let a server's kit that was carried elsewhere keep its runs there: FLARE wants absolute paths.

    A site's files are left alone: they are its own.
    """
    path = kit / "local" / "resources.json"
    if _is_server(kit) and json.dumps(f"{_storage(kit)}/runs") not in path.read_text():
        path.write_text(json.dumps(policy.server_resources(_storage(kit)), indent=2))


def _is_server(kit: Path) -> bool:
    return (kit / "startup" / "fed_server.json").exists()


def _storage(kit: Path) -> str:
    return str(kit.resolve() / "storage")


def _protect(folder: Path) -> None:
    """Keys are for their owner only."""
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o700 if path.is_dir() or path.suffix == ".sh" else 0o600)
