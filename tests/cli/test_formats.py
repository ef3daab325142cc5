# SPDX-License-Identifier: Apache-2.0
"""Every command prints one document for programs: JSON and CSV that a parser takes, and nothing else beside it."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from types import SimpleNamespace

import pytest
import typer

from idiolect.cli import app
from idiolect.cli.output import as_csv

TABLE = ("--client", "site", "--target", "ill")
QUICK = ("--rounds", "2", "--step-sizes", "0.1", "--methods", "local,fedavg", "--batch-size", "4")
# what the CSV of a command must have, beside being one
COMMANDS = {
    "compare": (["compare", "hospitals.csv", *TABLE, *QUICK], {"method", "mean", "gain_low", "traffic_bytes"}),
    "compare --splits": (
        ["compare", "hospitals.csv", *TABLE, *QUICK, "--splits", "2"],
        {"method", "score_mean", "announced"},
    ),
    "run": (["run", "spec.toml"], {"method", "mean", "worst_decile", "rounds"}),
    "sweep": (["sweep", "spec.toml", "--over", "step_size = [0.1, 0.2]"], {"method", "chosen", "choosing_mean"}),
    "dial": (
        ["dial", "hospitals.csv", *TABLE, "--values", "1,0", "--rounds", "1", "--l2", "0.1"],
        {"value", "test_mean", "spent_total_bytes"},
    ),
    "advise": (["advise", "larger.csv", *TABLE], {"client", "advice", "rows"}),
    "report": (["report", "run"], {"method", "mean"}),
    "pack": (["pack", "hospitals.csv", *TABLE], {"folder", "clients", "rows"}),
    "predict": (["predict", "run", "hospitals.csv", "--method", "fedavg"], {"site", "prediction", "model"}),
    "verify": (["verify", "run"], {"problem", "file"}),
    "list": (["list", "scores"], {"kind", "name", "about"}),
    "explain": (["explain", "fedavg"], {"name", "value"}),
    "explain RUN": (["explain", "run"], {"name", "value"}),
    "datasets list": (["datasets", "list"], {"name", "licence", "rows", "where"}),
    "datasets fetch": (["datasets", "fetch", "heart_disease"], {"name", "is", "where"}),
    "datasets build": (["datasets", "build", "heart_disease", "--from", "nowhere"], {"name", "is", "where"}),
    "reproduce": (["reproduce", "plsgd-consensus"], {"name", "expected", "measured", "verdict"}),
    "reproduce all": (["reproduce", "all"], {"slug", "verdict", "seconds"}),
    "deploy init": (["deploy", "init", "kits", "spec.toml", "--sites", "north,south"], {"party", "kit"}),
    "deploy check": (["deploy", "check", "kit"], {"name", "value"}),
    "deploy status": (["deploy", "status", "run"], {"name", "value"}),
    "deploy serve": (["deploy", "serve", "kit"], {"method", "mean"}),
    "deploy join": (["deploy", "join", "kit"], {"name", "value"}),
    "deploy submit": (["deploy", "submit", "kit"], {"name", "value"}),
    "deploy demo": (["deploy", "demo"], {"method", "mean"}),
}


def leaves(group, before=()):
    """Every command of the app, by its words."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from leaves(command, (*before, name))
        else:
            yield " ".join((*before, name)), command


ALL = dict(leaves(typer.main.get_command(app)))


def test_every_command_is_tried_here():
    """A new command cannot forget it: the names are read off the app."""
    tried = {next(name for name in ALL if f"{case} ".startswith(f"{name} ")) for case in COMMANDS}
    assert tried == set(ALL)


@pytest.mark.parametrize("name", ALL)
def test_every_command_has_the_option(name, idiolect, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert re.search(r"--format \W?text.json.csv", idiolect(*name.split(), "--help").out)


@pytest.fixture(autouse=True)
def larger(here):
    """Clients with rows enough for advice."""
    lines = (here / "hospitals.csv").read_text().splitlines()
    again = [line.replace(",0.", ",0.1").replace(",-0.", ",-0.1") for line in lines[1:]]
    (here / "larger.csv").write_text("\n".join([*lines, *again]) + "\n")


@pytest.fixture
def stand_ins(monkeypatch, finished):
    """What needs a network, other processes or minutes: the result it would have, at once."""
    from idiolect.cli import reproduce
    from idiolect.data import fetching
    from idiolect.experiments.deploy import demo, kits, look
    from idiolect.experiments.flare import jobs

    numbers = [{"name": "rate", "expected": 1.0, "measured": float("nan"), "verdict": "holds"}]
    one = SimpleNamespace(as_dict=lambda: {"slug": "x", "numbers": numbers}, to_text=str, changed=())
    lines = [{"slug": "x", "verdict": "as documented", "seconds": None, "counts": {"paper": {"of": 1}}}]
    every = SimpleNamespace(as_dict=lambda: {"reproductions": lines}, to_text=str, changed=())
    monkeypatch.setattr(reproduce, "_reproduce_one", lambda *given, **more: one)
    monkeypatch.setattr(reproduce, "_reproduce_all", lambda *given, **more: every)
    monkeypatch.setattr(fetching, "build", lambda row, given, folder: ("converted",))
    monkeypatch.setattr(kits, "serve", lambda kit, say, out: finished)
    monkeypatch.setattr(kits, "join", lambda kit, say: None)
    monkeypatch.setattr(
        look, "check_site", lambda kit: look.Looked(["Site north."], {"site": "north", "rows": {"a": 1}})
    )
    monkeypatch.setattr(demo, "run_demo", lambda folder, spec, tables, say: finished)
    monkeypatch.setattr(jobs, "run_to_end", lambda kit, least, seconds, say: say("submitted") or ("7", "FINISHED"))


@pytest.mark.parametrize("case", COMMANDS)
def test_json_and_csv_stand_alone_on_standard_output(case, idiolect, here, stand_ins):
    arguments, columns = COMMANDS[case]
    first = idiolect(*arguments, "--format", "json")
    assert first.code == 0, first.err
    document = json.loads(first.out)
    assert document
    assert first.out.count("\n") == 1  # one document, one line
    for folder in ("runs", "kits"):
        shutil.rmtree(here / folder, ignore_errors=True)
    second = idiolect(*arguments, "--format", "csv")
    assert second.code == 0, second.err
    rows = list(csv.reader(io.StringIO(second.out)))
    assert columns <= set(rows[0])
    assert {len(row) for row in rows} == {len(rows[0])}
    assert "\x1b" not in first.out + first.err + second.out + second.err


def test_cells_of_a_csv_are_plain_or_json():
    rows = [{"name": "a, b", "known": None, "sound": True}, {"name": 'say "x"\n', "many": [1, 2.5], "sound": False}]
    text = as_csv(rows, ("name",))
    assert list(csv.reader(io.StringIO(text))) == [
        ["name", "known", "sound", "many"],
        ["a, b", "", "true", ""],
        ['say "x"\n', "", "false", "[1, 2.5]"],
    ]


def test_a_name_reaches_a_program_as_it_is(idiolect, here):
    """A terminal sees control codes written out; a program that reads CSV gets the name itself."""
    text = (here / "larger.csv").read_text()
    (here / "odd.csv").write_text(text.replace("s1,", "caf\N{LATIN SMALL LETTER E WITH ACUTE}\x7f,"))
    answer = idiolect("advise", "odd.csv", *TABLE, "--format", "csv", "--quiet")
    assert answer.code == 0, answer.err
    names = [row["client"] for row in csv.DictReader(io.StringIO(answer.out))]
    assert "caf\N{LATIN SMALL LETTER E WITH ACUTE}\x7f" in names
