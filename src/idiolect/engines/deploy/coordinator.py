# SPDX-License-Identifier: Apache-2.0
"""The coordinator: the server's half of a run over a transport, and the only one that knows the server's state.

A round closes with the valid uploads that came before the deadline. What it made of them is on disk before any site is
told that its upload counted: killed at any moment, the coordinator goes on from the last round that did.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import numpy as np

from idiolect.core import keys
from idiolect.core.addressing import address
from idiolect.core.algorithm import Algorithm, fit_of
from idiolect.core.checks import DivergedError, RequestError
from idiolect.core.data import Rows
from idiolect.core.keys import Key
from idiolect.core.kinds import Masks
from idiolect.core.tally import Tally
from idiolect.core.tree import Params, Tree
from idiolect.engines import door
from idiolect.engines.billing import Account, Prepared, Terms, bill_block, bill_delivery, open_account
from idiolect.engines.client import Round
from idiolect.engines.cohorts import Participation
from idiolect.engines.deploy.link import Link, Question
from idiolect.engines.deploy.masked import MaskedUploads
from idiolect.engines.deploy.reports import Scores, Work, scores_of, work_of
from idiolect.engines.deploy.uploads import Arrived, OpenUploads
from idiolect.engines.deploy.wire import Facts, Message, WireError, form_of, pack
from idiolect.engines.deploy.worker import settings_digest
from idiolect.engines.population import SPLITS
from idiolect.engines.recording import ClientScores, ModelScores, Row, compare_record, history_row, to_lists
from idiolect.engines.round import RoundCost, is_finite
from idiolect.engines.server import deliver, open_round, server_init, server_step
from idiolect.engines.start import wire_types_of


@dataclasses.dataclass(frozen=True)
class Job:
    """One method to train: as admitted for all clients, and what each site is told of it."""

    label: str
    algorithm: Algorithm  # with the server's own settings
    seed: int
    training: door.Training
    participation: Participation
    scores: tuple[str, ...]
    choose_by: str
    rows: Rows  # whose form alone is read: the coordinator has none
    begin: Callable[[str], Facts]  # what a site needs to build its part
    prepared: Prepared | None = None  # what was sent before round 0; None: nothing
    select_last: bool = False  # the last round is the selected one, whatever its scores


class Standing(NamedTuple):
    """Where a run stands between two rounds."""

    round: int
    seconds: float
    server: Tree
    account: Account
    selected_round: int
    selected: Tree  # the server at that round
    best: tuple[float, ...]
    history: tuple[Row, ...]


class Ends(NamedTuple):
    """What the sites said of their models of the "last" and of the "selected" round."""

    scores: dict[str, ClientScores]
    answered: tuple[str, ...]


@jax.jit
def _opened(algorithm: Algorithm, root: Key, number: jax.Array, server: Tree) -> Tree:
    return open_round(algorithm, root, number, server).sent


@jax.jit
def _stepped(now: Round, server: Tree, partial: Tree) -> tuple[Tree, jax.Array]:
    """The server after a round, and whether it is finite."""
    moved = server_step(now, server, partial)
    return moved, is_finite(moved)


@jax.jit
def _delivered(algorithm: Algorithm, root: Key, number: jax.Array, server: Tree) -> tuple[Tree, Params | None]:
    return deliver(algorithm, root, number, server).sent, algorithm.shared_model(server)


class Coordinator:
    """Trains one job over a link; `save` keeps where it stands, and returns when that is on disk."""

    def __init__(self, job: Job, link: Link, save: Callable[[Standing], None] = lambda standing: None):
        self.job, self.link, self.save = job, link, save
        self.sites = {number: site for site, number in link.numbers.items()}
        with door.run_precision(job.training.precision):
            self.root = keys.root_key(job.seed)
            self.wire = wire_types_of(job.algorithm, job.rows, 1, door.PRECISIONS[job.training.precision])
            self.terms, self.forms = Terms(job.algorithm, job.participation, self.wire), self.wire.of_one()
            # a method that refuses a chance below 1 to take part cannot do without a single site
            needs_all = fit_of(job.algorithm, 0.5).refused is not None
        self.minimum = job.participation.cohort if needs_all else min(link.rules.minimum, job.participation.cohort)
        reduction = job.algorithm.reduction
        self.uploads: OpenUploads | MaskedUploads = OpenUploads(job.algorithm, link, self.forms)
        if isinstance(reduction, Masks):
            self.uploads = MaskedUploads(reduction, link, self.wire.upload)
            self.minimum = max(self.minimum, reduction.least)
        link.begin = self._begin_question

    def start(self) -> Standing:
        """Every site begins; the standing before the first round."""
        job, link = self.job, self.link
        begun = link.ask("begin", 0, {site: self._begin_question(site) for site in link.numbers}, self._begun)
        missing = [site for site in link.numbers if site not in begun]
        if len(begun) < self.minimum or not begun:
            raise RequestError(
                f"{job.label} needs {max(1, self.minimum)} sites to begin, and {len(begun)} did; "
                f"missing: {', '.join(missing)}."
            )
        with door.run_precision(job.training.precision):
            server = jax.tree.map(np.asarray, jax.jit(server_init)(job.algorithm, self.root))
        total = Tally(*map(sum, zip(*(work.tally for work in begun.values()))))
        account = open_account(len(link.numbers), total).prepare(job.prepared)
        nothing = (math.nan,) * len(job.scores)
        return Standing(0, 0.0, server, account, 0, server, nothing, ())

    def train(self, standing: Standing) -> Standing:
        """To the last round, with records as a simulation makes them."""
        training = self.job.training
        if not standing.history:
            standing = self._record(standing)
        while standing.round < training.rounds:
            standing = self._round(standing)
            if standing.round % training.record_every == 0 or standing.round == training.rounds:
                standing = self._record(standing)
        return standing

    def _begin_question(self, site: str) -> Question:
        forms = {part: form_of(part, form) for part, form in self.forms._asdict().items()}
        return Question(self.job.begin(site) | {"method": self.link.method, "forms": forms}, {})

    def _begun(self, site: str, message: Message) -> Work:
        own = door.own_settings(self.job.algorithm, self.link.numbers[site])
        if message.content.get("settings") != settings_digest(own, self.job.training.precision):
            raise WireError(f"Site {site!r} would train with other settings; use the same spec and version.")
        return work_of(message.content.get("work"), f"Site {site!r}")

    def _cohort(self, number: int) -> list[str]:
        """Whom to ask in a round: drawn. Who is there is seen."""
        # the draw is that of a simulation, for the same numbers; its dropout stands for what happens here by itself
        drawn = dataclasses.replace(self.job.participation, dropout=0.0)
        members, _ = drawn.draw(self.job.seed, range(number, number + 1))
        return [self.sites[int(client)] for client in members[0]]

    def _round(self, standing: Standing) -> Standing:
        began, number, job = time.perf_counter(), standing.round, self.job
        asked = self._cohort(number)
        if not asked:  # no site takes part in this method: nothing is sent
            return standing._replace(round=number + 1)
        with door.run_precision(job.training.precision):
            sent = _opened(job.algorithm, self.root, np.int32(number), standing.server)
            arrived = self._ask(number, asked, sent)
            now = Round(job.algorithm, self.root, np.int32(number), sent)
            server, ending = self._step(now, standing.server, arrived.partial)
            costs = _costs([self.link.numbers[site] for site in asked], [arrived.works.get(site) for site in asked])
            account = bill_block(standing.account, costs, range(number, number + 1), self.terms)
        seconds = standing.seconds + time.perf_counter() - began
        moved = standing._replace(round=number + 1, server=server, account=account, seconds=seconds)
        # counted, then on disk, then told: killed in between, the round is either gone for all or counts for all
        self.link.count(arrived.works, number, ending)
        self.save(moved)
        self._settle(number + 1)
        return moved

    def _ask(self, number: int, asked: list[str], sent: Tree) -> Arrived:
        """The valid uploads of a round, from the least number of sites on; a round with fewer is asked again."""
        rules, least = self.link.rules, max(1, self.minimum)
        for attempt in range(rules.retries + 1):
            self.uploads.unsound.clear()
            arrived = self.uploads.ask(number, asked, sent, least)
            if arrived.partial is not None:
                return arrived
            if self.uploads.unsound >= set(asked):  # asked again, they would compute the same
                raise DivergedError(
                    f"Round {number}: the numbers of every site are no longer finite. Use a smaller step size."
                )
            if attempt < rules.retries:
                time.sleep(rules.wait)
        found, missing = len(arrived.works), [site for site in asked if site not in arrived.works]
        raise RequestError(
            f"Round {number} has {found} valid uploads and needs {least}; missing: {', '.join(missing) or 'none'}. "
            f"{arrived.why}What was trained so far is kept: start the sites, then start the coordinator again."
        )

    def _step(self, now: Round, server: Tree, partial: Tree) -> tuple[Tree, Tree | None]:
        """The server after the round, and what its sites must see of it where the method settles."""
        moved, finite = _stepped(now, server, partial)
        number = int(now.number)
        if not bool(finite):
            raise DivergedError(
                f"Round {number}: the server's parameters are no longer finite. Use a smaller step size."
            )
        moved = jax.tree.map(np.asarray, moved)
        if now.algorithm.settle is None:
            return moved, None
        ending = _opened(now.algorithm, self.root, np.int32(number + 1), moved)
        return moved, jax.tree.map(np.asarray, ending)

    def _settle(self, number: int) -> None:
        """Tell those that a round counted and that the next one does not ask; a record tells all of them."""
        training, link = self.job.training, self.link
        if number % training.record_every == 0 or number == training.rounds:
            return
        owed = [site for site in link.numbers if site in link.unsettled and link.counted[site] == number]
        waiting = [site for site in owed if site not in self._cohort(number)]
        if waiting:
            link.ask("settle", number, dict.fromkeys(waiting, Question()), lambda site, message: True)

    def _record(self, standing: Standing) -> Standing:
        """Scores of all sites on their validation rows; where they are the best so far, sites keep their states."""
        job, link = self.job, self.link
        arrays = self._deliveries(standing.round, standing.server)
        questions = {site: Question(arrays=own) for site, own in arrays.items()}
        found = link.ask("record", standing.round, questions, self._scored)
        row = history_row(standing.round, standing.seconds, standing.account, _by_client(found, link.numbers), {})
        better, best = compare_record(row, standing.best, job.scores, job.choose_by)
        standing = standing._replace(history=(*standing.history, row), best=best)
        if better or job.select_last:
            standing = standing._replace(selected_round=standing.round, selected=standing.server)
            link.keep = dict.fromkeys(link.numbers, standing.round)
        self.save(standing)
        return standing

    def _deliveries(self, number: int, server: Tree, prefix: str = "") -> dict[str, dict[str, np.ndarray]]:
        """What each site makes its models from."""
        with door.run_precision(self.job.training.precision):
            sent, shared = _delivered(self.job.algorithm, self.root, np.int32(number), server)
        common = pack(f"{prefix}shared", shared)
        numbers = self.link.numbers.items()
        return {site: pack(f"{prefix}delivered", address(sent, client)) | common for site, client in numbers}

    def _scored(self, site: str, message: Message) -> Scores:
        return scores_of(message.content.get("scores"), self.job.scores, f"Site {site!r}")

    def finish(self, standing: Standing) -> tuple[Standing, Ends]:
        """Models are delivered, test rows are read at the sites, and their scores come back."""
        numbers, arrays = self.link.numbers, self._deliveries(standing.round, standing.server)
        if standing.selected_round != standing.round:
            chosen = self._deliveries(standing.selected_round, standing.selected, "selected_")
            arrays = {site: own | chosen[site] for site, own in arrays.items()}
        questions = {site: Question({"selected": standing.selected_round}, own) for site, own in arrays.items()}
        found = self.link.ask("finish", standing.round, questions, self._ended)

        def scores(when: str, split: str) -> ModelScores:
            return to_lists(_by_client({site: ended[when][split] for site, (ended, _) in found.items()}, numbers))

        ends = {when: {split: scores(when, split) for split in SPLITS} for when in ("last", "selected")}
        cost = [found[site][1].tally if site in found else Tally() for site in numbers]
        tally = Tally(*(np.array(counts) for counts in zip(*cost)))
        account = bill_delivery(standing.account, tally, self.terms)
        return standing._replace(account=account), Ends(ends, tuple(found))

    def _ended(self, site: str, message: Message) -> tuple[dict[str, dict[str, Scores]], Work]:
        who, content = f"Site {site!r}", message.content
        found: dict[str, dict[str, Scores]] = {}
        for when in ("last", "selected"):
            one = content.get(when)
            if not isinstance(one, dict) or set(one) != set(SPLITS):
                raise WireError(f"{who} did not send its scores on {' and '.join(SPLITS)} rows.")
            found[when] = {split: scores_of(one[split], self.job.scores, who) for split in SPLITS}
        return found, work_of(content.get("work"), who)


def _by_client(found: Mapping[str, Scores], numbers: Mapping[str, int]) -> dict[str, dict[str, np.ndarray]]:
    """model -> score -> one number per client; not-a-number of sites that did not answer."""
    scores: dict[str, dict[str, np.ndarray]] = {}
    for site, own in found.items():
        for model, named in own.items():
            for name, value in named.items():
                column = scores.setdefault(model, {}).setdefault(name, np.full(len(numbers), np.nan))
                column[numbers[site]] = value
    return scores


def _costs(clients: list[int], works: list[Work | None]) -> RoundCost:
    """What a round cost, as billing reads it: one row per site that was asked, absent ones with zeros."""
    nothing = (0,) * (len(Tally._fields) + 1)
    rows = [nothing if one is None else (*one.tally, one.steps) for one in works]
    counted = np.array([(*row, 1) for row in rows], np.int64)[None]
    present = np.array([[one is not None for one in works]])
    executed = np.array([sum(row[-1] for row in rows)], np.int64)
    return RoundCost(np.array([clients], np.int32), present, (None,) * len(nothing), counted, executed)
