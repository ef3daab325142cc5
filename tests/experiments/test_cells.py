# SPDX-License-Identifier: Apache-2.0
"""Cells of a table: computed once, found again, and told apart by what they were computed from."""

from __future__ import annotations

import os

import pytest

from idiolect.core.checks import RequestError
from idiolect.experiments.papers.cells import Cells, in_processes


def test_a_cell_is_found_again_by_what_it_was_made_of(tmp_path):
    cells = Cells(tmp_path / "cells")
    assert cells.find("data/method/seed-0", {"step": 0.1}) is None
    cells.keep("data/method/seed-0", {"step": 0.1}, {"accuracy": [0.5, float("nan")]})
    again = Cells(tmp_path / "cells").find("data/method/seed-0", {"step": 0.1})
    assert again["accuracy"][0] == 0.5
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


@pytest.mark.parametrize(("workers", "xla_flags"), [(1, ""), (2, "--xla_gpu_enable_triton_gemm=false")])
def test_tasks_are_done_in_processes(tmp_path, workers, xla_flags):
    before, told = dict(os.environ), []
    tasks = {name: str(tmp_path / name) for name in "abc"}
    in_processes(os.mkdir, tasks, workers=workers, xla_flags=xla_flags, told=lambda *news: told.append(news))
    assert sorted(name for name, _, _ in told) == ["a", "b", "c"]
    assert [counts for _, *counts in told] == [[1, 3], [2, 3], [3, 3]]
    assert all((tmp_path / name).is_dir() for name in "abc")
    assert dict(os.environ) == before


def test_a_task_that_fails_does_not_keep_others_from_being_done(tmp_path):
    (tmp_path / "taken").mkdir()
    tasks = {name: str(tmp_path / name) for name in ("taken", "free")}
    with pytest.raises(FileExistsError):
        in_processes(os.mkdir, tasks, workers=2, xla_flags="", told=lambda *news: None)
    assert (tmp_path / "free").is_dir()
