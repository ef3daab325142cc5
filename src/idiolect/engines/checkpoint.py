# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: the whole state of a run in one file, replaced atomically, with the one before kept.

The history lies beside them: lines are added, and each checkpoint says how many are its own.
"""

from __future__ import annotations

import dataclasses
import json
import os
import warnings
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from idiolect.core.checks import RequestError
from idiolect.core.data import Array
from idiolect.data.store import RecordFile
from idiolect.record.errors import DamagedError
from idiolect.record.files import whole
from idiolect.record.sealed import check_file, digest_of, seal_file

HISTORY = "history.jsonl"


class Mark(NamedTuple):
    """How far the history belongs to a checkpoint: all up to here, with this checksum."""

    lines: int = 0
    size: int = 0  # bytes
    checksum: int = 0


class Stored(NamedTuple):
    """What a checkpoint holds."""

    leaves: list[np.ndarray]
    facts: dict[str, Any]
    history: list[Any]  # one entry per recorded round
    mark: Mark  # where the next entry is to be written


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Where and how often: every `every` rounds, rounded up to the end of a compiled block."""

    folder: Path
    every: int = 100
    say: Callable[[str], None] | None = dataclasses.field(default=None, compare=False)  # hears of a damaged one

    @property
    def latest(self) -> Path:
        """The newest checkpoint."""
        return self.folder / "latest.npz"

    @property
    def previous(self) -> Path:
        """The one before it."""
        return self.folder / "previous.npz"

    def exists(self) -> bool:
        """Whether there is something to resume from."""
        return self.latest.is_file() or self.previous.is_file()

    def save(
        self,
        leaves: list[Array],
        facts: dict[str, Any],
        records: RecordFile | None = None,
        history: Sequence[object] = (),
        mark: Mark | None = None,
    ) -> Mark:
        """Write all of it beside the old one, then swap: a crash at any moment leaves a whole checkpoint.

        Of `history` only what lies beyond `mark`, which the last call returned, is written.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        # appended, not written anew: a long history would soon cost more than the state. Lines beyond the mark of a
        # checkpoint, left by a crash, are never read
        mark = append_lines(self.folder / HISTORY, mark or Mark(), history)
        facts = facts | {"history": list(mark)}
        if records is not None:
            # a name per round: the file that an older checkpoint speaks of must not change under it
            name = f"client_states-{facts['round']}.bin"
            facts |= {"records": name, "records_sha256": records.copy_to(self.folder / name)}
        arrays = {f"leaf_{place}": np.asarray(leaf) for place, leaf in enumerate(leaves)}
        text = np.frombuffer(json.dumps(facts).encode(), np.uint8)
        with whole(self.latest) as unfinished:
            with open(unfinished, "wb") as file:
                np.savez(file, allow_pickle=False, facts=text, **arrays)
            seal_file(unfinished)
            # two are kept: one that turns out damaged costs the rounds since the one before, not the run
            if self.latest.exists():
                os.replace(self.latest, self.previous)
        self._forget_old_records(facts.get("records"))
        return mark

    def load(self, records: RecordFile | None = None) -> Stored:
        """The newest checkpoint, or, said so, the one before where that is damaged; DamagedError without either."""
        damaged: list[str] = []
        for path in filter(Path.is_file, (self.latest, self.previous)):
            try:
                stored = self._read(path, records)
            except DamagedError as error:
                damaged.append(str(error).rstrip("."))
                continue
            if damaged:  # a damaged file must not take this one's place at the next save
                tell = self.say or (lambda said: warnings.warn(said, stacklevel=3))
                number = stored.facts["round"]
                tell(f"Warning: {damaged[0]}: training goes on from the checkpoint before it, round {number}.")
                os.replace(path, self.latest)
            return stored
        raise DamagedError(
            f"{'; '.join(damaged)}; delete the folder {self.folder} to train this part again, then resume."
        )

    def _read(self, path: Path, records: RecordFile | None) -> Stored:
        check_file(path)
        leaves, facts = _arrays(path)
        mark = Mark(*facts["history"])
        history = read_lines(self.folder / HISTORY, mark)
        if records is not None:
            if "records" not in facts:
                raise RequestError(
                    f"The checkpoint in {self.folder} was written by a run that kept client states in memory; "
                    "resume it the same way, without a state folder."
                )
            states = self.folder / facts["records"]
            if not states.is_file() or digest_of(states) != facts["records_sha256"]:
                raise DamagedError(f"{states} is {'damaged' if states.is_file() else 'missing'}.")
            records.restore_from(states)
        return Stored(leaves, facts, history, mark)

    def _forget_old_records(self, newest: str | None) -> None:
        if newest is None:
            return
        kept = {newest}
        if self.previous.is_file():
            try:
                check_file(self.previous)
            except DamagedError:  # which states are its own cannot be told
                return
            kept.add(str(_arrays(self.previous)[1].get("records")))
        for path in self.folder.glob("client_states-*.bin"):
            if path.name not in kept:
                path.unlink()


def _arrays(path: Path) -> tuple[list[np.ndarray], dict[str, Any]]:
    # opened here, because NumPy leaves the file of a damaged archive open
    with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
        leaves = [stored[f"leaf_{place}"] for place in range(len(stored.files) - 1)]
        return leaves, json.loads(stored["facts"].tobytes())


def append_lines(path: Path, mark: Mark, rows: Sequence[object]) -> Mark:
    """Write the rows from number `mark.lines` on behind the mark; what a later, lost checkpoint wrote there goes."""
    if mark.lines and not (path.is_file() and path.stat().st_size >= mark.size):
        mark = Mark()  # it was removed meanwhile
    added = b"".join(json.dumps(row).encode() + b"\n" for row in rows[mark.lines :])
    with open(path, "ab") as file:
        file.truncate(mark.size)
        file.write(added)
        file.flush()
        os.fsync(file.fileno())
    return Mark(len(rows), mark.size + len(added), zlib.crc32(added, mark.checksum))


def read_lines(path: Path, mark: Mark) -> list[Any]:
    """The rows up to the mark; DamagedError where they are not those that were written."""
    try:
        with open(path, "rb") as file:
            content = file.read(mark.size)
    except OSError as error:
        raise DamagedError(f"{path} cannot be read ({error.strerror}).") from None
    if len(content) != mark.size or zlib.crc32(content) != mark.checksum:
        raise DamagedError(f"{path} is damaged.")
    return [json.loads(line) for line in content.splitlines()]
