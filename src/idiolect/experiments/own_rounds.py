# SPDX-License-Identifier: Apache-2.0
"""Training alone, chosen alone: each client's own step size and rounds, by its own validation rows and no other's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from idiolect.engines.stopping import has_converged
from idiolect.experiments.lanes import Lane
from idiolect.metrics.scores import SCORES
from idiolect.theory.constants import Constants

FACTORS = (0.1, 0.5, 2.0)  # of 1/(2 L_m): the path of exact steps is one, these are three paces along it
# Of every candidate, so that no client's rows decide how long another trains. More of them are more chances to be best
# on few validation rows by luck, fewer leave slow clients untrained: with 40, clients of uci_har_summary had a log loss
# of 0.51 instead of 0.40; 1000 cost 4 to 5 % on vehicle and anes96 (benchmarks/README.md).
ROUNDS = 200
LEAST = 1e-3  # of a round: a client that does best untrained moves by next to nothing


class OwnTraining(NamedTuple):
    """One step size per client for a common number of rounds, and the scores of what other folds would choose."""

    step_sizes: list[float]
    rounds: int
    losses: np.ndarray  # (folds, clients)
    converged: bool  # the last third of the rounds bettered what clients choose by next to nothing


def own_steps(constants: Constants, batch_size: int) -> np.ndarray:
    """(clients,) 1/(2 L_m), the step that each client's own rows recommend; 1 where a client's loss is flat."""
    smoothness = constants.client_batch_smoothness(batch_size)
    return np.where(smoothness > 0, 1 / (2 * np.where(smoothness > 0, smoothness, 0.5)), 1.0)


def choose_own_training(lanes: Sequence[Lane], common: Lane, bases: np.ndarray | None = None) -> OwnTraining | None:
    """Each client's own candidate and round; None where no step size was tried or no client can choose.

    `bases` are the clients' own units of the step sizes; then the rounds are those of the candidates, whatever the
    clients choose. A client that stops after r of R rounds takes R rounds with r / R of its step: as far along the same
    path. Clients without a validation score take what is best for the others. A single fold cannot judge its own
    choice: there the scores are those of the common candidate.
    """
    pairs = _candidates(lanes)
    if not pairs:
        return None
    sign = -1 if SCORES[common.choose_by].higher_is_better else 1
    # (pairs, folds, clients)
    losses = sign * np.stack([lane.clients(number, common.choose_by) for lane, number in pairs])
    scored = np.isfinite(losses).any(axis=0).all(axis=0)
    if not scored.any():
        return None
    # a fold without a validation row of the client, or a path that left the finite numbers, is never the best
    losses = np.where(np.isfinite(losses), losses, np.inf)
    places = losses.mean(axis=1).argmin(axis=0)  # the fewest rounds of those that are equally good
    places = np.where(scored, places, pairs.index((common, common.best[1])))
    tried, numbers = np.array([(lane.point["step_size"], number) for lane, number in pairs]).T
    steps, own = tried[places], np.maximum(numbers[places], LEAST)
    # one program trains all clients for one number of rounds: those who stop early take shorter steps
    rounds = max(1, round(own.max()))
    if bases is not None:
        steps, rounds = steps * bases, max(1, common.rounds[-1])
    judged = sign * _judged(losses, scored, common, sign)
    settled = _has_settled(numbers.astype(int).tolist(), losses[:, :, scored].mean(axis=1))
    return OwnTraining((steps * own / rounds).tolist(), rounds, judged, settled)


def _candidates(lanes: Sequence[Lane]) -> list[tuple[Lane, int]]:
    """Every round of every lane that can be chosen, by rounds; none where a lane has no step size of its own."""
    able = [lane for lane in lanes if lane.diverged is None and lane.rounds]
    if not all("step_size" in lane.point for lane in able):
        return []
    return sorted(((lane, number) for lane in able for number in lane.rounds), key=lambda pair: pair[1])


def _has_settled(rounds: Sequence[int], losses: np.ndarray) -> bool:
    """Whether more rounds would change little of what clients choose, from (pairs, clients) losses in order of rounds.

    A candidate's own course says nothing here: each client leaves it where that is best for the client.
    """
    least = np.minimum.accumulate(losses, axis=0).mean(axis=1)
    last = dict(zip(rounds, least))  # of all candidates after that round
    return has_converged(list(last), [-float(loss) for loss in last.values()])


def _judged(losses: np.ndarray, scored: np.ndarray, common: Lane, sign: int) -> np.ndarray:
    """Each fold's losses of what the client's other folds would choose, not-a-number for clients without any."""
    folds, everyone = losses.shape[1], np.arange(losses.shape[2])
    if folds == 1:
        return sign * common.clients(common.best[1], common.choose_by)
    others = [np.delete(losses, fold, axis=1).mean(axis=1).argmin(axis=0) for fold in range(folds)]
    found = np.stack([losses[place, fold, everyone] for fold, place in enumerate(others)])
    return np.where(scored & np.isfinite(found), found, np.nan)
