# SPDX-License-Identifier: Apache-2.0
"""Clients of the tables of Flow (2023): natural ones, several of them as one, images dealt out, some relabelled."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from idiolect import Federation, RequestError, Split
from idiolect.data.partition import dirichlet_mixtures
from papers.images import image_arrays, image_file
from papers.problems import NATURAL, natural_federation, natural_file


def find_data(source: str) -> Path:
    """Where the data of a column are; RequestError with the command that gets them where they are not here."""
    return natural_file(source) if source in NATURAL else image_file(source)


def make_federation(size: Mapping[str, Any], seed: int) -> Federation:
    """The clients of a column; `merged` natural clients are one, a fraction `relabelled` of dealt rows is changed."""
    if size["source"] in NATURAL:
        found = natural_federation(size["source"], size, seed)
        return _merge(found, size["merged"]) if size.get("merged", 1) > 1 else found
    return _deal(size, seed)


def _deal(size: Mapping[str, Any], seed: int) -> Federation:
    split, clients = Split(*size["split"]), size["clients"]
    parts = image_arrays(size["source"])
    images, labels = np.concatenate(parts[::2]), np.concatenate(parts[1::2])
    rows = clients * size["rows"]
    if rows > len(labels):
        raise RequestError(f"{size['source']} has {len(labels)} images, fewer than {clients} clients x {size['rows']}.")
    kept = np.random.default_rng(seed).permutation(len(labels))[:rows]
    images, labels = images[kept], labels[kept]
    owner = dirichlet_mixtures(labels, clients, size["concentration"], seed).assignment
    if size.get("relabelled"):
        images, labels = _relabel(images, labels, owner, size["relabelled"], seed)
    names = tuple(map(str, range(int(labels.max()) + 1)))
    return Federation.from_arrays(images, labels, owner, classes=names, split=split, seed=seed)


def _relabel(
    images: np.ndarray, labels: np.ndarray, owner: np.ndarray, fraction: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """A fraction of every client's images inverted, their labels renamed by a permutation of the client's own.

    Which rows are changed can be seen in the image, what they are called only at the client: the case for a choice
    between a shared and an own model that is made for each row.
    """
    draws = np.random.default_rng((seed, 1))
    images, labels, classes = images.copy(), labels.copy(), int(labels.max()) + 1
    for client in range(int(owner.max()) + 1):
        rows = np.flatnonzero(owner == client)
        changed = draws.permutation(rows)[: round(fraction * len(rows))]
        images[changed] = 1 - images[changed]
        labels[changed] = draws.permutation(classes)[labels[changed]].astype(labels.dtype)
    return images, labels


def _merge(federation: Federation, several: int) -> Federation:
    """As many neighbouring clients as one; the last may have fewer."""
    places = np.arange(0, federation.clients, several)
    train, validation, test = (
        dataclasses.replace(rows, offsets=np.append(rows.offsets[places], rows.offsets[-1]))
        for rows in (federation.train, federation.validation, federation.test)
    )
    new = federation.held_out
    return dataclasses.replace(
        federation,
        train=train,
        validation=validation,
        test=test,
        names=tuple("+".join(federation.names[place : place + several]) for place in places),
        held_out=None if new is None else _merge(new, several),
        groups=None,
        places=None,
    )
