# SPDX-License-Identifier: Apache-2.0
"""Names out of tables, specs and run folders: shown, never obeyed by a terminal, and never a line of their own."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from idiolect.cli import failures, output
from idiolect.cli.bar import Bar
from idiolect.core.checks import RequestError

EVIL = "s0\x1b]0;owned\x07\x9b31m\u202e\nError: all is lost"
MADE = "Error: all is lost"


def harmless(text):
    lines = text.splitlines()
    assert not any(line.startswith(MADE) for line in lines), text
    assert all(letter.isprintable() or letter == "\n" for letter in text), text
    return True


def renamed(value):
    """The value with evil names: those of methods and clients."""
    if isinstance(value, dict):
        return {renamed(key): renamed(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [renamed(entry) for entry in value]
    return EVIL if value in ("fedavg", "s0") else value


def test_clients_and_columns_of_a_table(idiolect, here):
    table = csv.read_csv(here / "hospitals.csv")
    evil = {name: 3 * values for name, values in renamed(table.to_pydict()).items()}  # advice needs rows enough
    evil["do\x1bse\n"] = evil.pop("dose")
    pq.write_table(pa.table(evil), here / "evil.parquet")
    columns = ("--client", "site", "--target", "ill", "--methods", "local,fedavg", "--rounds", "2", "--out", "out")
    answer = idiolect("compare", "evil.parquet", *columns)
    assert answer.code == 0, answer.err
    assert harmless(answer.out + answer.err)
    poisoned = idiolect("predict", "out", "evil.parquet", "--method", "fed\x1bavg\n")
    assert (poisoned.code, harmless(poisoned.err)) == (2, True)
    raw = idiolect("predict", "out", "evil.parquet")
    assert EVIL in raw.out  # no terminal reads it: data pass as they are
    advice = idiolect("advise", "evil.parquet", *columns[:4], "--out", "advice")
    assert advice.code == 0, advice.err
    assert harmless(advice.out + advice.err)


@pytest.mark.parametrize("place", ["name = 'x\\u001b'", 'name = "a\\nb"', '[methods."fed\\nprox"]\nname = "fedavg"'])
def test_labels_and_names_of_a_spec_must_be_printable(idiolect, here, place):
    text = (here / "spec.toml").read_text()
    (here / "evil.toml").write_text(text + place if "[" in place else place.replace("'", '"') + "\n" + text)
    answer = idiolect("run", "evil.toml", "--out", "out")
    assert (answer.code, harmless(answer.err)) == (2, True)
    assert "printable" in answer.error


def test_errors_and_options_that_quote_a_value(idiolect):
    for arguments in (["run", f"{EVIL}.toml"], [f"--{EVIL}"], ["list", EVIL], ["explain", EVIL], ["report", EVIL]):
        answer = idiolect(*arguments)
        assert answer.code == 2
        assert "\x1b" not in answer.err
        assert "\x9b" not in answer.err
        assert "\u202e" not in answer.err


def test_everything_that_is_printed_is_guarded(capsys, monkeypatch):
    monkeypatch.setenv("IDIOLECT_TRACEBACK", "1")

    def app():
        print("out \x1b")
        sys.stderr.writelines(["odd \x9b"])
        raise RequestError("refused \x07\u202e")

    assert failures.exit_code_of(app) == 2
    printed = capsys.readouterr()
    assert harmless(printed.out + printed.err)
    assert "refused \\x07\\u202e" in printed.err


def test_what_an_ascii_terminal_cannot_show_is_written_out():
    raw = io.BytesIO()
    stream = output.Guarded(io.TextIOWrapper(raw, "ascii", write_through=True))
    assert stream.encoding == "utf-8"
    stream.writelines(["Zoë\x1b", "\udce9\n"])
    assert raw.getvalue() == b"Zo\\xeb\\x1b\\udce9\n"


def test_the_bar_shows_labels_as_they_are_and_controls_the_terminal_itself(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    with output.guarded(), Bar(quiet=False) as bar:
        bar.update("x[step_size=0.1]\x9b\n", 1, 2)
        bar.say("note\x9b\n")
    text = screen.getvalue()
    assert "\x1b[" in text
    assert "\x9b" not in text
    assert "x[step_size=0.1]\\x9b\\n" in text
    assert "note\\x9b\\n" in text


def test_predict_into_a_terminal(finished, here, environment):
    (here / "evil.csv").write_text((here / "hospitals.csv").read_text().replace("s0,", '"s0\x1b[2J\u202e",'))
    command = [sys.executable, "-m", "idiolect", "predict", "run", "evil.csv", "--method", "fedavg", "--quiet"]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, cwd=here, env=environment, stdout=theirs, stderr=subprocess.PIPE)
    os.close(theirs)
    seen = b""
    try:
        while piece := os.read(ours, 65536):
            seen += piece
    except OSError:  # how a terminal ends on Linux
        pass
    finally:
        os.close(ours)
    assert process.wait(timeout=60) == 0, process.stderr.read()
    process.stderr.close()
    assert b"\x1b" not in seen
    assert b"s0\\x1b[2J\\u202e" in seen
