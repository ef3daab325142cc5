# SPDX-License-Identifier: Apache-2.0
"""Clients that hold the same rows under two names: split alike, so that neither is judged on what the other learnt."""

from __future__ import annotations

import dataclasses

import numpy as np

from idiolect.core.data import Rows
from idiolect.data.federation import Federation

NAMED = 5  # sentences about copies


def align_copies(federation: Federation) -> tuple[Federation, list[str]]:
    """The federation with every copy's rows split like its original's, and the sentences that say so."""
    originals = _originals(federation)
    copies = [client for client, first in enumerate(originals) if first != client]
    if not copies:
        return federation, []
    order = np.array(originals)
    parts = {name: getattr(federation, name).select(order) for name in ("train", "validation", "test")}
    groups = None
    if federation.groups is not None:
        first, second, third = (
            Rows(numbers, numbers, getattr(federation, name).offsets).select(order).targets
            for name, numbers in zip(parts, federation.groups)
        )
        groups = first, second, third
    names = federation.names
    notes = [
        f"Clients {names[originals[copy]]!r} and {names[copy]!r} hold the same rows; their rows are split alike, so "
        "that neither is judged on what the other has learnt by heart."
        for copy in copies[:NAMED]
    ]
    if len(copies) > NAMED:
        notes.append(f"{len(copies) - NAMED} more clients are copies of others.")
    # a copy's rows are now its original's: where they came from in the source is no longer known
    return dataclasses.replace(federation, groups=groups, places=None, **parts), notes


def _originals(federation: Federation) -> list[int]:
    """For every client the first one with the same rows in any order; rows that repeat themselves prove no copy."""
    seen: dict[bytes, int] = {}
    found = []
    for client in range(federation.clients):
        every = (federation.train, federation.validation, federation.test)
        parts = [part.of(client) for part in every]
        whole = np.concatenate([np.hstack([_flat(targets), _flat(inputs)]) for inputs, targets in parts])
        if federation.train.weights is not None:
            whole = np.hstack([whole, np.concatenate([_weights(part, client) for part in every])])
        ordered = whole[np.lexsort(whole.T[::-1])]
        distinct = 1 + int((np.diff(ordered, axis=0) != 0).any(axis=1).sum())
        content = ordered.tobytes() if 2 * distinct > len(ordered) > 1 else f"client {client}".encode()
        found.append(seen.setdefault(content, client))
    return found


def _weights(rows: Rows, client: int) -> np.ndarray:
    """(rows, 1) as they were given."""
    assert rows.weights is not None
    return rows.weights[rows.offsets[client] : rows.offsets[client + 1], None]


def _flat(values: np.ndarray) -> np.ndarray:
    return np.asarray(values, np.float64).reshape(len(values), int(np.prod(values.shape[1:])))
