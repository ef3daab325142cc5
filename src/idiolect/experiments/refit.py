# SPDX-License-Identifier: Apache-2.0
"""The rows that delivered models are fitted on: once everything is chosen, validation rows train too."""

from __future__ import annotations

import dataclasses

import numpy as np

from idiolect.core.data import Rows
from idiolect.data.federation import Federation, no_rows


def with_validation_rows(federation: Federation) -> Federation:
    """The same clients whose training rows are those that trained and those that validated; none validates."""
    train, order = joined_rows(federation.train, federation.validation)
    groups = federation.groups
    if groups is not None:
        groups = np.concatenate(groups[:2])[order], groups[1][:0], groups[2]
    held_out = None if federation.held_out is None else with_validation_rows(federation.held_out)
    empty = no_rows(federation.validation)
    return dataclasses.replace(federation, train=train, validation=empty, groups=groups, held_out=held_out, places=None)


def joined_rows(first: Rows, second: Rows) -> tuple[Rows, np.ndarray]:
    """Every client's rows of both, the first ones first, and where each row stood in the two laid end to end."""
    owner = np.concatenate([np.repeat(np.arange(rows.clients), rows.counts) for rows in (first, second)])
    order = np.argsort(owner, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(first.counts + second.counts)]).astype(np.int64)
    inputs, targets = (
        np.concatenate([getattr(rows, part) for rows in (first, second)])[order] for part in ("inputs", "targets")
    )
    weights = None
    if first.weights is not None and second.weights is not None:
        weights = np.concatenate([first.weights, second.weights])[order]
    return Rows(inputs, targets, offsets, weights), order
