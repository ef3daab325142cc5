# SPDX-License-Identifier: Apache-2.0
"""What clients send so that all columns are prepared alike: sums of numbers, and the different texts; never a row."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

NUMBER_BYTES = 8  # a count or a sum on the wire


class Learners(NamedTuple):
    """Whose rows preparation learns from."""

    owner: np.ndarray  # (rows,), the number of each row's client among the names
    names: tuple[str, ...]
    training: np.ndarray  # (rows,), bool


class Numbers(NamedTuple):
    """One entry per client, or a single one for all together, about the values of one column."""

    present: np.ndarray  # (clients,) values that are there
    missing: np.ndarray
    mean: np.ndarray  # 0 without a value
    squares: np.ndarray  # sum of the squared distances from the mean
    lowest: np.ndarray  # infinite without a value
    highest: np.ndarray
    others: np.ndarray  # 1 where a value is neither the lowest nor the highest

    @property
    def wire_bytes(self) -> np.ndarray:
        """(clients,) that each client sends."""
        return np.full(len(self.present), NUMBER_BYTES * len(self))


class Texts(NamedTuple):
    """The different texts of one column, client by client."""

    levels: tuple[tuple[str, ...], ...]  # sorted, one tuple per client
    missing: np.ndarray  # (clients,) rows without a text

    @property
    def wire_bytes(self) -> np.ndarray:
        """(clients,) that each client sends: its texts in UTF-8, each with an end mark, and a count."""
        return np.array([NUMBER_BYTES + sum(len(text.encode()) + 1 for text in own) for own in self.levels], np.int64)


def summarise_numbers(values: np.ndarray, owner: np.ndarray, clients: int) -> Numbers:
    """What each client says of its own values; not-a-number is missing."""
    there = ~np.isnan(values)
    count = np.bincount(owner[there], minlength=clients)
    missing = np.bincount(owner[~there], minlength=clients)
    own, whose = values[there], owner[there]
    mean = np.bincount(whose, own, minlength=clients) / np.maximum(count, 1)
    squares = np.bincount(whose, (own - mean[whose]) ** 2, minlength=clients)
    lowest, highest = np.full(clients, np.inf), np.full(clients, -np.inf)
    np.minimum.at(lowest, whose, own)
    np.maximum.at(highest, whose, own)
    between = (own != lowest[whose]) & (own != highest[whose])
    others = (np.bincount(whose[between], minlength=clients) > 0).astype(np.int64)
    return Numbers(count, missing, mean, squares, lowest, highest, others)


def add_numbers(each: Numbers) -> Numbers:
    """All clients together, by their sums alone (Chan, Golub and LeVeque, 1979)."""
    count = each.present.sum(keepdims=True)
    mean = (each.present @ each.mean / np.maximum(count, 1)).reshape(1)
    # no client's squares are about the common mean: the distance of its own mean is added
    squares = (each.squares.sum() + each.present @ (each.mean - mean) ** 2).reshape(1)
    there = each.present > 0  # ends of clients without a value are infinite
    ends = np.unique(np.concatenate([each.lowest[there], each.highest[there]]))
    others = np.array([int(each.others.any() or len(ends) > 2)])
    lowest, highest = (end.reshape(1) for end in (each.lowest.min(), each.highest.max()))
    return Numbers(count, each.missing.sum(keepdims=True), mean, squares, lowest, highest, others)


def summarise_texts(texts: list[str | None], owner: np.ndarray, clients: int) -> Texts:
    """The different texts that each client has."""
    found: list[set[str]] = [set() for _ in range(clients)]
    missing = np.zeros(clients, np.int64)
    for text, client in zip(texts, owner.tolist()):
        if text is None:
            missing[client] += 1
        else:
            found[client].add(text)
    return Texts(tuple(tuple(sorted(own)) for own in found), missing)


def add_texts(each: Texts) -> Texts:
    """All clients together."""
    return Texts((tuple(sorted(set().union(*each.levels))),), each.missing.sum(keepdims=True))
