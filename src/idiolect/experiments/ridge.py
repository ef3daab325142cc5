# SPDX-License-Identifier: Apache-2.0
"""The ridge of a loss that needs one and was given none: chosen on validation rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from idiolect.collaborate.quadratic import Sample, make_sample, optimum, score_own
from idiolect.collaborate.threads import one_thread
from idiolect.core.checks import RequestError
from idiolect.experiments.collaboration import plain_loss
from idiolect.experiments.sources import build_data, refuse_weights
from idiolect.experiments.spec import Spec

RIDGES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
_MOST_TRIED = 300  # clients on which the ridge is chosen


def choose_ridge(spec: Spec, rows: pa.Table | None = None) -> tuple[float, str]:
    """The l2 with the least validation loss, mean of every client alone and of one model for all; and a sentence."""
    refuse_weights(spec.data, "dial")
    federation, _ = build_data(spec.data, "float64", rows)
    if federation.train.inputs.dtype.kind != "f":
        raise RequestError("dial needs numeric inputs or a table; this data set holds tokens: choose another.")
    kept = np.linspace(0, federation.clients - 1, min(federation.clients, _MOST_TRIED)).astype(int)
    loss = plain_loss(federation)
    train, judged = (make_sample(loss, part.select(kept), 2) for part in (federation.train, federation.validation))
    if not len(judged.owner):
        return 0.01, "The ridge is l2 = 0.01: there are no validation rows to choose it on (--l2 sets it)."
    # systems this small are slower in several threads than in one
    with one_thread():
        losses = [_ridge_loss(train, judged, ridge) for ridge in RIDGES]
    best = RIDGES[int(np.argmin(losses))]
    return best, f"The ridge l2 = {best:g} has the least validation loss of {len(RIDGES)} tried (--l2 sets it)."


def _ridge_loss(train: Sample, judged: Sample, ridge: float) -> float:
    """Of clients alone and of one model for all, each with `ridge` times its rows as penalty."""
    together = optimum(train, np.ones(train.agents), ridge * len(train.owner), np.zeros(train.size))
    own = np.stack(
        [
            # from the common model, which is near: a few Newton steps instead of a search
            optimum(train.some_agents(np.array([client])), np.ones(1), ridge * rows, together)
            for client, rows in enumerate(train.counts)
        ]
    )
    tested = judged.counts > 0
    every = np.tile(together, (train.agents, 1))
    return float(np.mean([judged.means(score_own(judged, models))[tested].mean() for models in (own, every)]))
