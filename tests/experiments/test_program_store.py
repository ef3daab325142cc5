# SPDX-License-Identifier: Apache-2.0
"""Compiled programs on disk: private, bounded, and never loaded where they are damaged or another user's."""

from __future__ import annotations

import os
import stat
import subprocess
import sys

import jax
import pytest

from idiolect.experiments.compilation import ProgramStore, UnsafeFolderError, enable_cache

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


@pytest.fixture
def store(tmp_path):
    found = ProgramStore(tmp_path / "programs")
    found.put("jit_step-1", b"machine code")
    return found


def only_file(tmp_path):
    (found,) = (tmp_path / "programs").iterdir()
    return found


def mode(path):
    return stat.S_IMODE(path.lstat().st_mode)


def test_it_is_private_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        ProgramStore(tmp_path / "programs").put("key", b"code")
    finally:
        os.umask(before)
    assert (mode(tmp_path / "programs"), mode(only_file(tmp_path))) == (0o700, 0o600)


def test_what_is_put_is_found_again(tmp_path, store):
    assert ProgramStore(tmp_path / "programs").get("jit_step-1") == b"machine code"
    assert store.get("jit_step-2") is None


@pytest.mark.parametrize("damage", [lambda old: old[:-1], lambda old: b"", lambda old: old[:40] + b"?" + old[41:]])
def test_a_damaged_program_is_replaced(tmp_path, store, damage):
    file = only_file(tmp_path)
    file.write_bytes(damage(file.read_bytes()))
    assert store.get("jit_step-1") is None
    assert not file.exists()
    store.put("jit_step-1", b"compiled again")
    assert store.get("jit_step-1") == b"compiled again"


def test_a_program_under_another_name_is_not_loaded(tmp_path, store):
    store.put("jit_other-1", b"another program")
    mine, other = sorted((tmp_path / "programs").iterdir(), key=lambda path: b"another" in path.read_bytes())
    mine.write_bytes(other.read_bytes())
    assert store.get("jit_step-1") is None


def test_a_program_that_others_can_write_is_not_loaded(tmp_path, store):
    only_file(tmp_path).chmod(0o666)
    assert store.get("jit_step-1") is None


@as_root
def test_a_program_of_another_owner_is_not_loaded(tmp_path, store):
    os.chown(only_file(tmp_path), 12345, 12345)
    assert store.get("jit_step-1") is None


def test_a_link_is_not_followed_but_replaced(tmp_path, store):
    file = only_file(tmp_path)
    elsewhere = file.rename(tmp_path / "elsewhere")
    file.symlink_to(elsewhere)
    assert store.get("jit_step-1") is None
    store.put("jit_step-1", b"compiled again")
    assert not file.is_symlink()
    assert b"machine code" in elsewhere.read_bytes()


def test_a_pipe_is_not_waited_for(tmp_path, store):
    file = only_file(tmp_path)
    file.unlink()
    os.mkfifo(file)
    assert store.get("jit_step-1") is None


def test_a_folder_that_others_could_write_to_is_emptied_and_closed(tmp_path, store):
    (tmp_path / "programs").chmod(0o777)
    assert ProgramStore(tmp_path / "programs").get("jit_step-1") is None
    assert mode(tmp_path / "programs") == 0o700


def test_a_folder_that_others_could_read_is_closed(tmp_path, store):
    (tmp_path / "programs").chmod(0o755)
    assert ProgramStore(tmp_path / "programs").get("jit_step-1") == b"machine code"
    assert mode(tmp_path / "programs") == 0o700


def test_a_linked_folder_is_not_used(tmp_path, store):
    (tmp_path / "link").symlink_to(tmp_path / "programs")
    with pytest.raises(UnsafeFolderError, match="is a link"):
        ProgramStore(tmp_path / "link")


@as_root
def test_a_folder_of_another_owner_is_not_used(tmp_path, store, monkeypatch):
    os.chown(tmp_path / "programs", 12345, 12345)
    with pytest.raises(UnsafeFolderError, match="another user"):
        ProgramStore(tmp_path / "programs")
    monkeypatch.setenv("IDIOLECT_CACHE", str(tmp_path / "programs"))
    before, said = jax.config.jax_compilation_cache_dir, []
    assert enable_cache(said.append) is None
    assert jax.config.jax_compilation_cache_dir == before
    assert "belongs to another user" in said[0]


def test_it_stays_small_and_forgets_what_was_not_used_for_longest(tmp_path):
    store = ProgramStore(tmp_path / "programs", limit=1000)
    store.put("key-0", bytes(100))
    first = only_file(tmp_path)
    for number in range(1, 30):
        store.put(f"key-{number}", bytes(100))
        assert store.get("key-0") is not None
        os.utime(first, ns=(2**62, 2**62))  # clocks of files are coarse
        assert sum(path.stat().st_size for path in (tmp_path / "programs").iterdir()) <= 1000
    assert store.get("key-29") is not None
    assert store.get("key-1") is None
    store.put("large", bytes(2000))
    assert store.get("large") is None


TRAIN = """
import jax, sys
from jax import monitoring
from idiolect.experiments.compilation import enable_cache
hits = []
monitoring.register_event_listener(lambda event, **_: hits.append(event) if event.endswith("/cache_hits") else None)
assert enable_cache() is not None
print(float(jax.jit(lambda x: x * 3 + 1)(2.0)), len(hits))
"""


def test_jax_loads_from_it_and_compiles_again_what_is_damaged(tmp_path, environment):
    folder = tmp_path / "programs"

    def train():
        command = [sys.executable, "-W", "error", "-c", TRAIN]
        done = subprocess.run(
            command, env=environment | {"IDIOLECT_CACHE": str(folder)}, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    assert train() == ["7.0", "0"]
    loaded = int(train()[1])
    assert loaded > 0
    for path in folder.iterdir():
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    assert train() == ["7.0", "0"]
    assert train() == ["7.0", str(loaded)]
