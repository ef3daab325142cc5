# SPDX-License-Identifier: Apache-2.0
"""Specs with a changed value, name or type: run, or refused in a sentence, never an error that nobody thought of."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from benchmarks.faults_frame import Counts, drawn_once, idiolect, make_table

STRANGE: tuple[Any, ...] = (
    *(-1, 0, 2**31 - 1, 2**31, 2**63 - 1, -(2**31), 1e-300, 1e300, float("nan"), float("inf")),
    *("", "x", "\x1b[31m", "../..", "é" * 300, True, [], [0], ["x"], {}, {"x": 1}, [[1]], "package.module:name"),
)
# values that are right and would train for days: only what is refused is tried with them
ENDLESS = ("rounds", "epochs", "local_steps", "splits", "checkpoint_every")


def mutate_specs(home: Path, trials: int) -> Counts:
    """`trials` specs, each with one change, given to run."""
    make_table(home)
    base = tomllib.loads((home / "spec.toml").read_text(encoding="utf-8"))
    base["training"] |= {"rounds": 1, "record_every": 1, "cohort": 0, "dropout": 0.0, "precision": "float32"}
    base |= {"model": {"name": "linear", "l2": 0.0, "settings": {}}, "seeds": [0], "name": "tried"}
    base |= {"evaluation": {"scores": ["accuracy"], "time_model": "hospital"}, "tuning": {"refit": False}}
    base["data"] |= {"seed": 0, "held_out": 0, "train": 0.6, "validation": 0.2, "test": 0.2, "settings": {}}
    draw, counts = np.random.default_rng(5), Counts()
    spec, folder = home / "mutated.toml", home / "mutated"
    with drawn_once():
        for _ in range(trials):
            table, words = _mutated(base, draw)
            spec.write_text(tomli_w.dumps(table), encoding="utf-8")
            answer = idiolect("run", str(spec), "--out", str(folder), "--quiet")
            if answer.unexpected:
                counts.add("unexpected", f"{words}: {answer.err.strip()[-300:]}")
            elif answer.code and not answer.err.startswith("Error: "):
                counts.add("without a sentence", f"{words}: {answer.err[-300:]}")
            else:
                counts.add({0: "ran", 1: "failed with a sentence"}.get(answer.code, "refused"))
            shutil.rmtree(folder, ignore_errors=True)
    return counts


def _mutated(base: dict[str, Any], draw: np.random.Generator) -> tuple[dict[str, Any], str]:
    """The spec with one change, and the change in words."""
    table = tomllib.loads(tomli_w.dumps(base))
    places = [(name,) for name in table] + [
        (name, key) for name, inside in table.items() if isinstance(inside, dict) for key in inside
    ]
    *path, key = places[int(draw.integers(len(places)))]
    inside = table[path[0]] if path else table
    way = ("change", "change", "change", "rename", "remove", "add")[int(draw.integers(6))]
    if way == "remove":
        del inside[key]
    elif way == "rename":
        inside[f"{key}x"] = inside.pop(key)
    else:
        name = key if way == "change" else "more"
        value = STRANGE[int(draw.integers(len(STRANGE)))]
        endless = name in ENDLESS and isinstance(value, int) and value > 1
        inside[name] = -1 if endless else value
        return table, f"{way} {'.'.join((*path, name))} = {inside[name]!r}"
    return table, f"{way} {'.'.join((*path, key))}"
