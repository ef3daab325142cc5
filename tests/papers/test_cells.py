# SPDX-License-Identifier: Apache-2.0
"""Cells of a table: computed once, found again, and told apart by what they were computed from."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import papers
from idiolect.core.checks import RequestError
from papers.cells import Cells, in_processes


def test_a_cell_is_found_again_by_what_it_was_made_of(tmp_path):
    cells = Cells(tmp_path / "cells")
    assert cells.find("data/method/seed-0", {"step": 0.1}) is None
    cells.keep("data/method/seed-0", {"step": 0.1}, {"accuracy": [0.5, float("nan")]})
    again = Cells(tmp_path / "cells").find("data/method/seed-0", {"step": 0.1})
    assert again["accuracy"][0] == 0.5
    assert str(again["accuracy"][1]) == "nan"  # a client without test rows stays one
    assert cells.find("data/method/seed-0", {"step": 0.2}) is None
    assert cells.find("data/other/seed-0", {"step": 0.1}) is None


@pytest.mark.parametrize("text", ["{}", "[]", "[" * 200_000, '{"made_of": {}, "cell": {}', "\xff"])
def test_a_file_that_is_no_cell_is_named(tmp_path, text):
    cells = Cells(tmp_path)
    cells.keep("a", {}, {"value": 1})
    (file,) = tmp_path.iterdir()
    file.write_text(text, encoding="latin-1")
    with pytest.raises(RequestError, match=f"{file} is no cell of a table; delete it"):
        cells.find("a", {})


def test_an_empty_cell_and_an_edited_number_are_not_believed(tmp_path):
    cells, made_of = Cells(tmp_path), {"size": {2: 1, 10: (3,)}}
    cells.keep("a", made_of, {"value": [0.25, float("nan")], "by": {2: 1, 10: 2}})
    (file,) = tmp_path.iterdir()
    assert cells.find("a", made_of)["by"] == {"2": 1, "10": 2}
    file.write_text(file.read_text().replace("0.25", "0.75"))
    with pytest.raises(RequestError, match=f"{file} is damaged or was edited; delete it"):
        cells.find("a", made_of)
    file.write_text(json.dumps({"made_of": made_of, "cell": {}}))
    with pytest.raises(RequestError, match=f"{file} is not what its name says; delete it"):
        cells.find("a", made_of)


def test_a_cell_of_an_earlier_version_has_no_checksum(tmp_path):
    cells = Cells(tmp_path)
    cells.keep("a", {}, {"value": 1})
    (file,) = tmp_path.iterdir()
    file.write_text('{"made_of": {}, "cell": {"value": 2}}')
    assert cells.find("a", {}) == {"value": 2}


def test_a_cell_that_was_changed_by_hand_is_named(tmp_path):
    cells = Cells(tmp_path)
    cells.keep("a", {"step": 0.1, "size": (1, 2)}, {"value": 1})
    assert cells.find("a", {"step": 0.1, "size": (1, 2)}) == {"value": 1}
    (file,) = tmp_path.iterdir()
    file.write_text(file.read_text().replace("0.1", "0.2"))
    with pytest.raises(RequestError, match="is not what its name says; delete it"):
        cells.find("a", {"step": 0.1, "size": (1, 2)})


@pytest.mark.parametrize(("workers", "xla_flags"), [(1, ""), (2, "")])
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
    """Runs out of memory once, and keeps count of its tries."""
    folder, name = task
    path = os.path.join(folder, name)
    os.makedirs(path, exist_ok=True)
    tries = len(os.listdir(path))
    os.mkdir(os.path.join(path, str(tries)))
    if not tries:
        raise MemoryError if name == "b" else RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate")


def test_a_task_that_ran_out_of_memory_is_tried_again_with_fewer_beside_it(tmp_path):
    told = []
    tasks = {name: (str(tmp_path), name) for name in "ab"}
    in_processes(needs_quiet, tasks, workers=2, xla_flags="", told=lambda *news: told.append(news))
    assert sorted(told) in ([("a", 1, 2), ("b", 2, 2)], [("a", 2, 2), ("b", 1, 2)])
    assert [sorted(os.listdir(tmp_path / name)) for name in "ab"] == [["0", "1"]] * 2


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


INTERRUPTED = """
import os, sys, time
from pathlib import Path
from papers.cells import in_processes

def work(task):
    (Path(sys.argv[1]) / f"begun-{task}").touch()
    time.sleep(20)

if __name__ == "__main__":
    try:
        in_processes(work, {str(n): n for n in range(9)}, workers=2, xla_flags="", told=lambda *news: None)
    finally:
        os._exit(1)  # as the command line does
"""


@pytest.mark.parametrize("send", [os.killpg, os.kill], ids=["all", "first"])  # as a terminal does, and as `kill` does
def test_an_interruption_waits_for_nothing_and_leaves_nothing(tmp_path, send):
    (tmp_path / "script.py").write_text(INTERRUPTED)
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path)]
    places = [str(Path(papers.__file__).parents[1]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    found = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, places))}  # `papers`, which is not installed
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, env=found)
    try:
        until(lambda: len(list(tmp_path.glob("begun-*"))) == 2, seconds=60)
        send(process.pid, signal.SIGINT)
        said = process.communicate(timeout=15)[1].decode()  # which ends with the last process
        assert process.returncode == 1
        assert "leaked" not in said
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert len(list(tmp_path.glob("begun-*"))) == 2


def until(holds, seconds):
    """Wait, with a bound."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.1)
