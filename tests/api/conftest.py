# SPDX-License-Identifier: Apache-2.0
"""One small table in every form, and what was trained on it."""

from __future__ import annotations

import csv
from types import SimpleNamespace

import numpy as np
import pytest

import idiolect as il


@pytest.fixture(autouse=True, scope="module")
def quick_figures(one_drawing):
    """A comparison is a command that ends in a report."""


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """`small.path`, a CSV of four sites; `small.columns`, the same as a mapping of columns."""
    draw = np.random.default_rng(11)
    path = tmp_path_factory.mktemp("api") / "patients.csv"
    columns = {"site": [], "age": [], "dose": [], "outcome": []}
    for place in range(4 * 12):
        site = place // 12
        age, dose = (round(float(value), 3) for value in draw.normal(size=2))
        row = (f"s{site}", age, dose, "yes" if age + 0.5 * site * dose + draw.normal() > 0 else "no")
        for name, value in zip(columns, row):
            columns[name].append(value)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values()))
    return SimpleNamespace(path=path, columns=columns)


@pytest.fixture(scope="session")
def table(small):
    return il.read_table(small.path, client="site", target="outcome")


@pytest.fixture(scope="session")
def run(table):
    """A trained method, ten rounds."""
    return il.train("ditto", table, rounds=10, penalty=0.2)


@pytest.fixture(scope="session")
def answer(table):
    """A small comparison: rounds are given, so that little is chosen."""
    return il.compare(table, ["local", "fedavg"], rounds=4, step_sizes=[0.3, 1.0], refit=False, seed=2)
