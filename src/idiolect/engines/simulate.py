# SPDX-License-Identifier: Apache-2.0
"""The simulate engine: one process, one device, all clients as one compiled program.

`simulate` trains once; `sweep` trains many lanes (seeds, float settings) as one batched program. Both are one session.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from idiolect.core.algorithm import Algorithm
from idiolect.core.checks import RequestError
from idiolect.engines.checkpoint import Checkpoint
from idiolect.engines.door import Training
from idiolect.engines.session import Progress, Run, Session, Snapshot, Splits

__all__ = ["Checkpoint", "Run", "Session", "Snapshot", "Splits", "Training", "simulate", "simulate_many"]


def simulate(
    algorithm: Algorithm,
    federation: Splits,
    training: Training | None = None,
    *,
    seed: int = 0,
    scores: tuple[str, ...] = ("log_loss",),
    checkpoint: Checkpoint | None = None,
    resume: bool = False,
    state_folder: Path | None = None,
    progress: Progress | None = None,
) -> Run:
    """Train once. With `state_folder`, client states live on disk and rows are read as needed."""
    session = Session([algorithm], federation, training or Training(), [seed], scores, state_folder)
    return session.run(checkpoint, resume, progress)[0]


def simulate_many(
    algorithms: Sequence[Algorithm],
    federation: Splits,
    training: Training | None = None,
    *,
    seeds: Sequence[int],
    scores: tuple[str, ...] = ("log_loss",),
    checkpoint: Checkpoint | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> list[Run]:
    """Train lane i with `algorithms[i]` and `seeds[i]`, all in one program. A lane that diverges is only marked."""
    if len(algorithms) != len(seeds) or not seeds:
        raise RequestError(
            f"simulate_many needs one seed per algorithm, got {len(algorithms)} algorithms and {len(seeds)} seeds."
        )
    session = Session(algorithms, federation, training or Training(), seeds, scores, None)
    return session.run(checkpoint, resume, progress)
