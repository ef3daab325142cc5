# SPDX-License-Identifier: Apache-2.0
"""FLARE's part without its processes: kits and what they allow, and a transport over a cell that the test plays."""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("nvflare", reason="the extra flare (nvflare) is not installed")
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.fuel.f3.message import Message

from idiolect.cli import app
from idiolect.cli.failures import exit_code_of
from idiolect.core.checks import RequestError
from idiolect.experiments.deploy.kits import read_server_file
from idiolect.experiments.deploy.site_file import read_site_file
from idiolect.experiments.flare import components, jobs, kits, policy, processes

pytestmark = pytest.mark.filterwarnings("ignore")  # what FLARE and its packages warn of is not ours


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("kits")
    kits.provision(made, kits.Federation(("amber", "birch")))
    return made


def test_keys_are_for_their_owner_only(folder):
    keys = [*folder.rglob("*.key"), *folder.rglob("cert.json")]
    assert len(keys) == 5  # server, two sites, a user, the authority
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}
    assert [key.relative_to(folder).parts[0] for key in folder.rglob("cert.json")] == [kits.AUTHORITY], (
        "the authority's key is in a kit"
    )


def test_a_later_site_gets_a_kit_and_the_others_keep_theirs(folder):
    before = {key: key.read_bytes() for key in folder.rglob("client.key")}
    root = (folder / "amber" / "startup" / "rootCA.pem").read_bytes()
    found = kits.provision(folder, kits.Federation(("amber", "birch", "cedar")))
    assert (found["cedar"] / "startup" / "rootCA.pem").read_bytes() == root
    assert all(key.read_bytes() == content for key, content in before.items())


def test_jobs_must_be_signed(folder):
    for path in (*folder.rglob("fed_client.json"), *folder.rglob("fed_server.json")):
        assert json.loads(path.read_text())["require_signed_jobs"] is True


SPEC = """
[data]
source = "table"
client = "site"
target = "y"
[methods.fedavg]
step_size = 0.1
"""


def test_init_makes_a_kit_for_each_party(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text(SPEC)
    options = ["--sites", "north,south", "--transport", "flare", "--lead", "ada@example.org", "--port", "18002"]
    monkeypatch.setattr(sys, "argv", ["idiolect", "deploy", "init", "study", "study.toml", *options])
    assert exit_code_of(app) == 0
    assert set(os.listdir("study")) == {"authority", "server", "north", "south", "ada@example.org"}
    assert read_server_file(Path("study/server")).sites == ["north", "south"]
    assert read_site_file(Path("study/north")).name == "north"
    assert "18002" in Path("study/north/startup/fed_client.json").read_text()
    assert exit_code_of(app) != 0, "a folder with kits is overwritten"


@pytest.mark.parametrize("change", [{"sites": ("a b",)}, {"leads": ("lead",)}, {"sites": ("a", "a")}])
def test_names_that_flare_refuses_are_refused_in_one_sentence(tmp_path, change):
    federation = kits.Federation(**({"sites": ("a",)} | change))
    with pytest.raises(RequestError, match="name"):
        kits.provision(tmp_path, federation)


def test_no_role_may_ship_code_or_read_files(folder):
    for kit in ("server", "amber"):
        said = json.loads((folder / kit / "local" / "authorization.json").read_text())["permissions"]
        assert set(said) == {"lead", "member", "org_admin", "project_admin"}
        for role, rights in said.items():
            assert {rights[right] for right in policy.FORBIDDEN} == {"none"}, role
            assert (rights["submit_job"] == "any") == (role == "lead")


def test_one_class_may_run_at_a_site(folder):
    resources = json.loads((folder / "amber" / "local" / "resources.json").read_text())
    assert resources["class_list_enforcement_mode"] == "enforce"
    assert resources["class_allow_list"] == [policy.SITE_CLASS]
    assert resources["allow_log_streaming"] is False


def test_a_server_that_is_carried_elsewhere_keeps_its_runs_there(folder, tmp_path):
    kit = shutil.copytree(folder / "server", tmp_path / "server")
    kits.follow(kit)
    assert str(tmp_path) in (kit / "local" / "resources.json").read_text()
    assert str(folder) not in (kit / "local" / "resources.json").read_text()
    with pytest.raises(RequestError, match="kit"):
        processes.start(tmp_path)


def test_a_job_holds_names_and_values_only(tmp_path):
    job = jobs.write_job(tmp_path / "job", "job", 2)
    files = sorted(path.relative_to(job).as_posix() for path in job.rglob("*") if path.is_file())
    assert files == ["app/config/config_fed_client.json", "app/config/config_fed_server.json", "meta.json"]


# ---- the transport


class Cell:
    """Answers by site; a number is a site that needs so many seconds."""

    def __init__(self, answers):
        self.answers = answers

    def send_request(self, *, target, request, timeout, **_):
        answer = self.answers[target.partition(".")[0]]
        if isinstance(answer, float):
            time.sleep(answer)
            return make_reply(ReturnCode.OK, body=b"late")
        if isinstance(answer, str):
            return make_reply(answer)
        return make_reply(ReturnCode.OK, body=answer(request.payload) if callable(answer) else answer)


def transport_over(**answers) -> components.FlareTransport:
    sites = [SimpleNamespace(name=name, get_fqcn=lambda name=name: name) for name in answers]
    engine = SimpleNamespace(get_cell=lambda: Cell(answers), get_clients=lambda: sites)
    context = SimpleNamespace(get_engine=lambda: engine, get_job_id=lambda: "job")
    return components.FlareTransport(context, SimpleNamespace(triggered=False))


def test_whoever_does_not_answer_in_time_or_not_with_bytes_is_absent():
    transport = transport_over(
        a=lambda content: content[::-1], b=0.6, c=ReturnCode.TIMEOUT, d=ReturnCode.COMM_ERROR, e={"not": "bytes"}
    )
    begun = time.monotonic()
    assert transport.exchange(1, dict.fromkeys("abcde", b"xyz"), 0.2) == {"a": b"zyx"}
    assert time.monotonic() - begun < 0.5
    transport.close()


def test_a_late_answer_is_not_taken_for_the_next_one():
    transport = transport_over(a=0.3)
    assert transport.exchange(1, {"a": b"one"}, 0.1) == {}
    transport.cell.answers["a"] = lambda content: content
    assert transport.exchange(2, {"a": b"two"}, 1.0) == {"a": b"two"}
    time.sleep(0.3)
    assert transport.exchange(3, {"a": b"three"}, 1.0) == {"a": b"three"}
    transport.close()


def test_a_run_that_a_user_ends_waits_for_no_site():
    transport = transport_over(a=1.0)
    transport.abort.triggered = True
    with pytest.raises(RequestError, match="ended"):
        transport.exchange(1, {"a": b"one"}, 60.0)
    transport.close()


# ---- a site


class Reverse:
    def handle(self, message):
        if message == b"fail":
            raise RuntimeError("row 3 says: a secret")
        return message[::-1]


@pytest.fixture
def site(monkeypatch):
    found = components.SiteProcess()
    found.coordinator = "server.job"
    monkeypatch.setattr(found, "make_handler", lambda kit: Reverse())
    return found


def ask(site, payload, origin="server.job") -> Message:
    return site.answer(Message({MessageHeaderKey.ORIGIN: origin}, payload))


def code(reply: Message) -> str:
    return reply.get_header(MessageHeaderKey.RETURN_CODE)


def test_a_site_answers_its_coordinator(site):
    assert ask(site, b"abc").payload == b"cba"


@pytest.mark.parametrize("origin", ["birch.job", "birch", "server", "server.other", "", None])
def test_a_site_answers_nobody_else(site, origin):
    reply = ask(site, b"abc", origin)
    assert code(reply) == ReturnCode.UNAUTHENTICATED
    assert not reply.payload


@pytest.mark.parametrize("payload", [{"a": 1}, "abc", 3, None, [b"abc"]])
def test_a_site_reads_bytes_only(site, payload):
    assert code(ask(site, payload)) == ReturnCode.INVALID_REQUEST


def test_an_error_leaves_the_site_without_its_text(site):
    reply = ask(site, b"fail")
    assert code(reply) == ReturnCode.PROCESS_EXCEPTION
    assert "secret" not in str(reply.headers) + str(reply.payload)
