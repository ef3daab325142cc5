# SPDX-License-Identifier: Apache-2.0
"""The simulate engine: one process, one device, all clients as one compiled program.

`simulate` trains once; `simulate_many` trains many lanes (seeds, float settings) as one batched program.
"""

from __future__ import annotations

from collections.abc import Sequence

from idiolect.core.algorithm import Algorithm
from idiolect.core.checks import RequestError
from idiolect.engines.advance import advance
from idiolect.engines.checkpoint import Checkpoint
from idiolect.engines.door import Splits, Training
from idiolect.engines.plan import Options
from idiolect.engines.run import Run
from idiolect.engines.session import Session, open_session

__all__ = ["Checkpoint", "Options", "Run", "Session", "Training", "advance", "open_session", "simulate"]


def simulate(
    algorithm: Algorithm,
    federation: Splits,
    training: Training | None = None,
    *,
    seed: int = 0,
    scores: tuple[str, ...] = ("log_loss",),
    options: Options | None = None,
) -> Run:
    """Train once."""
    return open_session([algorithm], federation, training or Training(), [seed], scores, options).run()[0]


def simulate_many(
    algorithms: Sequence[Algorithm],
    federation: Splits,
    training: Training | None = None,
    *,
    seeds: Sequence[int],
    scores: tuple[str, ...] = ("log_loss",),
    options: Options | None = None,
) -> list[Run]:
    """Train lane i with `algorithms[i]` and `seeds[i]`, all in one program. A lane that diverges is only marked."""
    if len(algorithms) != len(seeds) or not seeds:
        raise RequestError(
            f"simulate_many needs one seed per algorithm, got {len(algorithms)} algorithms and {len(seeds)} seeds."
        )
    return open_session(algorithms, federation, training or Training(), seeds, scores, options).run()
