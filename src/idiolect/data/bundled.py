# SPDX-License-Identifier: Apache-2.0
"""Real data that comes with an installed package, so that a demo needs no download."""

from __future__ import annotations

import dataclasses

import numpy as np

from idiolect.data.federation import Federation
from idiolect.data.partition import labels_per_client as deal_labels
from idiolect.data.split import HeldOut, Split


def digits(
    clients: int = 20,
    labels_per_client: int | tuple[int, int] = (2, 3),
    seed: int = 0,
    *,
    split: Split = Split(),
    held_out: HeldOut = 0,
) -> Federation:
    """scikit-learn's 1797 handwritten digits (64 inputs in [0, 1], 10 classes), few labels per client."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    partition = deal_labels(labels, clients, labels_per_client, seed)
    federation = Federation.from_arrays(
        (images / 16).astype(np.float32),  # pixels count 0..16
        labels,
        partition.assignment,
        classes=tuple("0123456789"),
        split=split,
        held_out=held_out,
        seed=seed,
    )
    return dataclasses.replace(federation, notes=(*partition.notes, *federation.notes))
