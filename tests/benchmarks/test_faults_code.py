# SPDX-License-Identifier: Apache-2.0
"""Planted code, in short: of at least ten places none is executed by the commands that read a run."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def attack(monkeypatch, environment):
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.setenv("XLA_FLAGS", environment["XLA_FLAGS"])
    yield importlib.import_module("benchmarks.faults_code")
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
        del sys.modules[name]


def test_planted_code_is_not_executed(attack):
    found = attack.planted(quick=True)
    assert found["planted"] > found["alive"] >= 10
    assert found["executed_by_place"] == {}
    assert found["executed"] == 0
    assert found["unexpected"] == []
