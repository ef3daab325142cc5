# SPDX-License-Identifier: Apache-2.0
"""Decoded once, built once, checked once, predicted once: calls are counted."""

from __future__ import annotations

import collections
import dataclasses
import inspect
import sys
from pathlib import Path

import numpy as np
import pytest

import idiolect
from idiolect.cli import app
from idiolect.core.checks import RequestError
from idiolect.core.settings import check_settings
from idiolect.experiments import build
from idiolect.experiments.execute import execute
from idiolect.experiments.prepare import prepare

PACKAGE = str(Path(idiolect.__file__).parent)
# of two methods with tuning and intervals, and of their table and page; the aim is 400 for both together
MOST_FUNCTIONS, MOST_OF_THE_REPORT = 872, 190


@pytest.fixture
def counted(monkeypatch):
    """`counted(owner, name, key)`: a counter of the calls of `owner.name`, by what `key` makes of the arguments."""

    def count(owner, name, key):
        calls, function = collections.Counter(), getattr(owner, name)

        def counting(*arguments, **named):
            calls[key(*arguments)] += 1
            return function(*arguments, **named)

        monkeypatch.setattr(owner, name, counting)
        return calls

    return count


def test_a_method_is_built_once_and_every_setting_checked_once(small, tmp_path, counted):
    """Also where methods that do not fit are left out, which takes a look at each before the run."""
    checked = counted(sys.modules[check_settings.__module__], "check", lambda place, name, value, limits: (place, name))
    built = counted(build, "assemble", lambda method, *_: method.label)
    spec = small.spec(evaluation={"unfit": "leave_out"}, methods={"local": {}, "ditto": {"penalty": 0.5}})
    execute(spec, tmp_path / "run")
    assert built == {"local": 1, "ditto": 1}
    assert {("methods.ditto", "penalty"), ("methods.local", "step_size")} <= set(checked)
    assert {place: times for place, times in checked.items() if times > 1} == {}


def test_a_wrong_setting_is_still_refused_at_the_door_of_the_engine(small):
    """What has passed is not checked again; a copy with another value has not passed."""
    (ready, _) = prepare(small.spec()).built
    check_settings(ready.algorithm)
    with pytest.raises(RequestError, match="step_size must be above 0"):
        check_settings(dataclasses.replace(ready.algorithm, step_size=-1.0))


def write_rows(path):
    """160 rows of 8 clients."""
    draw = np.random.default_rng(0)
    lines = ["site,age,dose,outcome"]
    for row in range(160):
        age, dose = draw.normal(size=2)
        lines.append(f"s{row % 8},{age:.4f},{dose:.4f},{'yes' if age + (row % 8 - 4) * dose > 0 else 'no'}")
    path.write_text("\n".join(lines) + "\n")


def test_a_comparison_predicts_test_rows_once_and_touches_few_functions(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "rows.csv")
    touched, looks = set(), []

    def note(frame, event, _):
        code = frame.f_code
        a_def = code.co_flags & inspect.CO_OPTIMIZED and "<" not in code.co_name  # no class body, no comprehension
        if event == "call" and a_def and code.co_filename.startswith(PACKAGE):
            touched.add((code.co_filename, code.co_qualname))
            if code.co_name == "look" and frame.f_locals.get("split") == "test":
                looks.append(code.co_filename)

    command = "compare rows.csv --client site --target outcome --methods local,fedavg --rounds 2 --step-sizes 0.1 -q"
    sys.setprofile(note)
    try:
        app(command.split(), standalone_mode=False)
    finally:
        sys.setprofile(None)
    assert "fedavg" in capsys.readouterr().out
    assert len(looks) == 2  # each method's models and their answers
    shown = {function for function in touched if function[0].startswith(f"{PACKAGE}/report/")}
    assert len(touched - shown) <= MOST_FUNCTIONS
    assert len(shown) <= MOST_OF_THE_REPORT
