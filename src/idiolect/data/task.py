# SPDX-License-Identifier: Apache-2.0
"""What is predicted: class names and output width, and how a column of labels becomes class numbers."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from idiolect.core.checks import RequestError

FEW_VALUES = 20  # whole-number targets with at most this many values are taken for class labels
KINDS = ("classification", "regression")


@dataclasses.dataclass(frozen=True)
class Task:
    """Kind of prediction; `outputs` is the model's output width: one per class, or one per target column."""

    kind: str  # "classification" or "regression"
    classes: tuple[str, ...] = ()  # label names in the order of their numbers; () for regression
    outputs: int = 1

    @classmethod
    def classification(cls, classes: tuple[str, ...]) -> Task:
        """A task with these class names."""
        return cls("classification", tuple(classes), len(classes))

    @classmethod
    def regression(cls, outputs: int = 1) -> Task:
        """A task with this many target columns."""
        return cls("regression", (), outputs)


def check_kind(kind: str | None) -> None:
    """Raise RequestError unless `kind` is a known kind of task or None."""
    if kind is not None and kind not in KINDS:
        raise RequestError(f"task must be one of {', '.join(KINDS)}, got {kind!r}; leave it out to have it inferred.")


def infer_kind(values: np.ndarray) -> tuple[str, str]:
    """The kind of task that targets suggest, and the sentence that says why."""
    override = "set task (data.task in a spec) to say otherwise"
    if values.ndim > 1:
        return "regression", f"There are several target columns, so the task is regression; {override}."
    if values.dtype.kind not in "iuf":
        word = "true/false values" if values.dtype.kind == "b" else "texts"
        return "classification", f"The target holds {word}, so the task is classification; {override}."
    distinct = np.unique(values)
    whole = bool(np.all(np.isfinite(distinct)) and np.all(distinct == np.round(distinct)))
    if whole and len(distinct) <= FEW_VALUES:
        kind, amount = "classification", "different whole numbers"
    else:
        kind, amount = "regression", "different numbers"
    return kind, f"The target holds {len(distinct)} {amount}, so the task is {kind}; {override}."


def label_name(value: Any) -> str:
    """How a label or client id is written: whole numbers without a point, booleans as true / false."""
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    return str(value)


def encode_labels(values: np.ndarray) -> tuple[tuple[str, ...], np.ndarray]:
    """Sorted distinct labels by name, and each entry's number (int32). Numbers sort as numbers."""
    distinct, codes = np.unique(values, return_inverse=True)
    return tuple(label_name(value) for value in distinct), codes.reshape(values.shape).astype(np.int32)
