# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: the whole state of a run in one file, replaced atomically, with the one before kept."""

from __future__ import annotations

import dataclasses
import json
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from idiolect.core.checks import RequestError
from idiolect.data.store import RecordFile


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Where and how often: every `every` rounds, rounded up to the end of a compiled block."""

    folder: Path
    every: int = 100

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
        return self._newest().is_file()

    def _newest(self) -> Path:
        """The latest one, or the one before where a crash fell between the two renames of `save`."""
        return self.latest if self.latest.is_file() else self.previous

    def save(self, leaves: list[Any], facts: dict[str, Any], records: RecordFile | None = None) -> None:
        """Write all of it beside the old one, then swap: a crash at any moment leaves a whole checkpoint."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if records is not None:
            facts = facts | {"records": f"client_states-{facts['round']}.bin"}
            records.copy_to(self.folder / facts["records"])
        arrays = {f"leaf_{place}": np.asarray(leaf) for place, leaf in enumerate(leaves)}
        text = np.frombuffer(json.dumps(facts).encode(), np.uint8)
        unfinished = self.folder / "unfinished.npz"
        with open(unfinished, "wb") as file:
            np.savez(file, allow_pickle=False, facts=text, **arrays)
            file.flush()
            os.fsync(file.fileno())
        if self.latest.exists():
            os.replace(self.latest, self.previous)
        os.replace(unfinished, self.latest)
        self._forget_old_records(facts.get("records"))

    def load(self, records: RecordFile | None = None) -> tuple[list[np.ndarray], dict[str, Any]]:
        """(leaves, facts) of the newest checkpoint; refuses a damaged one and says how to go on."""
        newest = self._newest()
        try:
            leaves, facts = _read(newest)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            way_out = f"delete the folder {self.folder} to train this part again, then resume"
            if newest == self.latest and self.previous.is_file():
                way_out = (
                    f"delete it and rename {self.previous.name} to {self.latest.name} to go on from the one before"
                )
            raise RequestError(f"The checkpoint {newest} is damaged ({type(error).__name__}); {way_out}.") from None
        if records is not None:
            if "records" not in facts:
                raise RequestError(
                    f"The checkpoint in {self.folder} was written by a run that kept client states in memory; "
                    "resume it the same way, without a state folder."
                )
            records.restore_from(self.folder / facts["records"])
        return leaves, facts

    def _forget_old_records(self, newest: str | None) -> None:
        if newest is None:
            return
        kept = {newest}
        if self.previous.is_file():
            kept.add(str(_read(self.previous)[1].get("records")))
        for path in self.folder.glob("client_states-*.bin"):
            if path.name not in kept:
                path.unlink()


def _read(path: Path) -> tuple[list[np.ndarray], dict[str, Any]]:
    # opened here, because NumPy leaves the file of a damaged archive open
    with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
        leaves = [stored[f"leaf_{place}"] for place in range(len(stored.files) - 1)]
        return leaves, json.loads(stored["facts"].tobytes())
