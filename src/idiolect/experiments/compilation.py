# SPDX-License-Identifier: Apache-2.0
"""JAX's compilation cache on disk, for this user alone: machine code that is not ours is not loaded."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax

VARIABLE = "IDIOLECT_CACHE"  # a folder, or "off"
_stores: dict[str, ProgramStore] = {}  # by folder, as JAX asks for them


def enable_cache(say: Callable[[str], None] | None = None) -> Path | None:
    """Switch the cache on; returns its folder, or None when it is off or cannot be used, which `say` hears."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted == "off":
        return None
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(wanted) if wanted else Path(base) / "idiolect" / "compiled"
    try:
        _use_store(folder.absolute())
    except UnsafeFolderError as error:
        if say is not None:
            say(f"Compiled programs are neither kept nor loaded: {error}. Set {VARIABLE} to a folder of your own.")
        return None
    except (OSError, ImportError):
        return None  # a read-only home, or another JAX, costs compile time, nothing else
    jax.config.update("jax_compilation_cache_dir", str(folder.absolute()))
    # JAX keeps only programs that took a second: a comparison compiles many that took less
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    jax.config.update("jax_persistent_cache_enable_xla_caches", "none")  # XLA would read files there unchecked
    return folder


def remembered() -> ProgramStore | None:
    """Where what was measured of programs is kept: beside them; None where none are."""
    return _stores.get(getattr(jax.config, "jax_compilation_cache_dir", None) or "")


def _use_store(folder: Path) -> None:
    """Let JAX use a store of ours for this folder.

    JAX's own store loads any file, keeps a damaged one for ever, and needs another package to stay small. There is no
    public way to give it one of ours; a release without this function has no cache: ImportError.
    """
    from jax._src import compilation_cache
    from jax._src.compilation_cache import get_file_cache as usual

    if str(folder) not in _stores:
        _stores[str(folder)] = ProgramStore(folder)
    if not getattr(usual, "asks_ours", False):

        def get_file_cache(path: str) -> Any:
            return (_stores[path], path) if path in _stores else usual(path)

        get_file_cache.asks_ours = True  # type: ignore[attr-defined]
        compilation_cache.get_file_cache = get_file_cache


LIMIT = 1 << 30  # bytes of all programs together; beyond, those that were not used for longest are deleted
_KEPT = 0.9  # of the limit after a deletion, so that not every new program brings one
_SUFFIX = ".program"
_DIGEST = hashlib.sha256().digest_size
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


class UnsafeFolderError(Exception):
    """A folder that another user could have put programs into."""


class ProgramStore:
    """One file per program: a checksum over its key and its bytes, then the bytes. JAX calls `get` and `put`.

    All files are reached through the open folder, so that no other process can put another one in its place meanwhile.
    """

    def __init__(self, path: Path, limit: int = LIMIT):
        self._path, self._limit = path, limit  # JAX reads `_path`
        self._folder = _open_private(path)
        self._lock = threading.Lock()  # programs are compiled in several threads
        self._bytes: int | None = None  # of all files; counted at the first `put`

    def get(self, key: str) -> bytes | None:
        """The program, or None where there is none; one that is damaged or not ours is deleted."""
        name = _file_name(key)
        with contextlib.suppress(OSError):
            # not waiting: another user may have put a pipe there
            opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self._folder)
            with open(opened, "rb") as file:
                facts = os.fstat(opened)
                ours = facts.st_uid == os.geteuid() and not facts.st_mode & _OTHERS_MAY_WRITE
                if stat.S_ISREG(facts.st_mode) and ours:
                    os.utime(opened)  # used now: the last to be deleted
                    content = file.read()
                    if content[:_DIGEST] == _digest(key, content[_DIGEST:]):
                        return content[_DIGEST:]
            os.unlink(name, dir_fd=self._folder)
        return None

    def put(self, key: str, value: bytes) -> None:
        """Keep the program in place of any other of its key; a full disk costs compile time, nothing else."""
        content = _digest(key, value) + value
        if len(content) > self._limit:
            return
        with contextlib.suppress(OSError), self._lock:
            self._write(_file_name(key), content)
            # counted once and then kept: listing the folder after every program would take longer than writing it
            before = self._bytes
            self._bytes = sum(size for _, size, _ in self._files()) if before is None else before + len(content)
            if self._bytes > self._limit:
                self._shrink()

    def _write(self, name: str, content: bytes) -> None:
        unfinished = f".{name}.{os.getpid()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        try:
            with open(os.open(unfinished, flags, 0o600, dir_fd=self._folder), "wb") as file:
                file.write(content)
            # whole or not at all: another process may read while this one writes
            os.replace(unfinished, name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(unfinished, dir_fd=self._folder)

    def _files(self) -> Iterator[tuple[int, int, str]]:
        """(last use, bytes, name) of every file, also of those that a killed process left unfinished."""
        with os.scandir(self._folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # another process deletes too
                    facts = entry.stat(follow_symlinks=False)
                    if not stat.S_ISDIR(facts.st_mode):
                        yield facts.st_mtime_ns, facts.st_size, entry.name

    def _shrink(self) -> None:
        files = sorted(self._files())
        left = sum(size for _, size, _ in files)
        for _, size, name in files:
            if left <= _KEPT * self._limit:
                break
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._folder)
            left -= size
        self._bytes = left


def _open_private(path: Path) -> int:
    """The folder, made or opened for this user alone; UnsafeFolderError where it is a link or another user's.

    What lies in a folder that others could write to is deleted: its programs may be theirs.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        raise UnsafeFolderError(f"{path} is a link or a file, not a folder") from None
    facts = os.fstat(folder)
    if facts.st_uid != os.geteuid():
        os.close(folder)
        raise UnsafeFolderError(f"{path} belongs to another user")
    os.fchmod(folder, 0o700)
    for name in os.listdir(folder) if facts.st_mode & _OTHERS_MAY_WRITE else ():
        with contextlib.suppress(OSError):  # a folder: nothing is read from it
            os.unlink(name, dir_fd=folder)
    return folder


def _file_name(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest() + _SUFFIX


def _digest(key: str, value: bytes) -> bytes:
    """Over the key too: a program under another one's name is as wrong as a damaged one."""
    return hashlib.sha256(len(key).to_bytes(8, "little") + key.encode() + value).digest()
