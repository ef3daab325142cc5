# SPDX-License-Identifier: Apache-2.0
"""Preparation as a step of its own before round 0: what leaves each client for it, and what comes back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from idiolect.data.summaries import Numbers, Texts, add_numbers, add_texts

FEDERATED, LOCAL, GIVEN = "federated", "local", "given"
WAYS = {
    FEDERATED: "all clients are scaled alike, by sums over clients",
    LOCAL: "each client is scaled by its own rows; names of categories and classes are exchanged",
    GIVEN: "by a recipe from a file; nothing is sent",
}
# Mean, squares, lowest and highest of up to four values are these values; of five on, the ends alone are exact.
LEAST_ROWS = 5


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
    each = f"{upload.min()} bytes" if upload.min() == upload.max() else f"{upload.min()} to {upload.max()} bytes"
    least = int(preparation.rows.argmin())
    whose = f" (client {names[least]!r})" if len(names) else ""
    return [
        f"Preparation ({WAYS[preparation.way]}): before round 0 each client sent {each} about "
        f"{len(preparation.sent)} columns and received {preparation.download_bytes}, "
        f"computed from {preparation.rows[least]} training rows at least{whose}."
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
        'data.preparation = "local", or give the ranges with "given".'
    ]
