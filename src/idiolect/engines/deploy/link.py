# SPDX-License-Identifier: Apache-2.0
"""The coordinator's side of the wire: who was asked what, which answers are valid, and where each site stands.

A site's state counts once its upload did. Which round that was rides on the next message to it, with what the round
ended with, so that nothing is lost with a message: until the site answers, it is told again.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from idiolect.core.addressing import address
from idiolect.core.checks import setting
from idiolect.core.tree import Tree, size_in_bytes
from idiolect.engines.deploy.transport import Transport
from idiolect.engines.deploy.wire import ANSWERS, REFUSED, Message, UnreadyError, WireError, decode, encode, pack

Found = TypeVar("Found")
Check = Callable[[str, Message], Found]  # (site, its answer) -> what it says; WireError refuses it
Say = Callable[[str], None]
STANDS = ("round", "settle", "record", "finish")  # questions that tell a site after which round it stands
MASKING = ("keys", "shares", "unmask")  # of secure aggregation, around "round"


@dataclasses.dataclass(frozen=True)
class Rules:
    """When a round closes, and what is refused."""

    deadline: float = setting(default=120.0, above=0, doc="seconds that sites have to answer")
    minimum: int = setting(default=1, at_least=1, doc="valid uploads that a round needs to count")
    retries: int = setting(default=5, at_least=0, doc="times that a round with fewer is asked again")
    wait: float = setting(default=1.0, at_least=0, doc="seconds before it is")
    norm_factor: float = setting(
        default=1e4, above=1, doc="an upload whose norm is so many times the median of its round's is refused"
    )
    message_bytes: int = setting(default=1 << 30, at_least=1, doc="the most that one answer may hold")


class Question(NamedTuple):
    """What one site is asked, beside where it stands."""

    content: Mapping[str, Any] = MappingProxyType({})
    arrays: Mapping[str, np.ndarray] = MappingProxyType({})


Questions = Mapping[str, Question]  # by site


@dataclasses.dataclass
class Traffic:
    """Messages and bytes of one kind of question, both ways."""

    messages: int = 0
    down_bytes: int = 0
    down_arrays: int = 0  # of these bytes, the arrays
    up_bytes: int = 0
    up_arrays: int = 0


class Link:
    """One run's messages over a transport."""

    def __init__(self, transport: Transport, run: str, numbers: Mapping[str, int], rules: Rules, say: Say):
        self.transport, self.run, self.numbers, self.rules, self.say = transport, run, dict(numbers), rules, say
        self.method = ""  # the one that is trained, by the name that sites know it by
        # where each site stands: rounds behind its state, one more than the last round that it counted in
        self.counted = dict.fromkeys(self.numbers, 0)
        self.unsettled: set[str] = set()  # who has not seen what that round ended with
        self.keep: dict[str, int] = {}  # the selected round, for those not told yet
        # by the clock: what a restarted coordinator sends is never older than what the sites have seen
        self.sequence = time.time_ns() // 1000
        self.endings: dict[int, Tree] = {}  # rounds -> what sites that stand there must see to settle, not addressed
        self.begin: Callable[[str], Question] | None = None
        self.refused: Counter[str] = Counter()  # answers, by site
        self.absent: Counter[str] = Counter()
        self.away: set[str] = set()  # who did not answer when last asked
        self.traffic: dict[str, Traffic] = {}

    def ask(self, kind: str, number: int, questions: Questions, check: Check[Found]) -> dict[str, Found]:
        """The valid answers, as `check` takes them. A site that has to begin first does, and is asked again."""
        refused = self.refused.copy()
        found, unready = self._ask_once(kind, number, questions, check)
        if unready and self.begin is not None:
            again = {site: self.begin(site) for site in unready}
            ready, _ = self._ask_once("begin", number, again, lambda site, message: True)
            more, _ = self._ask_once(kind, number, {site: questions[site] for site in ready}, check)
            found |= more
        silent = [site for site in questions if site not in found and self.refused[site] == refused[site]]
        self._note_absence(questions, found, silent)
        return {site: found[site] for site in questions if site in found}

    def _note_absence(self, asked: Collection[str], found: Collection[str], silent: Collection[str]) -> None:
        """Count who gave no valid answer, and name a site that fell silent; what was refused has been said."""
        self.absent.update(site for site in asked if site not in found)
        for site in silent:
            if site not in self.away:
                self.say(f"Site {site!r} did not answer: the others go on without it until it does.")
        self.away = (self.away - set(asked)) | set(silent)

    def _ask_once(
        self, kind: str, number: int, questions: Questions, check: Check[Found]
    ) -> tuple[dict[str, Found], list[str]]:
        """The valid answers, and the sites that must begin first."""
        # one number for all sites asked at once; an answer that repeats another is of an earlier question
        self.sequence += 1
        sequence, known = self.sequence, set(self.transport.sites)
        blocks = {site: self._write(kind, number, site, one) for site, one in questions.items() if site in known}
        answers = self.transport.exchange(number, blocks, self.rules.deadline) if blocks else {}
        found: dict[str, Found] = {}
        unready = []
        for site in sorted(set(answers) & set(blocks), key=lambda name: self.numbers[name]):
            try:
                found[site] = check(site, self._read(kind, number, site, sequence, answers[site]))
                if kind in STANDS:
                    self._acknowledged(site)
            except UnreadyError:
                unready.append(site)
            except WireError as error:
                self.refused[site] += 1
                self.say(str(error))
        return found, unready

    def _acknowledged(self, site: str) -> None:
        """The site has answered: it stands where it was told to."""
        self.unsettled.discard(site)
        self.keep.pop(site, None)
        # what no site is owed any more need not be kept, nor stand in the checkpoint
        owed = {self.counted[name] for name in self.unsettled}
        self.endings = {rounds: ending for rounds, ending in self.endings.items() if rounds in owed}

    def _write(self, kind: str, number: int, site: str, question: Question) -> bytes:
        content, arrays = dict(question.content), dict(question.arrays)
        if kind in MASKING:
            content["method"] = self.method
        if kind in STANDS:
            rounds = self.counted[site]
            content |= {"method": self.method, "counted": rounds}
            # a round that follows at once shows the site what the last one ended with: nothing is sent twice
            if site in self.unsettled and not (kind == "round" and number == rounds):
                content["settles"] = True
                arrays |= pack("settle", address(self.endings[rounds], self.numbers[site]))
            if site in self.keep:
                content["keep"] = self.keep[site]
        block = encode(Message(kind, self.run, number, self.numbers[site], self.sequence, content, arrays))
        count = self.traffic.setdefault(kind, Traffic())
        count.messages += 1
        count.down_bytes += len(block)
        count.down_arrays += size_in_bytes(arrays)
        return block

    def _read(self, kind: str, number: int, site: str, sequence: int, block: bytes) -> Message:
        """The answer to just this question; UnreadyError and WireError where it is none."""
        who = f"Site {site!r}"
        message = decode(block, who, self.rules.message_bytes)
        count = self.traffic[kind]
        count.up_bytes += len(block)
        count.up_arrays += size_in_bytes(message.arrays)
        if message.kind == REFUSED:  # of the rest nothing is asked: it may not even have read the question
            if message.content.get("again") is True:
                raise UnreadyError(f"{who} has to begin first.")
            reason = message.content.get("reason")
            raise WireError(f"{who} refused: {reason if isinstance(reason, str) else 'it gave no reason'}"[:500])
        if message.run != self.run:
            raise WireError(f"{who} answered about another run.")
        if message.sequence != sequence or message.round != number:
            raise WireError(f"{who} answered another question than the one it was asked: it is stale.")
        if message.number != self.numbers[site]:
            raise WireError(f"{who} answered as number {message.number}, and it is {self.numbers[site]}.")
        if message.kind != ANSWERS[kind]:
            raise WireError(f"{who} answered with {message.kind!r}, and {ANSWERS[kind]!r} is awaited.")
        if message.arrays and kind not in ("round", *MASKING):
            raise WireError(f"{who} sent arrays that were not asked for.")
        return message

    def count(self, sites: Mapping[str, Any], number: int, ending: Tree | None) -> None:
        """Round `number` counted these sites; `ending` is what they must see of it, None where they need not."""
        self.counted |= dict.fromkeys(sites, number + 1)
        if ending is not None:
            self.unsettled |= set(sites)
            self.endings[number + 1] = ending
