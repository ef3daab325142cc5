# SPDX-License-Identifier: Apache-2.0
"""Every benchmark runs in its small size and leaves its result; nothing here is timed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEVICE = ("gpu", "networks-gpu", "rounds-gpu")  # skipped without one
NAMES = (
    "overhead",
    "unified",
    "softmax",
    "networks",
    "shard",
    "recording",
    "start",
    "scale",
    "growth",
    "memory",
    "neighbours",
    "answers",
    "coverage",
    "advice-coverage",
    "faults",
    "hosts",
    "rows",
    "deploy",
    "deploy-methods",
    "deploy-fuzz",
    "deploy-faults",
    "protection",
    "protection-clip",
    "protection-attacks",
    "protection-rows",
    "masks",
    *DEVICE,
)


def bench(*arguments, environment=None):
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def results(tmp_path_factory, environment):
    """One process for all of them: each import of jax costs a second."""
    folder = tmp_path_factory.mktemp("results")
    done = bench("--quick", "--out", str(folder), environment=environment)
    assert done.returncode == 0, done.stderr
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")}


def test_all_are_run(results):
    assert set(results) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_result_says_what_was_done_and_where(results, name):
    result = results[name]
    assert result["command"] == f"python -m benchmarks {name} --quick"
    assert {"cpu_count", "jax", "numpy", "load_before", "load_after"} <= set(result["machine"])
    assert result["date"].startswith("20")
    assert result["verdict"] == ("skipped" if result["skipped"] else "not judged")
    assert result["numbers"] or result["skipped"]
    assert not result["targets"]  # small sizes prove nothing about speed


def test_only_a_missing_device_is_a_reason_to_skip(results):
    assert [name for name in NAMES if name not in DEVICE and results[name]["skipped"]] == []


def test_an_unknown_name_is_refused():
    done = bench("oberhead")
    assert done.returncode == 2
    assert "there is no benchmark 'oberhead'" in done.stderr


APART = """
from benchmarks.apart import measured_apart
for code in ("print(7)", "import time; time.sleep(60)", "raise SystemExit(3)", "print('seven')"):
    print(measured_apart(["-c", code], 2))
from benchmarks.measure import Result, Target
print(Result({}, (Target("speed", None, 2.0), Target("memory", 1.0, 2.0))).verdict(quick=False))
"""


def test_a_part_that_hangs_or_fails_is_said_not_to_be_measured():
    done = subprocess.run([sys.executable, "-c", APART], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "7",
        "not measured: stopped after 2 s",
        "not measured: ended with status 3",
        "not measured: what it printed is not JSON",
        "open",  # a target that was not measured is not met
    ]


def test_answers_compares_both_sides_on_every_split(results):
    tables = results["answers"]["numbers"]["tables"]
    assert {name: found["splits"] for name, found in tables.items()} == {"grunfeld": 2, "diabetes_shuffled": 2}
    assert all(len(found["classical"]) == 5 and len(found["ours"]) == 2 for found in tables.values())
