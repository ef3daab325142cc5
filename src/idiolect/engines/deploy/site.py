# SPDX-License-Identifier: Apache-2.0
"""A site: it answers messages from its own rows, and keeps its rows, states and models to itself.

`handle` never raises: a message that the site refuses, and a failure of its own, become an answer that says so.
"""

from __future__ import annotations

import contextlib
import dataclasses
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

import jax
import numpy as np

from idiolect.core.checks import RequestError, setting
from idiolect.core.kinds import Masks
from idiolect.core.tree import Params, Tree, size_in_bytes
from idiolect.engines.deploy.answers import Answers
from idiolect.engines.deploy.kept import Entry, Kept, log_sent
from idiolect.engines.deploy.link import MASKING
from idiolect.engines.deploy.masked import SiteMasks
from idiolect.engines.deploy.reports import Work, scores_to_facts
from idiolect.engines.deploy.wire import (
    ANSWERS,
    MOST_BYTES,
    REFUSED,
    Facts,
    Message,
    UnreadyError,
    WireError,
    decode,
    digest,
    encode,
    form_of,
    pack,
    unpack,
)
from idiolect.engines.deploy.worker import Post, Worker, settings_digest
from idiolect.engines.evaluate import Delivered
from idiolect.engines.population import SPLITS
from idiolect.engines.start import WireTypes

COORDINATOR = "The coordinator"


@dataclasses.dataclass(frozen=True)
class Allows:
    """What a site agrees to; it refuses everything else."""

    least_rows: int = setting(default=5, at_least=1, doc="training rows without which the site takes no part")
    upload_bytes: int = setting(default=1 << 28, at_least=1, doc="the most that one upload may hold")
    download_bytes: int = setting(default=MOST_BYTES, at_least=1, doc="the most that one message to the site may hold")

    def check_rows(self, rows: int) -> None:
        """RequestError for too few training rows."""
        if rows < self.least_rows:
            raise RequestError(
                f"This site has fewer training rows than the {self.least_rows} that it asks of itself; add rows, or "
                "lower allows.least_rows in its site.toml."
            )


class Finished(NamedTuple):
    """What a site ends a method with."""

    post: Post
    selected_round: int
    personal: Params  # with a leading axis of length one
    shared: Params | None
    scores: Facts


class Desk(Protocol):
    """What a site asks those who know specs and tables; RequestError refuses, with its sentence."""

    @property
    def run(self) -> str:
        """The digest that the coordinator's messages must carry."""

    def answer(self, kind: str, content: Facts) -> Facts:
        """To "hello", "sums" or "constants", before training."""

    def begin(self, content: Facts) -> Post:
        """The site's part in the method that is described."""

    def finish(self, finished: Finished) -> None:
        """Keep models and scores of a method that has ended."""


class Running(NamedTuple):
    """The method that is being trained."""

    key: str  # which one, in the coordinator's words
    worker: Worker
    work: Callable[[int, Tree, Tree], tuple[Tree, Tree, Work]]  # the worker's; counted where noise is the site's own
    kept: Kept
    forms: WireTypes
    masks: SiteMasks | None  # where uploads go up under masks


class Site:
    """See the module."""

    def __init__(self, desk: Desk, folder: Path, allows: Allows | None = None):
        self.desk, self.folder, self.allows = desk, folder, allows or Allows()
        self.sequence = -1  # of the last question that was answered
        self.running: Running | None = None

    def handle(self, message: bytes) -> bytes:
        """The answer to one message."""
        sequence, number = -1, -1
        try:
            asked = decode(message, COORDINATOR, self.allows.download_bytes)
            sequence, number = asked.sequence, asked.round
            answer = self._answer(asked)
            block = encode(answer)
            log_sent(self.folder, answer, block)  # before it leaves: nothing is sent that is not written down
            return block
        except RequestError as error:
            return self._refuse(sequence, number, str(error), again=isinstance(error, UnreadyError))
        except OSError as error:
            return self._refuse(sequence, number, f"It cannot write or read its files ({error.strerror or error}).")
        except Exception as error:
            with contextlib.suppress(OSError):
                self.folder.mkdir(parents=True, exist_ok=True)
                (self.folder / "failure.txt").write_text(traceback.format_exc(), encoding="utf-8")
            return self._refuse(sequence, number, f"It failed ({type(error).__name__}); its folder says more.")

    def _refuse(self, sequence: int, number: int, reason: str, again: bool = False) -> bytes:
        answer = Message(REFUSED, self.desk.run, number, -1, sequence, {"reason": reason, "again": again}, {})
        block = encode(answer)
        with contextlib.suppress(OSError):  # a full disk is one of the reasons; they hold nothing of the rows
            log_sent(self.folder, answer, block)
        return block

    def _check(self, asked: Message) -> None:
        """WireError for a message of another run, or one that comes again."""
        if asked.run != self.desk.run:
            raise WireError(
                f"{COORDINATOR} is about another run: spec, versions or settings differ from this site's "
                f"({asked.run[:8]}, here {self.desk.run[:8]}); install the same version, and use the same spec file."
            )
        if asked.sequence <= self.sequence:
            raise WireError(f"{COORDINATOR} sent message {asked.sequence} after {self.sequence}: it is stale.")
        # only upwards: a message that was recorded and is sent again is refused
        self.sequence = asked.sequence

    def _answer(self, asked: Message) -> Message:
        self._check(asked)
        if asked.kind not in ANSWERS:
            raise WireError(f"{COORDINATOR} sent a message of the kind {asked.kind!r}, which is an answer.")
        steps = {"round": self._round, "settle": self._settle, "record": self._record, "finish": self._finish}
        steps |= dict.fromkeys(MASKING, self._masking)
        if asked.kind not in steps:
            if asked.arrays:
                raise WireError(f"{COORDINATOR} sent arrays before training has begun.")
            begins = asked.kind == "begin"
            return self._begin(asked) if begins else self._reply(asked, self.desk.answer(asked.kind, asked.content))
        running = self.running
        if running is None or running.key != asked.content.get("method"):
            raise UnreadyError("This site has not begun this method, or was started anew; begin it first.")
        if asked.number != running.worker.post.number:
            raise WireError(f"{COORDINATOR} called this site number {asked.number}, and it is another.")
        return steps[asked.kind](asked, running)

    def _reply(self, asked: Message, content: Facts, arrays: dict[str, np.ndarray] | None = None) -> Message:
        return asked._replace(kind=ANSWERS[asked.kind], content=content, arrays=arrays or {})

    def _begin(self, asked: Message) -> Message:
        post = self.desk.begin(asked.content)
        if post.number != asked.number:
            raise WireError(f"{COORDINATOR} called this site both {asked.number} and {post.number}.")
        rows = int(post.train.counts[0])
        self.allows.check_rows(rows)
        worker = Worker(post)
        forms = _declared(worker.forms, asked.content.get("forms"), bool(post.algorithm.server_only))
        size = size_in_bytes(forms.upload)
        if size > self.allows.upload_bytes:
            raise RequestError(
                f"An upload of this method holds {size} bytes, more than the {self.allows.upload_bytes} that this site "
                "allows."
            )
        key = str(asked.content.get("method"))
        kept = Kept(self.folder / "states" / digest(key), worker.state_form, asked.run)
        # a site that was started anew finds the states of its earlier process, and goes on from there
        kept.load()
        state, work = worker.start()
        if not kept.entries:
            kept.put(0, Entry(state, True))
        reduction = post.algorithm.reduction
        masks = SiteMasks(reduction, post.number, kept.folder, asked.run) if isinstance(reduction, Masks) else None
        counted = None if post.rounds is None else Answers(worker, forms.upload, self.folder, asked.run, key)
        self.running = Running(key, worker, (counted or worker).work, kept, forms, masks)
        facts = {"work": work.to_facts(), "settings": settings_digest(post.algorithm, post.precision)}
        return self._reply(asked, facts | {"rows": rows})

    def _stand(self, asked: Message, running: Running, awaited: dict[str, Tree]) -> tuple[Entry, dict[str, Tree]]:
        """The state that the coordinator says is this site's, settled; and the other arrays of the message."""
        rounds = asked.content.get("counted")
        if type(rounds) is not int:
            raise WireError(f"{COORDINATOR} did not say after which round this site stands.")
        settles = bool(asked.content.get("settles"))
        forms = awaited | ({"settle": running.forms.sent} if settles else {})
        found = unpack(asked, forms, COORDINATOR)
        # the coordinator decides: a round that it did not count did not happen, whatever this site has computed
        entry = running.kept.stand(rounds)
        if not entry.settled:
            # where this round's own message tells what the last one ended with, nothing is sent twice
            after = found["settle"] if settles else found.get("sent") if asked.round == rounds else None
            if after is None:
                raise WireError(f"{COORDINATOR} did not say what round {rounds - 1} ended with.")
            entry = Entry(running.worker.settle(rounds - 1, after, entry.state), True)
            running.kept.put(rounds, entry)
        chosen = asked.content.get("keep")
        if type(chosen) is int:
            running.kept.keep(chosen, entry.state)
        return entry, found

    def _masking(self, asked: Message, running: Running) -> Message:
        """A turn of secure aggregation before the upload, or after it."""
        if running.masks is None:
            raise WireError(f"{COORDINATOR} asks for keys of secure aggregation, which this method does not have.")
        turns = {"keys": running.masks.keys, "shares": running.masks.shares, "unmask": running.masks.unmask}
        return self._reply(asked, {}, turns[asked.kind](asked, COORDINATOR))

    def _round(self, asked: Message, running: Running) -> Message:
        sealed = None if running.masks is None else asked.arrays.get("sealed")
        awaited = {"sent": running.forms.sent} | ({} if sealed is None else {"sealed": sealed})
        entry, found = self._stand(asked, running, awaited)
        upload, state, work = running.work(asked.round, found["sent"], entry.state)
        settled = running.worker.post.algorithm.settle is None
        running.kept.put(asked.round + 1, Entry(state, settled))
        arrays = pack("upload", upload)
        if running.masks is not None:  # nothing else of the upload leaves the site
            if sealed is None:
                raise WireError(f"{COORDINATOR} asks for an upload without the shares that go with its masks.")
            arrays = running.masks.mask(asked, sealed, running.worker.lift(upload), COORDINATOR)
        return self._reply(asked, {"work": work.to_facts()}, arrays)

    def _settle(self, asked: Message, running: Running) -> Message:
        self._stand(asked, running, {})
        return self._reply(asked, {})

    def _record(self, asked: Message, running: Running) -> Message:
        entry, found = self._stand(asked, running, _delivery(running.forms))
        delivered = Delivered(found["delivered"], found["shared"])
        scores, _ = running.worker.score(asked.round, delivered, entry.state, "validation")
        return self._reply(asked, {"scores": scores_to_facts(scores)})

    def _finish(self, asked: Message, running: Running) -> Message:
        chosen = asked.content.get("selected")
        if type(chosen) is not int:
            raise WireError(f"{COORDINATOR} did not say which round is selected.")
        twice = chosen != asked.round
        awaited = _delivery(running.forms) | (_delivery(running.forms, "selected_") if twice else {})
        entry, found = self._stand(asked, running, awaited)
        last = best = (asked.round, Delivered(found["delivered"], found["shared"]), entry.state)
        if twice:
            selected = running.kept.selected
            if selected is None or selected[0] != chosen:
                raise WireError(f"This site has no state of the selected round {chosen}; it was not there then.")
            best = (chosen, Delivered(found["selected_delivered"], found["selected_shared"]), selected[1])
        worker, report = running.worker, {}
        for when, end in (("last", last), ("selected", best)):
            scored = {split: worker.score(*end, split) for split in SPLITS}
            report[when] = {split: scores_to_facts(scores) for split, (scores, _) in scored.items()}
        report["work"] = scored["test"][1].to_facts()  # of the selected models
        self.desk.finish(Finished(worker.post, chosen, worker.model(*best), best[1].shared, report))
        return self._reply(asked, report)


def _delivery(forms: WireTypes, prefix: str = "") -> dict[str, Tree]:
    return {f"{prefix}delivered": forms.delivered, f"{prefix}shared": forms.shared}


def _declared(own: WireTypes, said: object, hidden: bool) -> WireTypes:
    """The forms that this site awaits: its own, and where settings are the server's alone the sizes that it said.

    Names and types must be the same; who listens to whom may decide how many models a site is sent.
    """
    if not isinstance(said, dict):
        raise WireError(f"{COORDINATOR} did not say what it will send.")
    found = {}
    for part, form in own._asdict().items():
        mine = form_of(part, form)
        theirs = {name: (tuple(shape), kind) for name, (shape, kind) in said.get(part, {}).items()}
        same = {name: kind for name, (_, kind) in mine.items()} == {name: kind for name, (_, kind) in theirs.items()}
        if not same or (mine != theirs and not hidden):
            raise WireError(f"{COORDINATOR} will send or await another {part} than this site's algorithm has.")
        leaves = [jax.ShapeDtypeStruct(theirs[name][0], np.dtype(kind)) for name, (_, kind) in mine.items()]
        found[part] = jax.tree.unflatten(jax.tree.structure(form), leaves)
    return WireTypes(**found)
