# SPDX-License-Identifier: Apache-2.0
"""A FLARE system on loopback, started once from its own start-up kits: who and what it refuses."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("nvflare", reason="the extra flare (nvflare) is not installed")
from nvflare.fuel.flare_api.api_spec import AuthorizationError

from idiolect.core.checks import RequestError
from idiolect.experiments.flare import jobs, kits, policy, processes

pytestmark = pytest.mark.filterwarnings("ignore")  # what FLARE and its packages warn of is not ours

SECONDS = 60.0  # that anything here may take on a busy machine
SITES = ("amber", "birch", "cedar", "dune")
LEAD, MEMBER = "lead@idiolect.local", "member@idiolect.local"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(condition: Callable[[], bool], seconds: float = SECONDS) -> bool:
    """Whether it came true in time."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.1)
    return True


@contextlib.contextmanager
def running(*folders: Path, logs: Path) -> Iterator[None]:
    """These kits' servers and sites, stopped at the end whatever happens."""
    started = []
    with contextlib.ExitStack() as files:
        try:
            for kit in folders:
                log = files.enter_context((logs / f"{kit.name}.log").open("wb"))
                started.append(processes.start(kit, log))
            yield
        finally:
            processes.stop(started)


@pytest.fixture(scope="module")
def organiser(tmp_path_factory) -> SimpleNamespace:
    """Two federations with the same names and authorities of their own."""
    folder = tmp_path_factory.mktemp("flare")
    port = free_port()
    federation = kits.Federation(SITES, port=port, leads=(LEAD,), members=(MEMBER,))
    foreign = kits.Federation(SITES, port=free_port(), leads=(LEAD,))
    return SimpleNamespace(
        folder=folder,
        port=port,
        kits=kits.provision(folder / "own", federation),
        foreign=kits.provision(folder / "foreign", foreign),
    )


@pytest.fixture(scope="module")
def system(organiser) -> Iterator[SimpleNamespace]:
    """The server, one site, and the users' sessions."""
    own = organiser.kits
    allow_all(own["server"])
    with contextlib.ExitStack() as ends:
        ends.enter_context(running(own["server"], own["amber"], logs=organiser.folder))
        assert wait_until(lambda: listens(organiser.port))
        # it takes them seconds to be refused, so that they start together and are looked at last
        ends.enter_context(running(*impostors(organiser), logs=organiser.folder))
        lead, member = (ends.enter_context(jobs.session(own[user], SECONDS)) for user in (LEAD, MEMBER))
        assert wait_until(lambda: names(lead) == ["amber"])
        yield SimpleNamespace(lead=lead, member=member, **vars(organiser))


def impostors(organiser) -> list[Path]:
    """A site with a wrong key, one under the name of another, and a false server with the site that it deceives."""
    own, foreign = organiser.kits, organiser.foreign
    kits_of = {name: organiser.folder / name for name in ("wrong-key", "wrong-name", "false-server", "deceived")}
    for name, place in zip(("birch", "birch", "server", "cedar"), kits_of.values()):
        shutil.copytree(own[name], place, ignore=shutil.ignore_patterns("storage"))
    shutil.copy(foreign["birch"] / "startup" / "client.key", kits_of["wrong-key"] / "startup" / "client.key")
    for name in ("sub_start.sh", "fed_client.json"):
        path = kits_of["wrong-name"] / "startup" / name
        path.write_text(path.read_text().replace("birch", "cedar"))
    # the false server's certificate is of the right authority, and for another name
    false, port = kits_of["false-server"], free_port()
    for name in ("crt", "key"):
        shutil.copy(own["birch"] / "startup" / f"client.{name}", false / "startup" / f"server.{name}")
    for path in (false / "startup" / "fed_server.json", kits_of["deceived"] / "startup" / "fed_client.json"):
        path.write_text(path.read_text().replace(str(organiser.port), str(port)))
    kits.write_policy(false)
    return [*kits_of.values()]


def allow_all(server: Path) -> None:
    """A server that has its own ideas: the sites must refuse by themselves what its lead may do now."""
    path = server / "local" / "authorization.json"
    said = json.loads(path.read_text())
    said["permissions"]["lead"] = "any"
    path.write_text(json.dumps(said))


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
        return True
    return False


def names(session) -> list[str]:
    return sorted(client.name for client in session.get_connected_client_list())


# ---- who may connect


REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


@contextlib.contextmanager
def connected(port: int, root: Path, identity: Path | None) -> Iterator[Callable[[], bytes]]:
    """Ask the server over TLS, with a kit's certificate or none; b"" where it hangs up."""
    context = ssl.create_default_context(cafile=str(root / "startup" / "rootCA.pem"))
    if identity is not None:
        context.load_cert_chain(identity / "startup" / "client.crt", identity / "startup" / "client.key")
    with (
        socket.create_connection(("127.0.0.1", port), 5.0) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):

        def ask() -> bytes:
            try:
                secure.sendall(REQUEST)
                return secure.recv(1 << 16)
            except (ssl.SSLError, ConnectionError):
                return b""

        yield ask


def test_a_certified_site_is_answered(system):
    with connected(system.port, system.kits["birch"], system.kits["birch"]) as ask:
        assert ask().startswith(b"HTTP/1.1")


@pytest.mark.parametrize("which", ["none", "of another authority"])
def test_a_site_without_a_certificate_of_ours_is_refused(system, which):
    identity = None if which == "none" else system.foreign["birch"]
    with connected(system.port, system.kits["birch"], identity) as ask:
        assert ask() == b""


def test_the_server_of_another_authority_is_refused(system):
    birch = system.foreign["birch"]
    with pytest.raises(ssl.SSLCertVerificationError), connected(system.port, birch, birch):
        pass


# ---- what may pass


def test_a_tampered_message_is_not_read(system):
    """One bit of what travels is turned over: the server hangs up instead of answering."""
    spoil = threading.Event()
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        door.listen(1)
        threading.Thread(target=between, args=(door, system.port, spoil), daemon=True).start()
        birch = system.kits["birch"]
        with connected(door.getsockname()[1], birch, birch) as ask:
            assert ask().startswith(b"HTTP/1.1")
            spoil.set()
            assert ask() == b""


def between(door: socket.socket, port: int, spoil: threading.Event) -> None:
    """Pass a connection on; once told to, turn a bit of what the server is sent."""
    near, _ = door.accept()
    with near, socket.create_connection(("127.0.0.1", port), 5.0) as far:
        threading.Thread(target=pass_on, args=(far, near), daemon=True).start()
        with contextlib.suppress(OSError):
            while block := near.recv(1 << 16):
                far.sendall(block[:-1] + bytes([block[-1] ^ 1]) if spoil.is_set() else block)


def pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while block := source.recv(1 << 16):
            target.sendall(block)
        target.shutdown(socket.SHUT_WR)  # the server hung up


# ---- who may do what


def test_a_user_without_the_role_cannot_start_a_run(system):
    with pytest.raises(RequestError, match="role"):
        jobs.submit(system.member, "forbidden", 1)


def test_whoever_has_a_role_sees_sites_and_runs(system):
    assert jobs.status(system.member).sites == ("amber",)
    assert all(len(run) == 4 for run in jobs.status(system.lead).runs)


@pytest.mark.parametrize("user", ["lead", "member"])
def test_nobody_reads_the_files_of_a_site(system, user):
    with pytest.raises(AuthorizationError):
        getattr(system, user).cat_target("amber", file="local/resources.json")


def job_with(folder: Path, *, code: str = "", executor: str = policy.SITE_CLASS, args: dict | None = None) -> Path:
    """A run that brings what it must not."""
    job = jobs.write_job(folder, folder.name, 1)
    path = job / "app" / "config" / "config_fed_client.json"
    config = json.loads(path.read_text())
    config["executors"][0]["executor"] = {"path": executor, "args": args or {}}
    path.write_text(json.dumps(config))
    if code:
        (job / "app" / "custom").mkdir()
        (job / "app" / "custom" / "shipped.py").write_text(code)
    return job


def test_code_that_a_run_ships_is_refused_by_the_site(system):
    mark = system.folder / "shipped"
    code = f"import pathlib\npathlib.Path({str(mark)!r}).touch()\nclass Shipped: pass\n"
    job = jobs.submit_folder(system.lead, job_with(system.folder / "ships", code=code, executor="shipped.Shipped"))
    assert jobs.wait_for_end(system.lead, job, SECONDS) != "FINISHED:COMPLETED"
    assert "BYOC" in str(system.lead.get_job_meta(job)["job_deploy_detail"])
    assert not mark.exists()
    with pytest.raises(AuthorizationError):  # nor may somebody without the role ask for what it left
        system.member.download_job_result(job)


def test_a_class_that_is_installed_and_not_ours_is_refused_by_the_site(system):
    mark = system.folder / "launched"
    starts_programs = "nvflare.app_common.executors.multi_process_executor.MultiProcessExecutor"
    args = {"executor_id": f"touch {mark}"}
    job = jobs.submit_folder(system.lead, job_with(system.folder / "starts", executor=starts_programs, args=args))
    assert wait_until(lambda: said(system, "amber", "is not in allow_list"))
    system.lead.abort_job(job)
    assert not mark.exists()
    assert {run[1] for run in jobs.status(system.member).runs} == {"ships", "starts"}


# ---- who never joins


def said(system, name: str, *words: str) -> bool:
    """Whether the log of this kit, or the server's, has one of these words."""
    text = "".join((system.folder / f"{log}.log").read_text(errors="replace") for log in (name, "server"))
    return any(word in text for word in words)


def test_a_site_under_the_name_of_another_never_joins(system):
    assert wait_until(lambda: said(system, "wrong-name", "authenticated as 'birch' but claimed endpoint 'cedar'"))
    assert names(system.lead) == ["amber"]


def test_a_site_that_poses_as_the_server_is_refused(system):
    assert wait_until(lambda: said(system, "deceived", "authenticated as 'birch' but claimed endpoint 'server'"))


def test_a_site_with_a_wrong_key_never_joins(system):
    assert wait_until(lambda: said(system, "wrong-key", "KEY_VALUES_MISMATCH", "key values mismatch"))
    assert names(system.lead) == ["amber"]
