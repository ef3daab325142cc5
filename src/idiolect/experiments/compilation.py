# SPDX-License-Identifier: Apache-2.0
"""JAX's persistent compilation cache, in the user's cache folder: a program is compiled once, not once a run."""

from __future__ import annotations

import os
from pathlib import Path

import jax

VARIABLE = "IDIOLECT_CACHE"  # a folder, or "off"


def enable_cache() -> Path | None:
    """Switch the cache on; returns its folder, or None when it is off or cannot be written."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted == "off":
        return None
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(wanted) if wanted else Path(base) / "idiolect" / "compiled"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None  # a read-only home costs compile time, nothing else
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return folder
