# SPDX-License-Identifier: Apache-2.0
"""Sites that join in the middle: they have their numbers, after all others, from the beginning, and no rows until then.

Methods count them as clients that are absent, so what states sum to holds when they come: a state that never moved.
How columns are prepared and which steps theory gives is settled by those that were there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import jax
import numpy as np

from idiolect.core.addressing import is_per_client
from idiolect.core.algorithm import Algorithm, fit_of
from idiolect.core.checks import RequestError
from idiolect.data.preparation import Preparation
from idiolect.data.site_sums import SiteSums
from idiolect.protection.wrapper import NOISE_SECRET

SPLITS = ("train", "validation", "test")


def check_joinable(label: str, algorithm: Algorithm, later: Sequence[str]) -> None:
    """RequestError for a method that cannot do without a site, or must know it beforehand."""
    if not later:
        return
    own = any(map(is_per_client, jax.tree.leaves(algorithm, is_leaf=is_per_client)))
    reasons = {
        "it needs every client in every round": fit_of(algorithm, 0.5).refused is not None,
        "it has settings of its own for each client": own,
        "its server must know beforehand who listens to whom": bool(set(algorithm.server_only) - {NOISE_SECRET}),
    }
    reason = next((text for text, holds in reasons.items() if holds), None)
    if reason is not None:
        raise RequestError(
            f"{label} cannot be joined in the middle: {reason}. Leave the method out, or let {', '.join(later)} be "
            "there at the beginning."
        )


def with_unknown(sums: Mapping[str, SiteSums], names: Sequence[str]) -> dict[str, SiteSums]:
    """What sites said, in the order of their numbers; of those that have not, a client without rows."""
    task = next(iter(sums.values())).task
    # like a client that is absent in every round: it has a number and no row
    nothing = SiteSums(task, dict.fromkeys(SPLITS, 0), {}, {}, {}, {})
    return {name: sums.get(name, nothing) for name in names}


def padded(preparation: Preparation, clients: int) -> Preparation:
    """The same with clients at its end that sent nothing; what they receive to begin with is the recipe."""
    more = np.zeros(clients - len(preparation.rows), np.int64)
    sent = tuple(
        dataclasses.replace(part, upload_bytes=np.concatenate([part.upload_bytes, more])) for part in preparation.sent
    )
    return dataclasses.replace(preparation, rows=np.concatenate([preparation.rows, more]), sent=sent)
