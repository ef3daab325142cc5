# SPDX-License-Identifier: Apache-2.0
"""The numbers behind the figures of `dial`, `sweep` and `advise`, for the page's script."""

from __future__ import annotations

import numpy as np
from scipy.sparse.csgraph import connected_components

from idiolect.record.advice import CollaborationMap
from idiolect.report.advise_table import WORDS, Advised
from idiolect.report.choice import ChoiceFound, chosen_of
from idiolect.report.figure_data import Data
from idiolect.report.folder import floats
from idiolect.report.packed import packed

MUTUAL = 0.5  # of the share that all clients alike would have: what both must give to stand in one group
LEAST_SHARE = 0.005  # of the weight of a client: less is not drawn


def choice_figure(choice: ChoiceFound) -> Data:
    """Score at every value, of all clients and of each, with its choice, and what each value sent."""
    found, rows = choice.found, choice.of_clients()
    tests = [entry.test for entry in found.values]
    return {
        "kind": "choice",
        "title": f"test {choice.words.title}",
        "scale": choice.words.scale,
        "setting": found.setting,
        "values": [choice.named(entry.value) for entry in found.values],
        "mean": [test.mean for test in tests],
        "worst": [test.worst_decile for test in tests],
        "own": [found.chosen.test.mean, found.chosen.test.worst_decile],
        "bytes": [entry.spent.traffic_bytes for entry in found.values],
        "names": list(rows),
        "scores": packed(floats([row.test for lines in rows.values() for row in lines])),
        "chosen": [chosen_of(lines)[0] for lines in rows.values()],
    }


def map_figure(advised: Advised) -> Data:
    """Every client with its advice, group and expected gain; where the map is known, places and weights."""
    clients, words = advised.found.clients, advised.words
    gains = [entry.advised_gain for entry in clients]
    weights = advised.found.map
    return {
        "kind": "map",
        "title": f"expected gain ({words.title})",
        "scale": words.scale,
        "names": [entry.client for entry in clients],
        "rows": [entry.rows for entry in clients],
        "ways": list(WORDS.values()),
        "advice": [list(WORDS).index(entry.advice) for entry in clients],
        "groups": _groups(advised),
        "gain": packed(floats([gain.expected for gain in gains])),
        "low": packed(floats([gain.low for gain in gains])),
        "high": packed(floats([gain.high for gain in gains])),
        "weights": None if weights is None else _weights(weights),
    }


def _groups(advised: Advised) -> list[int]:
    """Numbers from 1: clients that count for one another, both ways, directly or through others; or their blocks."""
    found = advised.found
    if found.map is None:
        return [entry.block + 1 for entry in found.clients]
    shares = np.asarray(found.map.shares, float)
    mutual = np.minimum(shares, shares.T) >= MUTUAL / len(shares)
    _, group = connected_components(mutual, directed=False)
    named = {one: place + 1 for place, one in enumerate(dict.fromkeys(group[list(found.map.order)].tolist()))}
    return [named[one] for one in group.tolist()]


def _weights(found: CollaborationMap) -> Data:
    shares, places = np.asarray(found.shares, float), np.asarray(found.places, float)
    of, whose = np.nonzero(shares >= LEAST_SHARE)
    return {
        "order": list(found.order),
        "across": packed(places[:, 0]),
        "up": packed(places[:, 1]),
        "of": of.tolist(),
        "whose": whose.tolist(),
        "share": packed(shares[of, whose]),
    }
