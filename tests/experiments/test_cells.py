# SPDX-License-Identifier: Apache-2.0
"""Cells of a table: computed once, found again, and told apart by what they were computed from."""

from __future__ import annotations

import os

import pytest

from idiolect.core.checks import RequestError
from idiolect.experiments.papers.cells import Cells, in_processes


def test_a_cell_is_computed_once(tmp_path):
    cells, calls = Cells(tmp_path / "cells"), []

    def compute():
        calls.append(1)
        return {"accuracy": [0.5, float("nan")]}

    first = cells.get("data/method/seed-0", {"step": 0.1}, compute)
    again = Cells(tmp_path / "cells").get("data/method/seed-0", {"step": 0.1}, compute)
    assert len(calls) == 1
    assert first["accuracy"][0] == again["accuracy"][0] == 0.5
    assert str(again["accuracy"][1]) == "nan"  # a client without test rows stays one
    assert cells.find("data/method/seed-0", {"step": 0.2}) is None
    assert cells.find("data/other/seed-0", {"step": 0.1}) is None


def test_a_file_that_is_no_cell_is_named(tmp_path):
    cells = Cells(tmp_path)
    cells.keep("a", {}, {"value": 1})
    (file,) = tmp_path.iterdir()
    file.write_text("{}")
    with pytest.raises(RequestError, match="is no cell of a table; delete it"):
        cells.find("a", {})


@pytest.mark.parametrize("workers", [1, 2])
def test_tasks_are_done_in_processes(tmp_path, workers, monkeypatch):
    for name in ("XLA_FLAGS", "XLA_PYTHON_CLIENT_PREALLOCATE"):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # put back afterwards
    told = []
    tasks = [str(tmp_path / name) for name in "abc"]
    in_processes(os.mkdir, tasks, workers=workers, xla_flags="", told=told.append)
    assert sorted(told) == sorted(tasks)
    assert all((tmp_path / name).is_dir() for name in "abc")


def test_a_task_that_fails_does_not_keep_others_from_being_done(tmp_path, monkeypatch):
    for name in ("XLA_FLAGS", "XLA_PYTHON_CLIENT_PREALLOCATE"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    (tmp_path / "taken").mkdir()
    with pytest.raises(FileExistsError):
        in_processes(
            os.mkdir, [str(tmp_path / "taken"), str(tmp_path / "free")], workers=2, xla_flags="", told=lambda task: None
        )
    assert (tmp_path / "free").is_dir()
