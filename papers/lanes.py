# SPDX-License-Identifier: Apache-2.0
"""Many runs as lanes of one compiled program: the one way in which reproductions train, record and look at models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from idiolect import Algorithm, Federation, Training
from idiolect.core import tree
from idiolect.engines.door import run_precision
from idiolect.engines.evaluate import Standing as Standing
from idiolect.engines.simulate import Options, Session, advance, open_session
from idiolect.engines.simulate import (
    simulate_many as simulate_many,  # the same with test rows, and the models of each lane
)

PRECISION = "float64"
Measure = Callable[[int, Standing], dict[str, float]]  # (lane, where it stands) -> further columns of its record


class Curves(NamedTuple):
    """What was recorded of several lanes."""

    rounds: np.ndarray  # (records,)
    columns: Mapping[str, np.ndarray]  # scores, ledger and what was measured: (lanes, records)
    clients: int
    diverged: tuple[str | None, ...]  # a sentence for each lane that did

    @property
    def loss(self) -> np.ndarray:
        """F at the method's point, where it was measured: (lanes, records)."""
        return self.columns["loss"]

    @property
    def personal_gradients(self) -> np.ndarray:
        """Component gradients by beta so far, alone or with w in one pass, per client: (lanes, records)."""
        return (self.columns["gradients_personal"] + self.columns["gradients_both"]) / self.clients

    @property
    def shared_gradients(self) -> np.ndarray:
        """Component gradients by w so far, alone or with beta in one pass, per client: (lanes, records)."""
        return (self.columns["gradients_shared"] + self.columns["gradients_both"]) / self.clients

    def last(self, name: str) -> np.ndarray:
        """A column after the last round, one number per lane."""
        return self.columns[name][:, -1]


def train(
    algorithms: Sequence[Algorithm],
    federation: Federation,
    training: Training,
    seeds: Sequence[int],
    measure: Measure | None = None,
    scores: tuple[str, ...] = (),
) -> Curves:
    """Train every lane, of algorithms that differ in floats only, to the last round; test rows are not read."""
    session = _open(algorithms, federation, training, seeds, measure, scores)
    session.train()
    histories = [recorder.history for recorder in session.recorders]
    names = [name for name, entry in histories[0][-1].items() if isinstance(entry, (int, float))]
    columns = {name: np.array([[row[name] for row in lane] for lane in histories], np.float64) for name in names}
    diverged = tuple(None if lane.diverged is None else str(lane.diverged) for lane in session.recorders)
    return Curves(columns["round"][0].astype(np.int64), columns, federation.clients, diverged)


def schedule(rounds: int, record_every: int, precision: str = PRECISION) -> Training:
    """Rounds in one batched program: evaluating wants few programs, where `auto` would compile and time others too."""
    return Training(rounds=rounds, record_every=record_every, precision=precision, executor="batched")


def walk(
    algorithms: Sequence[Algorithm],
    federation: Federation,
    at: Sequence[int],
    read: Callable[[Any, Any], Any],
    *,
    seeds: Sequence[int],
    cohort: int = 0,
    begin: Callable[[Any], Any] = lambda server: server,
) -> list[Any]:
    """What `read` makes of the server's and the clients' state after the rounds `at`; `begin` changes the start.

    Block by block rather than `train`: scores and a ledger of every lane at every stop would take longer than the
    rounds. One lane alone has no axis of lanes.
    """
    length = int(np.diff(at, prepend=0).max())
    training = Training(rounds=max(at), cohort=cohort, precision=PRECISION, executor="batched", block=length)
    session = _open(algorithms, federation, training, seeds)
    seen, done = [], 0
    with run_precision(PRECISION):
        session.state = session.state._replace(server=_change(begin, session))
        for stop in at:
            _advance(session, stop - done)
            done = stop
            both = (session.state.server, session.state.clients)
            seen.append(read(*(both if len(seeds) > 1 else tree.take(both, 0))))
    return seen


def _open(
    algorithms: Sequence[Algorithm],
    federation: Federation,
    training: Training,
    seeds: Iterable[int],
    measure: Measure | None = None,
    scores: tuple[str, ...] = (),
) -> Session:
    # engines want a score to record, also where nothing is read from it
    plain = "log_loss" if federation.task.kind == "classification" else "squared_error"
    return open_session(algorithms, federation, training, list(seeds), scores or (plain,), Options(measure=measure))


def _change(begin: Callable[[Any], Any], session: Session) -> Any:
    """The server of all lanes, where `begin` sees no axis of lanes for one alone."""
    server = session.state.server
    if len(session.plan.seeds) > 1:
        return begin(server)
    return jax.tree.map(lambda leaf: leaf[None], begin(tree.take(server, 0)))


def _advance(session: Session, rounds: int) -> None:
    """Some rounds, without a record or an account."""
    if rounds:
        session.state = advance(session.plan, session.state, rounds, paid=False)
