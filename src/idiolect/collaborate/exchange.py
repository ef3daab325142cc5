# SPDX-License-Identifier: Apache-2.0
"""What finding out who is alike sends: the arrays, how often they go up and down, and their bytes."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

SCALAR_BYTES = 4  # models and numbers travel in single precision


class Parcel(NamedTuple):
    """One kind of array, and how often all clients together send and receive it."""

    what: str
    shape: tuple[int, ...]
    uploads: int = 0
    downloads: int = 0

    @property
    def bytes(self) -> int:
        """Of one of them."""
        return SCALAR_BYTES * math.prod(self.shape)


class Exchange(NamedTuple):
    """What an estimate sends: models down to the clients that judge them, numbers up, first models up."""

    parcels: tuple[Parcel, ...] = ()
    pairs: int = 0  # ordered pairs (i, j), i judging j's model
    rows: int | None = None  # the fewest that an array sent by a client is computed from; None: nothing is sent
    reveals: str = ""

    @property
    def upload_bytes(self) -> int:
        """Of all clients."""
        return sum(one.uploads * one.bytes for one in self.parcels)

    @property
    def download_bytes(self) -> int:
        """Of all clients."""
        return sum(one.downloads * one.bytes for one in self.parcels)

    def __add__(self, other: object) -> Exchange:
        assert isinstance(other, Exchange)
        known = self.reveals in other.reveals or other.reveals in self.reveals  # said once is enough
        return Exchange(
            _merge(self.parcels + other.parcels),
            self.pairs + other.pairs,
            min((rows for rows in (self.rows, other.rows) if rows is not None), default=None),
            max(self.reveals, other.reveals, key=len) if known else f"{self.reveals} {other.reveals}",
        )

    def times(self, number: int) -> Exchange:
        """The same, so many times."""
        parcels = (one._replace(uploads=number * one.uploads, downloads=number * one.downloads) for one in self.parcels)
        return self._replace(parcels=tuple(parcels), pairs=number * self.pairs)

    def to_dict(self) -> dict[str, Any]:
        """Its totals, for JSON."""
        return {
            "upload_bytes": self.upload_bytes,
            "download_bytes": self.download_bytes,
            "pairs": self.pairs,
            "reveals": self.reveals,
        }


def _merge(parcels: tuple[Parcel, ...]) -> tuple[Parcel, ...]:
    """Arrays of one kind and shape together."""
    found: dict[tuple[str, tuple[int, ...]], Parcel] = {}
    for one in parcels:
        before = found.get((one.what, one.shape), Parcel(one.what, one.shape))
        both = before.uploads + one.uploads, before.downloads + one.downloads
        found[one.what, one.shape] = Parcel(one.what, one.shape, *both)
    return tuple(found.values())
