# SPDX-License-Identifier: Apache-2.0
"""`idiolect deploy ...` at a party's desk: kits, a check of one's own table, how far a run is; what is refused."""

from __future__ import annotations

import stat
import sys

import pytest

from idiolect.cli import app
from idiolect.cli.failures import exit_code_of

SPEC = """
[data]
source = "table"
client = "site"
target = "outcome"
[methods.fedavg]
step_size = 0.1
"""


@pytest.fixture
def idiolect(tmp_path, monkeypatch, capsys):
    """Runs a command in an empty folder with a spec: (exit code, output, errors)."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.toml").write_text(SPEC)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["idiolect", "deploy", *words])
        code = exit_code_of(app)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def write_rows(path, rows=12):
    lines = [f"{row % 5},{'ab'[row % 2]},{'yes' if row % 3 else 'no'}" for row in range(rows)]
    path.write_text("\n".join(["age,ward,outcome", *lines]) + "\n")


def test_kits_hold_what_each_party_needs_and_keys_are_private(idiolect, tmp_path):
    code, out, _ = idiolect("init", "kits", "spec.toml", "--sites", "north,south", "--port", "9000")
    assert code == 0
    assert "north" in out
    for name in ("server", "north", "south"):
        kit = tmp_path / "kits" / name
        files = {path.name for path in kit.iterdir()}
        assert {"own.crt", "own.key", "authority.crt", "spec.toml"} <= files
        assert stat.S_IMODE((kit / "own.key").stat().st_mode) == 0o600
    assert idiolect("init", "kits", "spec.toml", "--sites", "north,south")[0] == 2  # nothing is overwritten


def test_check_says_what_would_be_sent_and_what_is_wrong(idiolect, tmp_path):
    idiolect("init", "kits", "spec.toml", "--sites", "north,south")
    kit = tmp_path / "kits" / "north"
    code, _, errors = idiolect("check", "kits/north")
    assert code == 2
    assert "rows.csv" in errors
    write_rows(kit / "rows.csv")
    code, out, _ = idiolect("check", "kits/north")
    assert code == 0
    assert "classification" in out
    assert "ward: text, 2 different" in out
    own = (kit / "site.toml").read_text()
    (kit / "site.toml").write_text(own.replace('"north"', '"nord"'))
    code, _, errors = idiolect("check", "kits/north")
    assert code == 2
    assert "'north', got 'nord'" in errors  # the certificate says who it is
    (kit / "site.toml").write_text(own)
    write_rows(kit / "rows.csv", rows=4)
    assert "fewer training rows" in idiolect("check", "kits/north")[2]
    (kit / "rows.csv").write_text("age,outcome,site\n1,yes,north\n2,no,south\n")
    assert "rows of 2 clients" in idiolect("check", "kits/north")[2]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("init", "kits", "spec.toml", "--sites", "north"), "at least 2 sites"),
        (("init", "kits", "spec.toml", "--sites", "north,server"), "not be 'server'"),
        (("init", "kits", "spec.toml", "--sites", "a,b", "--set", "data.source = 'digits'"), "table"),
        (("serve", "nowhere"), "server.toml"),
        (("join", "nowhere"), "connect.toml"),
        (("status", "nowhere"), "no folder nowhere"),
        (("demo", "--sites", "1"), "at least 2"),
        (("demo", "--sites", "1000000000"), "--sites 1000000000, a process for each site, needs about 310 PB"),
        (("demo", "spec.toml", "--sites", "2"), "got 2 beside spec.toml"),
        (("demo", "spec.toml", "--rounds", "2"), "got 2 beside spec.toml"),
        (("init", "kits", "spec.toml", "--sites", "a,b", "--port", "99999"), "from 1 to 65535, got 99999"),
        (("init", "kits", "spec.toml", "--sites", "a,b", "--port", "-1"), "from 1 to 65535, got -1"),
        (("init", "kits", "spec.toml", "--sites", "a,b", "--host", ""), "--host must be a name or an address"),
        (("init", "kits", "spec.toml", "--sites", "a,b", "--host", "a b"), "got 'a b'"),
    ],
)
def test_what_makes_no_sense_is_refused(idiolect, tmp_path, words, sentence):
    code, _, errors = idiolect(*words)
    assert code == 2
    assert sentence in " ".join(errors.split())
    assert not (tmp_path / "kits").exists()


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("step_size = -1", "step_size must be"),
        ("step_size = [0.1, 0.3]", "step_size must be"),
        ("epochs = 1.5", "epochs must be"),
        ("step_size = 0.1\nswept = { method = 'fedavg', settings = ['step_size'] }", "not swept over sites"),
    ],
)
def test_a_spec_that_can_never_run_has_no_kits(idiolect, tmp_path, setting, sentence):
    write_rows(tmp_path / "rows.csv")
    table = SPEC.replace('client = "site"', 'path = "rows.csv"\nclient = "ward"')
    (tmp_path / "spec.toml").write_text(table.replace("step_size = 0.1", setting))
    for words in (("init", "kits", "spec.toml", "--sites", "a,b"), ("demo", "spec.toml", "--out", "kits")):
        code, _, errors = idiolect(*words)
        assert code == 2
        assert sentence in " ".join(errors.split())
        assert not (tmp_path / "kits").exists()


@pytest.mark.parametrize("transport", ["tls", "flare", "flower"])
def test_a_rehearsal_writes_into_no_folder_that_holds_files(idiolect, tmp_path, transport):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "done").touch()
    code, _, errors = idiolect("demo", "--out", "run", "--transport", transport, "--rounds", "1", "--sites", "2")
    assert code == 2
    assert "need a new folder, and run holds files" in " ".join(errors.split())
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["done"]


def test_a_kit_is_refused_where_its_file_has_an_impossible_port(idiolect, tmp_path):
    idiolect("init", "kits", "spec.toml", "--sites", "north,south")
    path = tmp_path / "kits" / "server" / "server.toml"
    path.write_text(path.read_text().replace("8443", "99999"))
    code, _, errors = idiolect("serve", "kits/server")
    assert (code, "server.toml.port must be" in errors) == (2, True)


def test_the_servers_kit_says_what_it_is_for(idiolect):
    idiolect("init", "kits", "spec.toml", "--sites", "north,south")
    code, _, errors = idiolect("status", "kits/server")
    assert (code, "deploy serve" in errors) == (2, True)
    code, _, errors = idiolect("join", "kits/server")
    assert (code, "kit of the server" in errors) == (2, True)
