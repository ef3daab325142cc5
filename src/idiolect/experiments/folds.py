# SPDX-License-Identifier: Apache-2.0
"""Other ways to part the same clients' rows: folds, so that few rows choose well, and all of them for a last fit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from idiolect.core.data import Rows, join_rows, take_weights
from idiolect.core.keys import Purpose, host_generator
from idiolect.data.federation import Federation, no_rows

MOST_ROWS = 6_000  # training and validation rows up to which several folds are worth their time
MOST_CLIENTS = 2_000


def with_validation_rows(federation: Federation) -> Federation:
    """The same clients whose training rows are those that trained and those that validated; none validates."""
    train, order = join_rows(federation.train, federation.validation)
    groups = federation.groups
    if groups is not None:
        groups = np.concatenate(groups[:2])[order], groups[1][:0], groups[2]
    held_out = None if federation.held_out is None else with_validation_rows(federation.held_out)
    empty = no_rows(federation.validation)
    return dataclasses.replace(federation, train=train, validation=empty, groups=groups, held_out=held_out, places=None)


def fold_count(federation: Federation) -> int:
    """How many folds to choose by: about as many as validation fits into the rows drawn for both, at most 4.

    One where the user says which rows validate, where rows belong together, and where one fold has rows enough.
    """
    train, validation = int(federation.train.counts.sum()), int(federation.validation.counts.sum())
    fixed = not federation.validation_drawn or federation.groups is not None
    if fixed or validation == 0 or federation.clients > MOST_CLIENTS:
        return 1
    return 1 if train + validation > MOST_ROWS else min(4, 1 + round(train / validation))


def fold(federation: Federation, number: int, seed: int) -> Federation:
    """The federation itself for 0, else with other validation rows: as many from every client, shapes are the same."""
    if number == 0:
        return federation
    rows, _ = join_rows(federation.train, federation.validation)
    validates = np.zeros(len(rows.targets), bool)
    for client, (start, count, held) in enumerate(zip(rows.offsets, rows.counts, federation.validation.counts)):
        order = host_generator(seed, Purpose.SPLIT, client).permutation(count - held)  # validation rows come last
        if held:
            # every fold takes its next rows of one order, so that folds overlap only where a client has too few
            taken = np.arange((number - 1) * held, number * held) % max(len(order), 1)
            validates[start + order[taken]] = True
    owner, parts = np.repeat(np.arange(rows.clients), rows.counts), []
    for chosen in (~validates, validates):
        offsets = np.append(0, np.cumsum(np.bincount(owner[chosen], minlength=rows.clients)))
        weights = take_weights(rows.weights, np.flatnonzero(chosen))
        parts.append(Rows(rows.inputs[chosen], rows.targets[chosen], offsets, weights))
    return dataclasses.replace(federation, train=parts[0], validation=parts[1], places=None)


def cross_fitted(by_fold: Sequence[np.ndarray], choose: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """(folds, clients): each fold's entries of the candidate that `choose` takes for the other folds.

    The best of many is best by luck too: what chose it flatters it. `by_fold` has (candidates, folds, clients) for each
    fold, of which there must be two at least; `choose` gives one place among the candidates, or one for each client.
    """
    return np.stack(
        [
            own[choose(np.delete(own, number, axis=1)), number, np.arange(own.shape[2])]
            for number, own in enumerate(by_fold)
        ]
    )
