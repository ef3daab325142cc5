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


def needs_quiet(task):
    """Runs out of memory twice, and keeps count of its tries."""
    folder, name = task
    path = os.path.join(folder, name)
    os.makedirs(path, exist_ok=True)
    tries = len(os.listdir(path))
    os.mkdir(os.path.join(path, str(tries)))
    if tries < 2:
        raise MemoryError if tries else RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate")


def test_a_task_that_ran_out_of_memory_is_tried_again_with_fewer_beside_it(tmp_path):
    told = []
    tasks = {name: (str(tmp_path), name) for name in "ab"}
    in_processes(needs_quiet, tasks, workers=4, xla_flags="", told=lambda *news: told.append(news))  # 4, 2, 1
    assert sorted(told) in ([("a", 1, 2), ("b", 2, 2)], [("a", 2, 2), ("b", 1, 2)])
    assert [sorted(os.listdir(tmp_path / name)) for name in "ab"] == [["0", "1", "2"]] * 2


def test_memory_that_does_not_suffice_for_one_process_is_an_error(tmp_path):
    with pytest.raises(RuntimeError, match="RESOURCE_EXHAUSTED"):
        in_processes(
            needs_quiet,
            {"a": (str(tmp_path), "a")},
            workers=1,
            xla_flags="--xla_gpu_enable_triton_gemm=false",
            told=lambda *news: None,
        )
    assert os.listdir(tmp_path / "a") == ["0"]
