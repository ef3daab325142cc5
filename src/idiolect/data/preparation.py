# SPDX-License-Identifier: Apache-2.0
"""Preparation as a step of its own before round 0: what leaves each client for it, and what comes back.

So that all columns are prepared alike, clients send sums of numbers and the different texts; never a row.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from idiolect.record.words import counted

FEDERATED, LOCAL, GIVEN = "federated", "local", "given"
WAYS = {
    FEDERATED: "all clients are scaled alike, by sums over clients",
    LOCAL: "each client is scaled by its own rows; names of categories and classes are exchanged",
    GIVEN: "by a recipe from a file; nothing is sent",
}
# Mean, squares, lowest and highest of up to four values are these values; of five on, the ends alone are exact.
LEAST_ROWS = 5
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


@dataclasses.dataclass(frozen=True)
class Sent:
    """What clients sent about one column."""

    column: str
    content: str  # in words
    upload_bytes: np.ndarray  # (clients,)
    download_bytes: int  # that each client receives


@dataclasses.dataclass(frozen=True)
class Preparation:
    """How columns were prepared, and what was sent for it; every client once, before round 0."""

    way: str
    rows: np.ndarray  # (clients,) that each client's numbers were computed from
    sent: tuple[Sent, ...] = ()

    @property
    def upload_bytes(self) -> np.ndarray:
        """(clients,) that each client sends."""
        return sum((part.upload_bytes for part in self.sent), np.zeros(len(self.rows), np.int64))

    @property
    def download_bytes(self) -> int:
        """That each client receives."""
        return sum(part.download_bytes for part in self.sent)

    @property
    def total_bytes(self) -> int:
        """Both ways, all clients."""
        return int(self.upload_bytes.sum()) + len(self.rows) * self.download_bytes

    def only(self, clients: np.ndarray) -> Preparation:
        """The same for some of the clients."""
        sent = tuple(dataclasses.replace(part, upload_bytes=part.upload_bytes[clients]) for part in self.sent)
        return dataclasses.replace(self, rows=self.rows[clients], sent=sent)


def sent_for(summaries: Mapping[str, Numbers | Texts], way: str) -> tuple[Sent, ...]:
    """What is sent for each column: numbers stay at home where each client is scaled by its own rows."""
    found = []
    for name, each in summaries.items():
        if isinstance(each, Texts):
            whole = add_texts(each).wire_bytes
            found.append(Sent(name, "its different texts, and how many are missing", each.wire_bytes, int(whole[0])))
        elif way == FEDERATED:
            content = "count, missing, mean, sum of squares, lowest, highest, whether there are others"
            found.append(Sent(name, content, each.wire_bytes, int(add_numbers(each).wire_bytes[0])))
        else:
            found.append(Sent(name, "whether values are missing", np.ones(len(each.present), np.int64), 1))
    return tuple(found)


def sentences(preparation: Preparation, names: Sequence[str] = ()) -> list[str]:
    """What left each client, in words."""
    if not preparation.sent:
        return ["Preparation: nothing was sent."]
    upload = preparation.upload_bytes
    each = counted(int(upload.max()), "byte")
    each = each if upload.min() == upload.max() else f"{upload.min():,} to {each}"
    least = int(preparation.rows.argmin())
    whose = f" (client {names[least]!r})" if len(names) else ""
    return [
        f"Preparation ({WAYS[preparation.way]}): before round 0 each client sent {each} about "
        f"{counted(len(preparation.sent), 'column')} and received {preparation.download_bytes:,}, "
        f"computed from {counted(int(preparation.rows[least]), 'training row')} at least{whose}."
    ]


def small_client_warnings(preparation: Preparation, names: Sequence[str]) -> list[str]:
    """One warning where sums of so few rows were sent that they tell the values."""
    few = np.flatnonzero((preparation.rows > 0) & (preparation.rows < LEAST_ROWS))
    if preparation.way != FEDERATED or not len(few):
        return []
    rest = f" and {len(few) - 3} more" if len(few) > 3 else ""
    whose = ", ".join(repr(names[client]) for client in few[:3])
    return [
        f"Preparation sends sums of each client's training rows, and of fewer than {LEAST_ROWS} rows these tell the "
        f"values of every column of numbers: client {whose}{rest}. Scale each client by its own rows with "
        "--set 'data.preparation = \"local\"', or give the ranges in a recipe (data.recipe in a spec)."
    ]
