# SPDX-License-Identifier: Apache-2.0
"""JAX's persistent compilation cache, in the user's cache folder: a program is compiled once, not once a run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from idiolect.experiments.program_store import ProgramStore, UnsafeFolderError

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
        used = _use_store(folder.absolute())
    except UnsafeFolderError as error:
        if say is not None:
            say(f"Compiled programs are neither kept nor loaded: {error}. Set {VARIABLE} to a folder of your own.")
        return None
    except OSError:
        return None  # a read-only home costs compile time, nothing else
    if not used:
        return None
    jax.config.update("jax_compilation_cache_dir", str(folder.absolute()))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    jax.config.update("jax_persistent_cache_enable_xla_caches", "none")  # XLA would read files there unchecked
    return folder


def _use_store(folder: Path) -> bool:
    """Whether JAX will use a store of ours for this folder.

    JAX's own store loads any file, keeps a damaged one for ever, and needs another package to stay small. There is no
    public way to give it one of ours; a release without this function has no cache.
    """
    try:
        from jax._src import compilation_cache
    except ImportError:
        return False
    usual: Any = getattr(compilation_cache, "get_file_cache", None)
    if usual is None:
        return False
    if str(folder) not in _stores:
        _stores[str(folder)] = ProgramStore(folder)
    if not getattr(usual, "asks_ours", False):

        def get_file_cache(path: str) -> Any:
            return (_stores[path], path) if path in _stores else usual(path)

        get_file_cache.asks_ours = True  # type: ignore[attr-defined]
        compilation_cache.get_file_cache = get_file_cache
    return True
