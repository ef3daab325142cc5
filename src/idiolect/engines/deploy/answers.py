# SPDX-License-Identifier: Apache-2.0
"""What a site that adds noise itself has answered: each round once, of those that epsilon was computed for.

Its noise is drawn anew for every question, so that a second answer about a round would tell more of its rows. Where the
same is asked again, as after a lost message or by a coordinator that came back, it gives the upload that it kept.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from idiolect.core.checks import RequestError
from idiolect.core.tree import Tree
from idiolect.engines.deploy.kept import COMMITTED
from idiolect.engines.deploy.reports import Work, work_of
from idiolect.engines.deploy.wire import Message, WireError, decode, digest, encode, pack, unpack
from idiolect.engines.deploy.worker import Worker
from idiolect.record.files import remove_leftovers, write_whole
from idiolect.record.words import counted

FOLDER, COUNT = "answers", "count.safetensors"


class Answer(NamedTuple):
    """The question, by its digest, and all that was made of it."""

    question: str
    upload: Tree
    state: Tree
    work: Work


class Answers:
    """A worker's rounds, counted on disk before an answer leaves, by what the site itself knows of its agreement.

    `method` is the coordinator's name for what it trains, another one in each of its runs.
    """

    def __init__(self, worker: Worker, upload: Tree, home: Path, run: str, method: str):
        post = worker.post
        assert post.rounds is not None
        self.worker, self.rounds, self.run, self.method = worker, post.rounds, run, method
        self.forms = {"upload": upload, "state": worker.state_form}
        # not by the coordinator's name: a server that gives another one would be answered from the first round again
        self.folder = home / FOLDER / digest(run, post.label, post.seed)
        remove_leftovers(self.folder)
        found = {int(path.stem.removeprefix("answer-")): self._read(path) for path in self.folder.glob("answer-*")}
        self.kept = {number: answer for number, answer in found.items() if answer is not None}
        # an answer is written before it is counted: what a process left that ended in between counts, too
        self.given = self._read_count() | set(found)

    def work(self, number: int, sent: Tree, state: Tree) -> tuple[Tree, Tree, Work]:
        """(upload, state, report) of a round, as `Worker.work` gives them; RequestError beyond what was agreed."""
        question = self._digest(number, sent, state)
        answer = self.kept.get(number)
        if answer is None or answer.question != question:
            self._check(number)
            answer = Answer(question, *self.worker.work(number, sent, state))
            self._keep(number, answer)
        return answer.upload, answer.state, answer.work

    def _digest(self, number: int, sent: Tree, state: Tree) -> str:
        """All that an upload follows from, beside the rows and the noise."""
        asked = Message("round", self.run, number, -1, 0, {}, pack("sent", sent) | pack("state", state))
        return hashlib.sha256(encode(asked)).hexdigest()

    def _check(self, number: int) -> None:
        """RequestError for a round that was not agreed, or was answered."""
        if number not in self.rounds:
            raise RequestError(
                f"Round {number} is not one of the {len(self.rounds)} that this site agreed to answer, and its epsilon "
                "holds for those alone. Agree on a spec with more training.rounds, and start a new run."
            )
        if number in self.given:
            raise RequestError(
                f"This site has answered another question about round {number}; a second answer would tell more of its "
                "rows than epsilon says. Go on from the newest checkpoint with the same sites. For a new run, whose "
                "epsilon adds to this one's, name another folder in site.toml."
            )

    def _keep(self, number: int, answer: Answer) -> None:
        """On disk; OSError where the disk does not, and then the answer must not leave."""
        arrays = pack("upload", answer.upload) | pack("state", answer.state)
        content = {"question": answer.question, "work": answer.work.to_facts()}
        write_whole(self._path(number), encode(Message("upload", self.run, number, -1, 0, content, arrays)))
        given = self.given | {number}
        rounds = np.array(sorted(given), np.int32)
        count = Message("ready", self.run, 0, self.worker.post.number, 0, {"method": self.method}, {"rounds": rounds})
        write_whole(self.folder / COUNT, encode(count))
        self.given, self.kept[number] = given, answer
        for old in sorted(self.kept)[:-COMMITTED]:  # as many as a coordinator that came back may ask about
            self._path(old).unlink(missing_ok=True)
            del self.kept[old]

    def _path(self, number: int) -> Path:
        return self.folder / f"answer-{number:08d}.safetensors"

    def _read(self, path: Path) -> Answer | None:
        """An answer that an earlier process kept; None where it is damaged, and then it was given all the same."""
        try:
            stored = decode(path.read_bytes(), str(path))
            found = unpack(stored, self.forms, str(path))
            work = work_of(stored.content.get("work"), str(path))
        except WireError:
            return None
        return Answer(str(stored.content.get("question")), found["upload"], found["state"], work)

    def _read_count(self) -> set[int]:
        """The rounds that were answered; RequestError where that cannot be known, or another run asked."""
        path = self.folder / COUNT
        if not path.exists():
            return set()
        way_out = "For a new run, whose epsilon adds to that of the one before, name another folder in site.toml."
        try:
            stored = decode(path.read_bytes(), str(path))
            rounds = stored.arrays["rounds"]
        except (WireError, KeyError):
            raise RequestError(
                f"This site cannot read {COUNT}, its count of the rounds that it answered, and answers none without "
                f"it. Bring the file back. {way_out}"
            ) from None
        if (stored.content.get("method"), stored.number) != (self.method, self.worker.post.number):
            raise RequestError(
                f"This site has answered {counted(len(rounds), 'round')} of this method in another run; more answers "
                f"would tell more of its rows than epsilon says. Go on with that run. {way_out}"
            )
        return set(rounds.tolist())
