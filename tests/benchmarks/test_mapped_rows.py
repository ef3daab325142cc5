# SPDX-License-Identifier: Apache-2.0
"""Rows read from mapped files, whose pages are given back meanwhile, are the rows that were saved."""

from __future__ import annotations

import numpy as np

from idiolect.core.data import Rows
from idiolect.data.store import open_rows, save_rows
from idiolect.engines.population import load


def test_mapped_rows_survive_giving_their_pages_back(tmp_path):
    counts = np.arange(200) % 7 + 1  # 200 clients: several pieces, the last one short
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    draw = np.random.default_rng(0)
    rows = Rows(draw.normal(size=(offsets[-1], 40)).astype(np.float32), np.arange(offsets[-1], dtype=np.int32), offsets)
    save_rows(tmp_path, rows)
    mapped = open_rows(tmp_path)
    for clients in (np.arange(200), draw.permutation(200)[:150], np.array([3])):
        wanted, read = rows.pad(clients, 7), load(mapped, clients, 7, np.float32)
        assert (wanted.weights, read.weights) == (None, None)
        for saved, loaded in zip(wanted[:3], read[:3]):
            np.testing.assert_array_equal(saved, loaded)
            assert saved.dtype == loaded.dtype
