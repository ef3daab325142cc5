# SPDX-License-Identifier: Apache-2.0
"""The experiment on estimated discrepancies, small: which numbers, which table, and a figure that can be drawn.

tests/collaborate/test_weights.py holds what it claims.
"""

from __future__ import annotations

import numpy as np
import pytest

from papers import collaborate_bernoulli as experiment
from papers.catalogue import load_expected, load_spec
from papers.drawing import drawing, to_bytes
from papers.runner import reproduce
from papers.verdicts import compare

SLUG = "collaborate-bernoulli"


@pytest.fixture(scope="module")
def small():
    heard = []
    spec = load_spec(SLUG) | {"agents": 20, "samples": [10, 20], "draws": 2, "folds": 4, "told_at": 20}
    return spec, experiment.measure(spec, lambda *news: heard.append(news)), heard


def test_numbers_table_and_figure(small):
    spec, measured, heard = small
    assert heard[-1][1:] == (8, 8)
    assert set(measured.numbers) == {
        *(f"{name}_{amount}_over_alone" for name in ("uniform", "clustered") for amount in (10, 20)),
        "clustered_20_over_told",
    }
    errors = measured.curves.errors["clustered"]
    assert measured.numbers["clustered_20_over_told"] == pytest.approx(errors[3, 1].mean() / errors[2, 1].mean())
    assert (errors[2] <= errors[0] + 1e-15).all()  # delta = 0 is training alone, at worst
    lines = measured.table.splitlines()
    assert len(lines) == 1 + 4
    assert lines[1].split()[:2] == ["uniform", "10"]
    with drawing(SLUG):
        assert to_bytes(experiment.draw(spec, measured.curves), "png").startswith(b"\x89PNG")


def test_expectations_name_what_the_full_experiment_measures():
    spec = load_spec(SLUG)
    curves = experiment.Curves(tuple(spec["samples"]), {name: np.ones((4, 4, 2)) for name in ("uniform", "clustered")})
    rows = compare(SLUG, load_expected(SLUG), experiment._numbers(spec, curves))
    assert all(row.verdict == "holds" for row in rows)  # every ratio is 1
    curves.errors["uniform"][3, 2] = 1.06
    rows = compare(SLUG, load_expected(SLUG), experiment._numbers(spec, curves))
    assert [row.name for row in rows if row.verdict == "changed"] == ["uniform_100_over_alone"]


def test_the_table_is_printed_above_the_comparison(monkeypatch, tmp_path):
    spec = load_spec(SLUG)
    curves = experiment.Curves(tuple(spec["samples"]), {name: np.ones((4, 4, 2)) for name in ("uniform", "clustered")})
    found = experiment.Measured(experiment._numbers(spec, curves), curves, experiment.to_text(curves))
    monkeypatch.setattr(experiment, "measure", lambda spec, progress: found)
    text = reproduce(SLUG, tmp_path / "run").to_text()
    assert text.index("over alone [95 %]") < text.index("uniform_10_over_alone")
