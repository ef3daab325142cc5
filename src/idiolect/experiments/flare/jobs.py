# SPDX-License-Identifier: Apache-2.0
"""Start a run and wait for its end: a job without code, signed and submitted by a user whose role allows it."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from nvflare.fuel.flare_api.api_spec import AuthenticationError, AuthorizationError, JobTimeout, NoConnection
from nvflare.fuel.flare_api.flare_api import Session, new_secure_session

from idiolect.core.checks import RequestError
from idiolect.core.order import natural_key
from idiolect.experiments.flare import policy


@contextlib.contextmanager
def session(kit: Path, seconds: float = 30.0) -> Iterator[Session]:
    """A connection to the server as the user whose kit this is."""
    path = kit / "startup" / "fed_admin.json"
    if not path.is_file():
        raise RequestError(f"{kit} is no kit of a FLARE user; give the one that `deploy init` made for a lead.")
    username = json.loads(path.read_text())["admin"]["username"]
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it prints that it connects
            opened = new_secure_session(username, str(kit), timeout=seconds)
    except (NoConnection, AuthenticationError) as error:
        raise RequestError(f"The server did not let {username} in within {seconds:g} s: {error}") from error
    try:
        yield opened
    finally:
        opened.close()


def write_job(folder: Path, name: str, sites: int) -> Path:
    """The job as FLARE wants it: names of installed classes and plain values, nothing that runs."""
    config = folder / "app" / "config"
    config.mkdir(parents=True)
    # no list of sites: those that are connected take part
    deployed = {"app": ["@ALL"]}
    _write(folder / "meta.json", {"name": name, "resource_spec": {}, "min_clients": sites, "deploy_map": deployed})
    run = {"id": "run", "path": policy.RUN_CLASS, "args": {}}
    _write(config / "config_fed_server.json", {"format_version": 2, "workflows": [run], "components": []})
    site = {"tasks": ["none"], "executor": {"path": policy.SITE_CLASS, "args": {}}}
    _write(config / "config_fed_client.json", {"format_version": 2, "executors": [site], "components": []})
    return folder


def submit(opened: Session, name: str, sites: int) -> str:
    """Start a run with at least so many sites; FLARE's number of it."""
    with tempfile.TemporaryDirectory() as folder:
        return submit_folder(opened, write_job(Path(folder) / name, name, sites))


def submit_folder(opened: Session, folder: Path) -> str:
    """Start what a folder describes."""
    try:
        return opened.submit_job(str(folder))
    except AuthorizationError as error:
        raise RequestError(f"This user's role may not start runs: {error}") from error


def how_it_ended(opened: Session, job: str) -> str | None:
    """FLARE's word for how a run ended; None as long as it has not."""
    stands = str(opened.get_job_status(job))
    return stands if stands.startswith("FINISHED") else None


def wait_for_end(opened: Session, job: str, seconds: float) -> str:
    """FLARE's word for how it ended: FINISHED:COMPLETED where all went well."""
    try:
        return str(opened.wait_for_job(job, timeout=seconds, poll_interval=0.5)["status"])
    except JobTimeout as error:
        raise RequestError(f"The run {job} has not ended within {seconds:g} s; `abort_job` ends it.") from error


def run_to_end(kit: Path, least: int, seconds: float, say: Callable[[str], None]) -> tuple[str, str]:
    """Start a run as the user of a kit, and say how it goes; FLARE's number of it, and how it ended."""
    with session(kit) as opened:
        job = submit(opened, "run", least)
        say(f"Run {job} is submitted; connected: {', '.join(connected(opened)) or 'no site'}.")
        ended = wait_for_end(opened, job, seconds)
        say(f"It has ended: {ended}. The server's kit has its result.")
    return job, ended


def status_for(kit: Path) -> Status:
    """What the user of a kit may see."""
    with session(kit) as opened:
        return status(opened)


class Status(NamedTuple):
    """What a user sees of a system."""

    sites: tuple[str, ...]  # connected
    runs: tuple[tuple[str, str, str, str], ...]  # (number, name, submitted at, how it stands), newest first

    def lines(self) -> list[str]:
        """All of it for a person."""
        runs = [f"{submitted} {name} {number}: {how}" for number, name, submitted, how in self.runs]
        return [f"Connected: {', '.join(self.sites) or 'no site'}.", *(runs or ["No run so far."])]


def status(opened: Session) -> Status:
    """Who is connected, and the runs so far."""
    runs = opened.list_jobs(detailed=True, reverse=True)
    shown = ((run["job_id"], run["name"], run["submit_time_iso"], run["status"]) for run in runs)
    return Status(connected(opened), tuple(shown))


def connected(opened: Session) -> tuple[str, ...]:
    """Names of the sites that are connected."""
    return tuple(sorted((site.name for site in opened.get_connected_client_list()), key=natural_key))


def _write(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2))
