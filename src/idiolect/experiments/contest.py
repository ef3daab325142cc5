# SPDX-License-Identifier: Apache-2.0
"""What may be asked of a comparison, by command and from Python alike; without jax, so that `--help` starts at once."""

from __future__ import annotations

import dataclasses
from typing import Any


def option(text: str, default: Any = None) -> Any:
    """A field that is an option of a command, with its help."""
    return dataclasses.field(default=default, metadata={"help": text})


@dataclasses.dataclass(frozen=True)
class Contest:
    """What is compared, and how it is trained; None: what suits most tables."""

    methods: str | None = option("Methods, comma-separated (`idiolect list algorithms`), or all. Default: seven.")
    score: str | None = option("Score to show (`idiolect list scores`). Default: by task and balance.")
    model: str = option("linear or mlp; with --data images or texts also a network (`idiolect list models`).", "linear")
    rounds: int | None = option("Rounds of every method. Default: until validation rows show no more progress.")
    minutes: float | None = option("Time for all methods together; one that it cuts short is marked.")
    cohort: int = option("Clients per round; 0: all.", 0)
    batch_size: int | None = option("Rows per local step; 0: all. Default: all for a linear model, else 20.")
    epochs: int | None = option("Passes over a client's rows per round. Default: 5 for a linear model, else 1.")
    step_sizes: str | None = option(
        "Step sizes to choose from on validation rows. Default: around those that theory knows."
    )
    refit: bool = option("Fit the delivered models on training and validation rows with what was chosen.", True)
    held_out: float = option("Clients that never train: a number, or a fraction below 1.", 0)
    seed: int | None = option("Draws the split and the training. Default: 0.")
    epsilon: float | None = option("Compare under client-level differential privacy with this budget per method.")
