# SPDX-License-Identifier: Apache-2.0
"""Progress: one bar over all methods in a terminal, a short line per method in a pipe, nothing where quiet."""

from __future__ import annotations

import io
import re

import pytest

from idiolect.cli import bar as bars
from idiolect.cli.bar import Bar
from idiolect.experiments.work import CHOOSING, Stage, Work


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass where the test lets them."""
    now = [0.0]
    monkeypatch.setattr(bars.time, "monotonic", lambda: now[0])
    return now


def test_the_work_of_all_methods_adds_up_and_never_goes_back():
    seen = []
    work = Work(None, seen.append, methods=3, searched=1)
    for method, trained in (("local", 0), ("local", 1), ("fedavg", 2)):
        report = work.stage(method, trained)
        for done in (0, 5, 10):
            report(done, 10)
    parts = [stage.overall for stage in seen]
    assert parts == sorted(parts)
    assert (parts[0], parts[-1]) == (0.0, 1.0)
    assert parts[2] == pytest.approx(CHOOSING / (3 + CHOOSING))
    assert [stage.trains for stage in seen] == [False] * 3 + [True] * 6


def test_a_stage_that_ends_early_counts_as_done():
    seen, heard = [], []
    work = Work(lambda *news: heard.append(news), seen.append, methods=2, searched=0)
    work.stage("a", 1)(3, 1000)
    work.stage("b", 1)(0, 10)
    assert seen[-1] == Stage("b", 0, 10, True, 0.5)
    assert heard == [("a", 3, 1000), ("b", 0, 10)]


def test_a_pipe_gets_one_short_line_per_method(capsys, clock):
    with Bar(quiet=False) as bar:
        for method, overall in (("local", 0.25), ("fedavg", 1.0)):
            clock[0] += 30
            bar.follow(Stage(method, 1, 10, False, overall - 0.2))
            for done in (5, 10):
                bar.follow(Stage(method, done, 10, True, overall))
    printed = capsys.readouterr()
    assert printed.out == ""
    # 30 s for a quarter: three more of them
    assert printed.err.splitlines() == [
        "local: 10 rounds; 25 % of all, 3:00 left.",
        "fedavg: 10 rounds; 100 % of all.",
    ]
    assert all(letter.isprintable() for letter in printed.err.replace("\n", ""))


def test_lines_of_splits_say_which(capsys, clock):
    with Bar(quiet=False) as bar:
        for split in (1, 2):
            bar.next_split(split, 2)
            bar.follow(Stage("local", 4, 4, True, 1.0))
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(";")[0] for line in lines] == [f"split {split}: local: 4 rounds" for split in (1, 2)]
    assert "50 % of all" in lines[0]


def test_quiet_is_silent(capsys):
    with Bar(quiet=True) as bar:
        bar.follow(Stage("local", 4, 4, True, 1.0))
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("no_color", [False, True])
def test_a_terminal_gets_one_bar_with_the_time_left_of_all(monkeypatch, clock, no_color):
    stream = Terminal()
    monkeypatch.setattr(bars.sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    with Bar(quiet=False) as bar:
        for name, part in (("local", 0.25), ("evil\x1b[2J", 0.5)):
            clock[0] += 10
            bar.follow(Stage(name, 3, 10, True, part))
            bar._progress.refresh()
        bar.say("a remark")
    text = stream.getvalue()
    assert "local: round 3 of 10" in text
    assert "25%" in text
    assert "0:30 left" in text  # 10 s for a quarter
    assert "0:20 left" in text  # 20 s for the half
    assert "a remark" in text
    assert "\x1b[2Jx" not in text
    assert "evil\\x1b[2J" in text
    assert "rounds;" not in text  # lines are for pipes
    colours = re.findall(r"\x1b\[[0-9;]*(?:3[0-7]|38)[0-9;]*m", text)
    assert bool(colours) is not no_color
