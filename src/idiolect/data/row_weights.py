# SPDX-License-Identifier: Apache-2.0
"""Weights of rows as they are given: checked, and said in notes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from idiolect.core.checks import RequestError
from idiolect.core.data import Rows
from idiolect.record.words import counted


def check_weights(
    values: np.ndarray, word: str, whose: Callable[[int], str], owner: np.ndarray, names: Sequence[str]
) -> None:
    """RequestError for a weight that is no finite number of at least 0, and for a client whose rows all weigh 0."""
    wrong = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if wrong.size:
        value = values[wrong[0]]
        held = "no weight" if np.isnan(value) else f"{value:g}"
        raise RequestError(
            f"{word} must hold finite numbers of at least 0, but {whose(int(wrong[0]))} has {held}; correct it, or "
            "leave the row out. Weight 0 keeps a row that counts nothing."
        )
    # weights are divided by their mean over a client: a mean of 0 has no inverse
    nothing = np.flatnonzero(np.bincount(owner, values, minlength=len(names)) == 0)
    if nothing.size:
        raise RequestError(
            f"{word} must have a positive sum over each client's rows, but every row of client "
            f"{names[nothing[0]]!r} weighs 0; give it a weight, or leave the client out."
        )


def check_training_weights(train: Rows, names: Sequence[str]) -> None:
    """RequestError for a client whose training rows all weigh 0: it would have nothing to learn from."""
    if train.weights is None or train.clients == 0:
        return
    owner = np.repeat(np.arange(train.clients), train.counts)
    nothing = np.flatnonzero((np.bincount(owner, train.weights, minlength=train.clients) == 0) & (train.counts > 0))
    if nothing.size:
        raise RequestError(
            f"Every client needs a training row of positive weight, but all {train.counts[nothing[0]]} of client "
            f"{names[nothing[0]]!r} weigh 0; leave the client out, or choose another split with --seed (data.seed)."
        )


def check_alike(*parts: Rows) -> None:
    """RequestError where some parts of a federation have weights and others none, or not one per row."""
    lengths = [None if rows.weights is None else len(rows.weights) for rows in parts]
    if any(length is not None for length in lengths) and lengths != [len(rows.targets) for rows in parts]:
        raise RequestError(
            "Weights must be one per row of training, validation and test rows alike, or none at all, got "
            f"{', '.join('none' if length is None else str(length) for length in lengths)} for "
            f"{', '.join(str(len(rows.targets)) for rows in parts)} rows; give all of them weights."
        )


def weight_notes(values: np.ndarray, word: str) -> list[str]:
    """What weights do, and how many rows count nothing."""
    notes = [f"{word} weighs rows in losses and scores, scaled to mean 1 over each client's rows; it is no input."]
    nothing = int((values == 0).sum())
    if nothing:
        rows = counted(nothing, "row of weight 0 is", "rows of weight 0 are")
        notes.append(f"{rows} kept, but without any effect on losses and scores.")
    return notes
