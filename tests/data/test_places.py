# SPDX-License-Identifier: Apache-2.0
"""Rows of a federation know their number in the source."""

from __future__ import annotations

import numpy as np

from idiolect.data.federation import Federation
from idiolect.data.split import Split


def test_rows_know_their_place_in_the_table():
    """Every row of every part stands at its number in the file, with those that were dropped counted."""
    rows = 60
    table = {
        "site": [None if row == 7 else f"s{row % 3}" for row in range(rows)],
        "age": [float(row) for row in range(rows)],
        "outcome": [None if row == 11 else 100.0 + (row % 5) * 1.5 + row / 7 for row in range(rows)],
    }
    split = Split(train=0.5, validation=0.2, test=0.2)  # a tenth is not used
    federation = Federation.from_table(
        table,
        client="site",
        target="outcome",
        features=["age"],
        split=split,
        held_out=["s2"],
        scaling="none",
        target_scaling="none",
    )
    found = []
    for part in (federation, federation.held_out):
        assert part.places.total == rows
        for name in ("train", "validation", "test"):
            own, places = getattr(part, name), getattr(part.places, name)
            np.testing.assert_array_equal(own.inputs[:, 0], places.astype(np.float32))
            assert [f"s{place % 3}" for place in places] == list(np.repeat(part.names, own.counts))
            found += places.tolist()
        assert [f"s{place % 3}" for place in part.places.unused] == [
            part.names[client] for client in part.places.unused_clients
        ]
        assert len(part.places.unused) > 0
        found += part.places.unused.tolist()
    assert sorted(found) == [row for row in range(rows) if row not in (7, 11)]
