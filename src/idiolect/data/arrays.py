# SPDX-License-Identifier: Apache-2.0
"""Arrays as inputs and targets: their types, shapes and values checked, each refusal with the client and the row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from idiolect.core.checks import RequestError
from idiolect.data.row_weights import check_weights
from idiolect.data.task import Task, check_counts, check_kind, encode_labels, infer_kind, label_doubts

Whose = Callable[[int], str]  # a row's client in a sentence


def as_array(values: ArrayLike, word: str) -> np.ndarray:
    """An array of rows that have one shape, or RequestError."""
    try:
        return np.asarray(values)
    except ValueError:  # rows of different shapes
        shapes = sorted({np.shape(row) for row in values})  # type: ignore[union-attr]
        raise RequestError(
            f"All rows of {word} must have one shape, got {' and '.join(map(str, shapes[:2]))}; "
            "crop, pad or resize them alike."
        ) from None


def as_inputs(inputs: np.ndarray, tokens: bool, dtype: DTypeLike, whose: Whose) -> np.ndarray:
    """Finite numbers in the wanted precision, or whole numbers where they are tokens."""
    if inputs.dtype.kind not in "biuf":
        raise RequestError(f"inputs must be numbers, got the type {inputs.dtype}; use from_table for texts.")
    if tokens:
        if inputs.dtype.kind not in "iu":
            raise RequestError(f"tokens=True needs whole-number inputs, got the type {inputs.dtype}.")
        # they index an embedding
        return inputs.astype(np.int32)
    _check_finite(inputs, "inputs", whose)
    return _cast(inputs, "inputs", dtype, whose)


def as_weights(weights: np.ndarray, whose: Whose, owner: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """One finite number of at least 0 per row, with a positive sum per client."""
    if weights.ndim != 1 or weights.dtype.kind not in "biuf":
        raise RequestError(
            f"weights must be one number per row, got the type {weights.dtype} and shape {weights.shape}; give plain "
            "numbers of at least 0."
        )
    values = weights.astype(np.float64)
    check_weights(values, "weights", whose, owner, names)
    return values


def check_lengths(columns: Mapping[str, np.ndarray], owner: np.ndarray) -> None:
    """RequestError unless all arrays have one entry per row, and inputs and targets hold something."""
    for word, values in columns.items():
        if values.ndim == 0 or len(values) != len(owner):
            raise RequestError(
                f"{word} and clients must have one entry per row, got {values.shape} and {owner.shape}; cut them alike."
            )
    if len(owner) == 0:
        raise RequestError("There are no rows; a federation needs at least one row per client.")
    for word in ("inputs", "targets"):
        if columns[word].size == 0:
            raise RequestError(f"The rows of {word} hold nothing, shape {columns[word].shape}; leave no row empty.")


def as_targets(
    targets: np.ndarray, kind: str | None, classes: Sequence[str] | None, dtype: DTypeLike, whose: Whose
) -> tuple[Task, np.ndarray, list[str], list[str]]:
    """What is predicted, the targets as numbers, what was done, and what may be a slip."""
    check_kind(kind)
    notes: list[str] = []
    if kind is None:  # whoever names the classes has numbered them
        kind, *notes = infer_kind(targets) if classes is None else ("classification",)
    if kind != "classification":
        return (*_numeric_targets(targets, kind, dtype, whose), notes, [])
    if classes is not None:
        _check_class_numbers(targets, len(classes), whose)
        return Task.classification(tuple(classes)), targets.astype(np.int32), notes, []
    if targets.dtype.kind not in "biufUSM":
        raise RequestError(f"Targets must be numbers or texts, got the type {targets.dtype}; write their names.")
    _check_finite(targets, "targets", whose)
    # labels of all clients at once: a client with few of them numbers them like the others
    names, codes = encode_labels(targets)
    if len(names) < 2:
        raise RequestError(f"All targets equal {names[0]!r}; a constant has nothing to learn.")
    return Task.classification(names), codes, notes, label_doubts(targets, names, codes, whose)


def _numeric_targets(targets: np.ndarray, kind: str, dtype: DTypeLike, whose: Whose) -> tuple[Task, np.ndarray]:
    if targets.dtype.kind not in "biuf":
        raise RequestError(f"Regression needs numeric targets, got the type {targets.dtype}; use classification.")
    _check_finite(targets, "targets", whose)
    first = targets.reshape(-1)[0]
    if (targets == first).all():
        raise RequestError(f"All targets equal {first:g}; a constant has nothing to learn.")
    if kind == "regression":
        return Task.regression(1 if targets.ndim == 1 else targets.shape[1]), _cast(targets, "targets", dtype, whose)
    if targets.ndim > 1:
        raise RequestError(f"Counts need one target per row, got targets of shape {targets.shape}.")
    check_counts(targets, "targets")
    return Task.counts(), _cast(targets, "targets", dtype, whose)


def _check_class_numbers(targets: np.ndarray, classes: int, whose: Whose) -> None:
    rule, way_out = f"With classes given, targets must be class numbers 0 to {classes - 1}", "number them from 0"
    if targets.dtype.kind not in "iu":
        raise RequestError(f"{rule}, got the type {targets.dtype}; {way_out}.")
    lowest = 0 if targets.ndim == 1 else -1  # a position of a sequence may have no target
    if targets.min() < lowest or targets.max() >= classes:
        place = np.argwhere((targets < lowest) | (targets >= classes))[0]
        raise RequestError(
            f"{rule}, but {whose(int(place[0]))} has {targets[tuple(place)]}; name every class, or {way_out}."
        )


def _cast(values: np.ndarray, word: str, dtype: DTypeLike, whose: Whose) -> np.ndarray:
    """In the wanted precision; a number too large for it is refused rather than made infinite."""
    with np.errstate(over="ignore"):
        cast = values.astype(dtype, copy=False)
    # nothing was cast: nothing can have overflowed
    if cast is not values:
        _check_finite(cast, word, whose)
    return cast


def _check_finite(values: np.ndarray, word: str, whose: Whose) -> None:
    if values.dtype.kind != "f" or np.isfinite(values).all():
        return
    place = np.argwhere(~np.isfinite(values))[0]
    raise RequestError(
        f"{word} must be finite, but {whose(int(place[0]))} has {values[tuple(place)]}; "
        "fill or drop such rows, or use from_table, which handles missing values."
    )
