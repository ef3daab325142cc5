# SPDX-License-Identifier: Apache-2.0
"""The manifest of a finished folder: a SHA-256 for every file, itself vouched for by the file `done`.

The page and its figures are rebuilt by `report` and have a manifest of their own beside the figures. Folders of earlier
versions have none, and an empty `done`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from idiolect.record.errors import DamagedError, RequestError
from idiolect.record.files import is_leftover, write_whole
from idiolect.record.lock import LOCK
from idiolect.record.sealed import digest_of
from idiolect.record.words import first_line

MANIFEST, DONE = "manifest.json", "done"
PAGE_MANIFEST = f"figures/{MANIFEST}"
PAGE = ("report.html", "figures")
WORKING = ("checkpoint", "cells")  # of no interest once a run is finished, or shared with other runs
COPY_AGAIN = "copy the whole folder again, or rerun"
READ = (".json", ".parquet", ".toml")  # what a report may read: a user's note that lies in the folder is left alone
NOT_READ = ("predictions.parquet", "split.parquet")  # large, and no part of a report
KINDS = {
    "damaged": "damaged: it is not the file that the run wrote",
    "missing": "missing",
    "extra": "no file of this run",
}
_BEGUN = ("spec.toml", "request.json", MANIFEST)  # one of them is there from the start of a run on


class Problem(NamedTuple):
    """A file that is not as the manifest has it."""

    file: str  # relative to the folder
    kind: str  # of KINDS


def is_run_folder(folder: Path) -> bool:
    """Whether a command began to write a run here, finished or not."""
    return any((folder / name).is_file() for name in (*_BEGUN, "summary.json"))


def write_manifest(folder: Path) -> None:
    """Hash every file, then mark the folder as complete: from here on a change is noticed."""
    content = _text({name: digest_of(folder / name) for name in _files(folder)})
    write_whole(folder / MANIFEST, content)
    write_whole(folder / DONE, f"{hashlib.sha256(content).hexdigest()}\n".encode())


def write_page_manifest(folder: Path) -> None:
    """The same for the page and its figures, after each report."""
    write_whole(folder / PAGE_MANIFEST, _text({name: digest_of(folder / name) for name in _page_files(folder)}))


def read_manifest(folder: Path) -> dict[str, str] | None:
    """File -> SHA-256 of a finished folder; None where an earlier version made it; DamagedError where it is damaged."""
    done, path = folder / DONE, folder / MANIFEST
    try:
        mark = done.read_bytes()
        content = path.read_bytes() if path.is_file() else None
    except OSError as error:
        raise DamagedError(f"{error.filename} cannot be read ({error.strerror}); {COPY_AGAIN}.") from None
    if content is None:
        if mark:
            raise DamagedError(f"{path} is missing; {COPY_AGAIN}.")
        return None
    if mark != f"{hashlib.sha256(content).hexdigest()}\n".encode():
        raise DamagedError(f"{path} and {done} do not belong together: one of them is damaged; {COPY_AGAIN}.")
    return dict(json.loads(content)["files"])


def check_files(folder: Path, names: Iterable[str]) -> None:
    """DamagedError for the first of these files that is not as the manifest of a finished folder has it.

    A name that is neither in the manifest nor in the folder is no part of the run.
    """
    known = read_manifest(folder) if (folder / DONE).is_file() else None
    for name in names if known is not None else ():
        kind = _kind(folder, name, known or {})
        if kind is not None:
            raise DamagedError(f"{folder / name} is {KINDS[kind]}; {COPY_AGAIN}.")


def check_report_files(folder: Path) -> None:
    """`check_files` of all that a report may read."""
    if (folder / MANIFEST).is_file() and not (folder / DONE).is_file():
        raise DamagedError(
            f"{folder / DONE} is missing: the run was stopped at its very end, or the file was lost. "
            f"`idiolect run {folder} --resume` finishes it (a dial: its own command with --resume), or copy the whole "
            "folder again."
        )
    if (folder / DONE).is_file():
        known = read_manifest(folder) or {}
        here = (name for name in _files(folder) if name.endswith(READ))
        check_files(folder, sorted({name for name in (*known, *here) if "/" not in name and name not in NOT_READ}))


def find_problems(folder: Path) -> list[Problem]:
    """Every file that is damaged, missing or extra, in inner run folders and on the page too."""
    known = read_manifest(folder)
    if known is None:
        raise RequestError(
            f"The folder {folder} was written by an earlier version and has no {MANIFEST}: its files cannot be "
            "checked; rerun to have one."
        )
    found = _differing(folder, _files(folder), known)
    for inner in sorted({Path(name).parent for name in known if name != MANIFEST and Path(name).name == MANIFEST}):
        if not any(Path(one.file).parent == inner for one in found):
            found += [Problem(f"{inner.as_posix()}/{one.file}", one.kind) for one in find_problems(folder / inner)]
    return sorted({*found, *_page_problems(folder)})


def _page_problems(folder: Path) -> list[Problem]:
    path = folder / PAGE_MANIFEST
    if not path.is_file():
        return [Problem(PAGE_MANIFEST, "missing")] if (folder / PAGE[0]).exists() else []
    try:
        content = path.read_bytes()
        known = {str(name): str(digest) for name, digest in dict(json.loads(content)["files"]).items()}
        if content != _text(known):
            raise ValueError
    except (OSError, ValueError, KeyError, TypeError):
        return [Problem(PAGE_MANIFEST, "damaged")]
    return _differing(folder, _page_files(folder), known)


def _differing(folder: Path, here: list[str], known: dict[str, str]) -> list[Problem]:
    """The files, of those here and those known, that are not as they should be."""
    return [Problem(name, kind) for name in {*known, *here} if (kind := _kind(folder, name, known))]


@contextlib.contextmanager
def blame_folder(folder: Path) -> Iterator[None]:
    """What fails inside while reading a folder that no manifest vouches for is the folder's fault, in one sentence."""
    try:
        yield
    except (RequestError, OSError, MemoryError):
        raise
    except Exception as error:
        if (folder / MANIFEST).is_file() and (folder / DONE).is_file():
            raise
        raise DamagedError(
            f"The files in {folder} do not fit together ({type(error).__name__}: {first_line(error)}): one is damaged "
            f"or was edited; {COPY_AGAIN}."
        ) from error


def _kind(folder: Path, name: str, known: dict[str, str]) -> str | None:
    """What is wrong with a file, or None."""
    path = folder / name
    if not path.is_file():
        return "missing" if name in known else None
    if name not in known:
        return "extra"
    try:
        return None if digest_of(path) == known[name] else "damaged"
    except OSError:
        return "damaged"


def _text(files: dict[str, str]) -> bytes:
    content: dict[str, Any] = {"schema": 1, "algorithm": "sha256", "files": dict(sorted(files.items()))}
    return (json.dumps(content, indent=1) + "\n").encode()


def _files(folder: Path) -> list[str]:
    """What the manifest of a folder covers; of a finished run folder inside it, that one's manifest and mark."""
    found: list[str] = []
    for at, folders, names in os.walk(folder):
        here, covered = Path(at).relative_to(folder), set(names)
        if here == Path():
            folders[:] = [name for name in folders if name not in (*PAGE, *WORKING)]
            covered -= {MANIFEST, DONE, LOCK, *PAGE}
        elif MANIFEST in names:
            folders.clear()
            covered &= {MANIFEST, DONE}
        found += [(here / name).as_posix() for name in covered if not is_leftover(name)]
    return sorted(found)


def _page_files(folder: Path) -> list[str]:
    figures = folder / PAGE[1]
    names = [path.relative_to(folder).as_posix() for path in figures.rglob("*") if path.is_file()]
    page = [PAGE[0]] if (folder / PAGE[0]).is_file() else []
    return sorted([*page, *(name for name in names if name != PAGE_MANIFEST and not is_leftover(Path(name).name))])
