# SPDX-License-Identifier: Apache-2.0
"""A virtual environment per library, outside of the repository, made once and used again."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.apart import say

INSTALL_SECONDS = 900.0
MADE = "made.json"  # in an environment that is complete
TORCH = ("torch==2.13.0", "numpy>=2")  # before a library that needs it, so that it chooses no other build


@dataclasses.dataclass(frozen=True)
class Library:
    """What to install, step by step, and ways to run it. Later choices are tried where the registry lacks earlier."""

    name: str
    variants: tuple[str, ...]
    choices: tuple[tuple[tuple[str, ...], ...], ...]


CORES = os.cpu_count() or 1
OURS = Library("idiolect", tuple(dict.fromkeys(("1 device", f"{CORES} devices"))), ())
THREADS = tuple(dict.fromkeys(("1 thread", f"{CORES} threads")))
PEERS = (
    Library("torch", THREADS, ((TORCH,),)),
    Library(
        "pfl",
        (*THREADS, f"{CORES} processes"),
        ((TORCH, ("pfl==0.6.*",)),),
    ),
    Library(
        "fedjax",
        ("jit", "pmap"),
        # the last JAX with the `jax.tree_map` that it calls, and what was current beside that
        ((("fedjax==0.0.17", "jax[cpu]==0.5.3", "dm-haiku==0.0.14", "optax<0.2.5", "chex<0.1.90"),),),
    ),
    Library(
        "flower",
        ("1 core per client",),
        tuple((TORCH, (f"flwr[simulation]=={version}.*",)) for version in ("1.42", "1.41")),
    ),
)


@dataclasses.dataclass(frozen=True)
class Environment:
    """Where a library's Python is, or why there is none."""

    library: Library
    python: str | None
    notes: tuple[str, ...] = ()
    megabytes: float | None = None


def here(library: Library) -> Environment:
    """This interpreter, if it has the library."""
    if importlib.util.find_spec(library.name) is None:
        return Environment(library, None, ("this interpreter does not find it",))
    return Environment(library, sys.executable)


def prepare(library: Library, cache: Path) -> Environment:
    """The environment as an earlier run has left it, or a new one."""
    folder = cache / library.name
    wanted = [[list(step) for step in choice] for choice in library.choices]
    made = folder / MADE
    if made.is_file():
        kept = json.loads(made.read_text(encoding="utf-8"))
        if kept["wanted"] == wanted:
            return Environment(library, str(_python(folder)), tuple(kept["notes"]), kept["megabytes"])
    notes: list[str] = []
    for choice in library.choices:
        say(f"{library.name}: an environment with {', '.join(word for step in choice for word in step)}")
        failure = _make(folder, choice)
        if failure is None:
            size = sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_symlink()) / 2**20
            made.write_text(json.dumps({"wanted": wanted, "notes": notes, "megabytes": size}), encoding="utf-8")
            return Environment(library, str(_python(folder)), tuple(notes), size)
        notes.append(f"{choice[-1][0]} could not be installed: {failure}")
    return Environment(library, None, tuple(notes))


def _python(folder: Path) -> Path:
    return folder / ("Scripts" if os.name == "nt" else "bin") / "python"


def _make(folder: Path, choice: tuple[tuple[str, ...], ...]) -> str | None:
    """None, or the first thing that pip complained of."""
    shutil.rmtree(folder, ignore_errors=True)
    pip = [str(_python(folder)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    steps = [[sys.executable, "-m", "venv", str(folder)], *([*pip, *step] for step in choice)]
    for step in steps:
        try:
            done = subprocess.run(step, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return f"stopped after {INSTALL_SECONDS:g} s"
        if done.returncode:
            return _complaint(done.stderr)
    return None


def _complaint(text: str) -> str:
    lines = [line.removeprefix("ERROR: ") for line in text.splitlines() if line.startswith("ERROR: ")]
    lines = [line for line in lines if not line.startswith("Ignored")] or text.splitlines()[-1:] or ["no reason given"]
    return lines[-1][:200]
