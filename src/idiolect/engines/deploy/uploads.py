# SPDX-License-Identifier: Apache-2.0
"""The uploads of a round as the coordinator gets them: each one apart here, or under masks (`masked.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from idiolect.core.addressing import address
from idiolect.core.algorithm import Algorithm
from idiolect.core.tree import Tree
from idiolect.engines.deploy.link import Link, Question
from idiolect.engines.deploy.reports import Work, work_of
from idiolect.engines.deploy.wire import Message, WireError, norm_of, pack, unpack
from idiolect.engines.start import WireTypes


class Arrived(NamedTuple):
    """What came of a round."""

    works: Mapping[str, Work]  # by site, of the uploads that count
    partial: Tree | None  # what the reduction collected of them; None: too few came
    why: str = ""  # what else was wrong, a sentence and a space


def sound_work(site: str, message: Message, unsound: set[str]) -> Work:
    """The report beside an upload; WireError where the site's numbers are not finite."""
    who = f"Site {site!r}"
    work = work_of(message.content.get("work"), who)
    if not work.finite:
        unsound.add(site)
        raise WireError(f"{who} has a state that is no longer finite; its step may be too long.")
    return work


@jax.jit
def _collected(algorithm: Algorithm, uploads: Tree, clients: jax.Array) -> Tree:
    return algorithm.reduction.collect(uploads, clients, jnp.ones(clients.shape, bool))


class OpenUploads:
    """Every upload as it is: the server sees each one, and can refuse one that is out of all proportion."""

    def __init__(self, algorithm: Algorithm, link: Link, forms: WireTypes):
        self.algorithm, self.link, self.forms = algorithm, link, forms
        self.unsound: set[str] = set()  # sites whose numbers were not finite in the round that is asked

    def ask(self, number: int, asked: list[str], sent: Tree, least: int) -> Arrived:
        """Ask once; the round counts with `least` uploads."""
        numbers = self.link.numbers
        questions = {site: Question({}, pack("sent", address(sent, numbers[site]))) for site in asked}
        answers = self._without_giants(self.link.ask("round", number, questions, self._upload))
        works = {site: work for site, (_, work) in answers.items()}
        if len(answers) < least:
            return Arrived(works, None)
        # sums of floats depend on their order: it must not depend on who answered first
        order = sorted(answers, key=lambda site: numbers[site])
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *(answers[site][0] for site in order))
        clients = np.array([numbers[site] for site in order], np.int32)
        return Arrived(works, _collected(self.algorithm, stacked, clients))

    def _upload(self, site: str, message: Message) -> tuple[Tree, Work]:
        who, work = f"Site {site!r}", sound_work(site, message, self.unsound)
        upload = unpack(message, {"upload": self.forms.upload}, who)["upload"]
        weight = getattr(upload, "weight", None)
        if weight is not None and float(np.min(weight)) < 0:
            raise WireError(f"{who} sent a weight below 0.")
        return upload, work

    def _without_giants(self, answers: dict[str, tuple[Tree, Work]]) -> dict[str, tuple[Tree, Work]]:
        """Without uploads whose norm is out of all proportion: of three on, there is a median to compare with."""
        if len(answers) < 3:
            return answers
        norms = {site: norm_of(pack("upload", upload)) for site, (upload, _) in answers.items()}
        limit = self.link.rules.norm_factor * float(np.median(list(norms.values())))
        for site, norm in norms.items():
            if 0 < limit < norm:
                self.link.refused[site] += 1
                self.link.say(f"Site {site!r} sent an upload of the norm {norm:.3g}, beyond {limit:.3g}: refused.")
        return {site: found for site, found in answers.items() if not 0 < limit < norms[site]}
