# SPDX-License-Identifier: Apache-2.0
"""Files that are whole, locks that die with their process, seals and manifests that notice every change."""

from __future__ import annotations

import errno
import os

import pytest

from idiolect.record import files, manifest, memory, sealed, standing
from idiolect.record.errors import DamagedError, RequestError
from idiolect.record.lock import LOCK, locked


def test_a_file_is_there_whole_or_not_at_all(tmp_path):
    path = tmp_path / "inner" / "file"
    files.write_whole(path, b"one")

    def half():
        with files.whole(path) as unfinished:
            unfinished.write_bytes(b"tw")
            assert files.is_leftover(unfinished.name)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match="No space") as refused:
        half()
    assert refused.value.filename == str(path)  # not that of the unfinished file
    assert path.read_bytes() == b"one"
    assert os.listdir(path.parent) == ["file"]


def test_what_killed_processes_left_is_removed_and_what_living_ones_write_is_not(tmp_path):
    for number in (os.getppid(), 2**30):  # a living one, and one that cannot be
        (tmp_path / f".x.{number}-1{files.UNFINISHED}").write_bytes(b"")
    files.remove_leftovers(tmp_path, others=False)
    assert os.listdir(tmp_path) == [f".x.{os.getppid()}-1{files.UNFINISHED}"]
    files.remove_leftovers(tmp_path)
    assert not os.listdir(tmp_path)


def test_one_process_at_a_time_in_a_folder(tmp_path):
    with locked(tmp_path), pytest.raises(RequestError, match="Another process"), locked(tmp_path):
        pass
    (tmp_path / LOCK).write_bytes(b"")  # left by a killed process, which holds nothing
    with locked(tmp_path):
        pass
    assert not os.listdir(tmp_path)


def test_what_is_said_about_going_on_is_true_before_during_and_after(tmp_path):
    standing.forget()
    assert standing.way_on().startswith("Nothing was written")
    with standing.at(tmp_path, "do this"), standing.at(tmp_path / "inner", "do that"):
        standing.finished(tmp_path / "inner", "look there")
        assert "do this" in standing.way_on()  # the outer one counts
        standing.finished(tmp_path, "look here")
    assert standing.way_on().endswith("is complete. look here.")
    standing.forget()


@pytest.mark.parametrize("place", range(0, 60, 7))
def test_a_sealed_file_notices_every_flipped_bit(place, tmp_path):
    values, plain = tmp_path / "values.json", tmp_path / "plain.bin"
    values.write_text(sealed.seal_json({"a": 1, "b": [0.1, None]}))
    assert sealed.open_json(values, "") == {"a": 1, "b": [0.1, None]}
    plain.write_bytes(b"some bytes")
    sealed.seal_file(plain)
    sealed.check_file(plain)
    text = sealed.seal_text("rounds = 4\n")
    assert not sealed.is_changed(text)
    assert sealed.is_changed(text.replace("4", "5"))
    assert not sealed.is_changed("rounds = 4\n")  # never sealed
    content = bytearray(plain.read_bytes())
    content[place] ^= 1
    plain.write_bytes(content)
    with pytest.raises(DamagedError):
        sealed.check_file(plain)
    letters = bytearray(values.read_bytes())
    letters[place] ^= 1
    values.write_bytes(letters)
    if letters[place] not in b" \n\x0b!":  # between tokens a blank is a blank
        with pytest.raises(DamagedError):
            sealed.open_json(values, "")


@pytest.fixture
def folder(tmp_path):
    """A finished folder with a page and a finished folder inside."""
    for at in (tmp_path / "split-01", tmp_path):
        at.mkdir(exist_ok=True)
        (at / "summary.json").write_text("{}")
        (at / "models").mkdir()
        (at / "models" / "a.bin").write_bytes(b"abc")
        manifest.write_manifest(at)
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "gain.png").write_bytes(b"png")
    (tmp_path / "report.html").write_text("page")
    manifest.write_page_manifest(tmp_path)
    assert manifest.find_problems(tmp_path) == []
    return tmp_path


@pytest.mark.parametrize(
    "name", ["summary.json", "models/a.bin", "report.html", "figures/gain.png", "split-01/models/a.bin"]
)
def test_damaged_missing_and_extra_files_are_named(name, folder):
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:-1] + b"?")
    assert manifest.find_problems(folder) == [(name, "damaged")]
    (folder / name).unlink()
    assert manifest.find_problems(folder) == [(name, "missing")]
    (folder / name).write_bytes(content)
    (folder / f"{name}-more").write_bytes(b"")
    if name != "report.html":
        assert manifest.find_problems(folder) == [(f"{name}-more", "extra")]


@pytest.mark.parametrize("name", ["manifest.json", "done"])
def test_the_manifest_itself_is_vouched_for(name, folder):
    (folder / name).write_bytes((folder / name).read_bytes() + b" ")
    for check in (manifest.find_problems, manifest.check_report_files):
        with pytest.raises(DamagedError):
            check(folder)


def test_a_folder_of_an_earlier_version_cannot_be_checked(folder):
    (folder / "manifest.json").unlink()
    with pytest.raises(DamagedError, match="missing"):
        manifest.check_files(folder, ["summary.json"])
    (folder / "done").write_bytes(b"")
    manifest.check_files(folder, ["summary.json"])
    with pytest.raises(RequestError, match="earlier version"):
        manifest.find_problems(folder)
    with pytest.raises(DamagedError, match="do not fit together"), manifest.blame_folder(folder):
        raise KeyError("score")


def test_too_little_address_space_is_refused(monkeypatch):
    memory.check_address_space()
    monkeypatch.setattr(memory, "_of_process", lambda: 10**9)
    with pytest.raises(RequestError, match="ulimit -v"):
        memory.check_address_space()


def test_memory_is_held_against_what_is_free():
    assert (memory.free_bytes() or 1) > 0
    memory.check_bytes(10, "x = 1", "use less", free=100)
    with pytest.raises(RequestError, match="x = 1 needs about 2 GB of memory, and 100 bytes are free; use less"):
        memory.check_bytes(2e9, "x = 1", "use less", free=100)
