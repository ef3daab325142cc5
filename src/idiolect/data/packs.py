# SPDX-License-Identifier: Apache-2.0
"""A federation on disk: read, split and encoded once, then opened without reading its rows."""

from __future__ import annotations

import dataclasses
import glob
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from idiolect.core.checks import RequestError
from idiolect.core.data import Known, Rows
from idiolect.data.federation import Federation, Places
from idiolect.data.preparation import Preparation, Sent
from idiolect.data.preprocessing import Preprocessing
from idiolect.data.split import PARTS
from idiolect.data.store import open_rows, save_rows
from idiolect.data.task import Task
from idiolect.record.codec import from_json, to_json
from idiolect.record.errors import DamagedError
from idiolect.record.files import UNFINISHED, is_written, make_writable
from idiolect.record.manifest import DONE, check_files, read_manifest, write_manifest
from idiolect.record.words import first_line

SCHEMA = 3
HELD_OUT = "held_out"  # the folder of the clients that never train, inside that of those who do
FACTS, ARRAYS, RECIPE = "pack.json", "arrays.npz", "preprocessing.json"
OF_ROWS = ("inputs.npy", "targets.npy", "weights.npy")  # read when a pack is opened only if they may have changed
Arrays = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Column:
    """What was sent about a column for its preparation, but for the bytes of each client."""

    column: str
    content: str
    download_bytes: int


@dataclasses.dataclass(frozen=True)
class Facts:
    """What is known of a packed federation without reading its rows."""

    schema: int
    names: tuple[str, ...]  # of the clients
    task: Task
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    validation_drawn: bool
    rows: dict[str, Known]  # by split
    written: dict[str, tuple[int, ...]]  # file of rows -> bytes, and when they were written, in nanoseconds
    preparation: str | None  # its way
    columns: tuple[Column, ...]


def save_pack(folder: Path, federation: Federation) -> None:
    """Write the folder whole or not at all; one that is there is never replaced."""
    if folder.exists():
        raise RequestError(f"{folder} exists, and a pack needs a folder of its own; choose another --out.")
    # a folder becomes visible by one rename: a pack that is there is complete
    for left in folder.parent.glob(f".{glob.escape(folder.name)}.*{UNFINISHED}"):  # of processes that were killed
        if not is_written(left.name):
            shutil.rmtree(left, ignore_errors=True)
    unfinished = folder.with_name(f".{folder.name}.{os.getpid()}{UNFINISHED}")
    try:
        make_writable(unfinished, "pack", "--out")
        _write(unfinished, federation)
        write_manifest(unfinished)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def open_pack(folder: Path) -> Federation:
    """The federation of a folder that `save_pack` wrote; its rows stay on disk.

    DamagedError where a file is not as it was written. Rows are read only where their file is of another size or time,
    as in a copy; what changed under the same time finds `idiolect verify`.
    """
    if not (folder / FACTS).is_file() or not (folder / DONE).is_file():
        raise RequestError(f"{folder} is no pack; make one with `idiolect pack`, and name its folder.")
    check_files(folder, [name for name in read_manifest(folder) or {} if Path(name).name not in OF_ROWS])
    try:
        return _read(folder, _checked(folder))
    except (RequestError, OSError, MemoryError):
        raise
    except Exception as error:  # a manifest proves that nothing changed, not that this program wrote it
        raise DamagedError(
            f"The files in {folder} do not fit together ({type(error).__name__}: {first_line(error)}); pack the rows "
            "again."
        ) from error


def _write(folder: Path, federation: Federation) -> None:
    for part in PARTS:
        save_rows(folder / part, getattr(federation, part))
    preparation = federation.preparation
    facts = Facts(
        SCHEMA,
        federation.names,
        federation.task,
        federation.notes,
        federation.warnings,
        federation.validation_drawn,
        {part: getattr(federation, part).to_known() for part in PARTS},
        {f"{part}/{name}": _stamp(folder / part / name) for part in PARTS for name in OF_ROWS},
        None if preparation is None else preparation.way,
        ()
        if preparation is None
        else tuple(Column(one.column, one.content, one.download_bytes) for one in preparation.sent),
    )
    (folder / FACTS).write_text(json.dumps(to_json(facts), indent=1), encoding="utf-8")
    np.savez(folder / ARRAYS, **_arrays(federation))  # type: ignore[arg-type]
    if federation.preprocessing is not None:
        (folder / RECIPE).write_text(federation.preprocessing.to_json(), encoding="utf-8")
    if federation.held_out is not None:
        _write(folder / HELD_OUT, federation.held_out)


def _arrays(federation: Federation) -> dict[str, np.ndarray]:
    """Everything with an entry per row or client beside the rows."""
    found = {} if federation.groups is None else dict(zip((f"groups_{part}" for part in PARTS), federation.groups))
    if federation.places is not None:
        found |= {f"places_{name}": np.asarray(value) for name, value in federation.places._asdict().items()}
    preparation = federation.preparation
    if preparation is not None:
        found["prepared_rows"] = preparation.rows
        found |= {f"prepared_bytes_{number}": one.upload_bytes for number, one in enumerate(preparation.sent)}
    return found


def _stamp(path: Path) -> tuple[int, ...]:
    """By which a change of a file is noticed without reading it; () where there is none."""
    if not path.is_file():
        return ()
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def _checked(folder: Path) -> dict[Path, Facts]:
    """What is known of both populations; files of rows that may have changed are held against the manifest."""
    found = {at: _facts(at, folder) for at in (folder, folder / HELD_OUT) if (at / FACTS).is_file()}
    stamps = {at / name: stamp for at, facts in found.items() for name, stamp in facts.written.items()}
    check_files(folder, [str(path.relative_to(folder)) for path, stamp in stamps.items() if _stamp(path) != stamp])
    return found


def _facts(at: Path, folder: Path) -> Facts:
    content = json.loads((at / FACTS).read_text(encoding="utf-8"))
    if content.get("schema") != SCHEMA:
        raise RequestError(
            f"{folder} was packed by another version (schema {content.get('schema')}, and this one reads {SCHEMA}); "
            "pack the rows again."
        )
    return from_json(Facts, content, at / FACTS)


def _read(at: Path, known: Mapping[Path, Facts]) -> Federation:
    facts = known[at]
    with np.load(at / ARRAYS) as stored:
        arrays = dict(stored)
    recipe, held_out = at / RECIPE, at / HELD_OUT
    train, validation, test = (_rows(at / part, facts.rows[part]) for part in PARTS)
    first, second, third = (arrays.get(f"groups_{part}") for part in PARTS)
    return Federation(
        train,
        validation,
        test,
        names=facts.names,
        task=facts.task,
        held_out=_read(held_out, known) if held_out in known else None,
        preprocessing=Preprocessing.from_json(recipe.read_text(encoding="utf-8")) if recipe.is_file() else None,
        notes=facts.notes,
        warnings=facts.warnings,
        groups=None if first is None or second is None or third is None else (first, second, third),
        validation_drawn=facts.validation_drawn,
        places=_places(arrays),
        preparation=_preparation(facts, arrays),
    )


def _rows(folder: Path, known: Known) -> Rows:
    rows = open_rows(folder)
    amounts = {len(rows.inputs), len(rows.targets), int(rows.offsets[-1])}
    if len(amounts) > 1 or rows.offsets[0] != 0 or (rows.counts < 0).any():
        raise ValueError(f"{folder.name} holds other numbers of rows than its clients have")
    return dataclasses.replace(rows, known=known)


def _places(arrays: Arrays) -> Places | None:
    if "places_total" not in arrays:
        return None
    train, validation, test, unused, unused_clients, total = (arrays[f"places_{name}"] for name in Places._fields)
    return Places(train, validation, test, unused, unused_clients, int(total))


def _preparation(facts: Facts, arrays: Arrays) -> Preparation | None:
    if facts.preparation is None:
        return None
    sent = (
        Sent(one.column, one.content, arrays[f"prepared_bytes_{number}"], one.download_bytes)
        for number, one in enumerate(facts.columns)
    )
    return Preparation(facts.preparation, arrays["prepared_rows"], tuple(sent))
