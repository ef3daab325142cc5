# SPDX-License-Identifier: Apache-2.0
"""What a site keeps on its disk: the states after the rounds that may count, the selected one, a log of what it sent.

The coordinator says after which round the site stands; the site goes there. So it keeps the state of the round that it
is in, which may not count, and the last two that did: a coordinator that restarts may be one round behind.
"""

from __future__ import annotations

import datetime
import hashlib
import json
from pathlib import Path
from typing import NamedTuple

from idiolect.core.tree import Tree
from idiolect.engines.deploy.wire import Message, WireError, decode, encode, pack, unpack
from idiolect.record.files import remove_leftovers, write_whole

LOG = "sent.jsonl"
COMMITTED = 2  # states that counted and are kept


class Entry(NamedTuple):
    """A state, and whether its round is settled: whether it has seen what the round ended with."""

    state: Tree
    settled: bool


class Kept:
    """States of one method by the number of rounds that lie behind them; a copy of each is on disk before it counts."""

    def __init__(self, folder: Path, form: Tree, run: str):
        self.folder, self.form, self.run = folder, form, run
        self.entries: dict[int, Entry] = {}
        self.selected: tuple[int, Tree] | None = None  # at the round that was best on validation rows so far

    def load(self) -> None:
        """Read what an earlier process kept; files that are damaged or of another run are as if they were not there."""
        remove_leftovers(self.folder)
        found = map(self._read, sorted(self.folder.glob("state-*.safetensors")))
        self.entries |= dict(entry for entry in found if entry is not None)
        chosen = self._read(self.folder / "selected.safetensors")
        self.selected = None if chosen is None else (chosen[0], chosen[1].state)

    def _read(self, path: Path) -> tuple[int, Entry] | None:
        try:
            stored = decode(path.read_bytes(), str(path))
            state = unpack(stored, {"state": self.form}, str(path))["state"]
        except (OSError, WireError):
            return None
        return (stored.round, Entry(state, bool(stored.content.get("settled")))) if stored.run == self.run else None

    def _write(self, name: str, rounds: int, entry: Entry) -> None:
        stored = Message("ready", self.run, rounds, -1, 0, {"settled": entry.settled}, pack("state", entry.state))
        write_whole(self.folder / f"{name}.safetensors", encode(stored))

    def put(self, rounds: int, entry: Entry) -> None:
        """Keep a state; OSError where the disk does not, and then nothing has changed."""
        self._write(f"state-{rounds:08d}", rounds, entry)
        self.entries[rounds] = entry

    def stand(self, rounds: int) -> Entry:
        """The state after so many rounds, as the coordinator says; what came later did not count and is forgotten."""
        if rounds not in self.entries:
            known = ", ".join(map(str, sorted(self.entries))) or "none"
            raise WireError(
                f"This site has no state after round {rounds} (it has those after {known}); bring its folder back, or "
                "start a new run."
            )
        # and the one before it: the coordinator may come back from its older checkpoint
        before = sorted(number for number in self.entries if number < rounds)
        stays = {rounds, *before[len(before) - COMMITTED + 1 :]}
        for number in [number for number in self.entries if number not in stays]:
            (self.folder / f"state-{number:08d}.safetensors").unlink(missing_ok=True)
            del self.entries[number]
        return self.entries[rounds]

    def keep(self, number: int, state: Tree) -> None:
        """Record that round `number` is the best so far, with this state."""
        if self.selected is None or self.selected[0] != number:
            self._write("selected", number, Entry(state, True))
            self.selected = (number, state)


def log_sent(folder: Path, message: Message, block: bytes) -> None:
    """One line about a message that is about to be sent: all of its plain values, and the form of its arrays."""
    line = {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
        "kind": message.kind,
        "round": message.round,
        "bytes": len(block),
        "sha256": hashlib.sha256(block).hexdigest(),
        "content": message.content,
        "arrays": {name: [array.dtype.name, list(array.shape)] for name, array in message.arrays.items()},
    }
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / LOG, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
