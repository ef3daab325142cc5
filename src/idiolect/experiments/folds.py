# SPDX-License-Identifier: Apache-2.0
"""Other ways to part the same clients' rows: folds, so that few rows choose well, and all of them for a last fit."""

from __future__ import annotations

import dataclasses

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
    counts = federation.validation.counts
    places = [np.arange(rows.offsets[client], rows.offsets[client + 1]) for client in range(rows.clients)]
    train, validation = [], []
    for client, (own, held) in enumerate(zip(places, counts)):
        order = host_generator(seed, Purpose.SPLIT, client).permutation(len(own) - held)  # validation rows come last
        start = (number - 1) * held
        # every fold takes its next rows of one order, so that folds overlap only where a client has too few
        chosen = np.unique(order[np.arange(start, start + held) % max(len(order), 1)]) if held else order[:0]
        validation.append(own[chosen])
        train.append(np.delete(own, chosen))
    return dataclasses.replace(federation, train=_taken(rows, train), validation=_taken(rows, validation), places=None)


def _taken(rows: Rows, places: list[np.ndarray]) -> Rows:
    index = np.concatenate(places)
    offsets = np.concatenate([[0], np.cumsum([len(own) for own in places])]).astype(np.int64)
    return Rows(rows.inputs[index], rows.targets[index], offsets, take_weights(rows.weights, index))
