# SPDX-License-Identifier: Apache-2.0
"""What each client chooses by its own validation rows: step and rounds of training alone, or a strength of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from idiolect.engines.stopping import needs_no_more
from idiolect.experiments.folds import cross_fitted
from idiolect.experiments.lanes import Lane, every_round
from idiolect.theory.constants import Constants

FACTORS = (0.1, 0.5, 2.0)  # of 1/(2 L_m): the path of exact steps is one, these are three paces along it
# Of every candidate, so that no client's rows decide how long another trains. More of them are more chances to be best
# on few validation rows by luck, fewer leave slow clients untrained: with 40, clients of uci_har_summary had a log loss
# of 0.51 instead of 0.40; 1000 cost 4 to 5 % on vehicle and anes96 (benchmarks/README.md).
ROUNDS = 200
LEAST = 1e-3  # of a round: a client that does best untrained moves by next to nothing
SETTLED = 0.9  # of the clients: one whose rows are all of a class may lower its log loss for ever
PRIOR_ROWS = 10.0  # of the mean client, added to each client's own, of which few decide little


class OwnTraining(NamedTuple):
    """One step size per client for a common number of rounds, and the scores of what other folds would choose."""

    step_sizes: list[float]
    rounds: int
    losses: np.ndarray  # (folds, clients)
    untrained: int  # clients that do best as they began
    trained: int  # rounds of the longest candidate
    converged: bool  # the last third of those bettered what clients choose by next to nothing


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
    pairs = sorted(every_round(lanes), key=lambda pair: pair[1])
    if not pairs or "step_size" not in common.point:
        return None
    merits = np.stack([lane.merits(number) for lane, number in pairs])  # (pairs, folds, clients)
    scored = np.isfinite(merits).any(axis=0).all(axis=0)
    if not scored.any():
        return None
    # a fold without a validation row of the client, or a path that left the finite numbers, is never the best
    merits = np.where(np.isfinite(merits), merits, -np.inf)
    places = merits.mean(axis=1).argmax(axis=0)  # the fewest rounds of those that are equally good
    places = np.where(scored, places, pairs.index((common, common.best[1])))
    tried, numbers = np.array([(lane.point["step_size"], number) for lane, number in pairs]).T
    steps, own = tried[places], np.maximum(numbers[places], LEAST)
    # one program trains all clients for one number of rounds: those who stop early take shorter steps
    rounds = max(1, round(own.max()))
    if bases is not None:
        steps, rounds = steps * bases, max(1, common.rounds[-1])
    judged = common.clients(common.best[1], common.choose_by)
    if len(judged) > 1:
        found = cross_fitted([merits] * len(judged), lambda others: others.mean(axis=1).argmax(axis=0))
        judged = common.sign * np.where(scored & np.isfinite(found), found, np.nan)
    untrained, settled = int((own <= LEAST).sum()), _have_settled(numbers, merits[:, :, scored].mean(axis=1))
    return OwnTraining((steps * own / rounds).tolist(), rounds, judged, untrained, int(numbers.max()), settled)


def _have_settled(numbers: np.ndarray, merits: np.ndarray) -> bool:
    """Whether the mean client, or nearly every one, had no use for more rounds; `merits` are (pairs, clients).

    Pairs are by rounds ascending. A candidate's own course does not tell: each client leaves it where that is best for
    the client.
    """
    best = np.maximum.accumulate(merits, axis=0)
    course = dict(zip(numbers.tolist(), best.mean(axis=1).tolist()))  # of all candidates after that round
    if needs_no_more([*course], [*course.values()]):
        return True
    # next to nothing is so in comparison with the mean client: near 0 every loss still changes by a large part
    best += best[-1].mean() - best[-1]
    last = dict(zip(numbers.tolist(), best))
    settled = [needs_no_more([*last], own) for own in np.stack([*last.values()], axis=1).tolist()]
    return bool(np.mean(settled) >= SETTLED)


class Own(NamedTuple):
    """The place of each client's own value, and its losses on validation rows that did not choose it."""

    places: np.ndarray  # (clients,)
    losses: np.ndarray  # (folds, clients)


def choose_own(losses: np.ndarray, without: Sequence[np.ndarray], rows: np.ndarray, common: np.ndarray) -> Own | None:
    """Each client's own value of a strength, or None where that is no better than one value for all.

    `losses` are means over a client's validation rows, (values, folds, clients), `rows` how many these are in a fold;
    `without` has, for each fold, the same after the rounds that the other folds choose; `common` are the cross-fitted
    losses of one value for all, (folds, clients).
    """
    values, folds, _ = losses.shape
    scored = (rows > 0) & np.isfinite(losses).all(axis=(0, 1)) & np.isfinite(common).all(axis=0)
    if values < 2 or folds < 2 or not scored.any():
        return None

    def pick(known: np.ndarray) -> np.ndarray:
        """(clients,) place of the value with the least loss over the client's rows and some of the mean client."""
        means = np.where(scored, known.mean(axis=1), 0.0)  # (values, clients)
        typical = means[:, scored].mean(axis=1, keepdims=True)
        # as if each client had some rows of the mean client: with few rows it follows the others, with many itself
        return np.argmin(known.shape[1] * rows * means + PRIOR_ROWS * typical, axis=0)

    crossed = cross_fitted(without, pick)
    # freedom that does not pay on rows which did not use it is taken back: one value for all
    if not crossed[:, scored].mean() < common[:, scored].mean():
        return None
    return Own(pick(losses), np.where(scored, crossed, np.nan))
