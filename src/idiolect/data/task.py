# SPDX-License-Identifier: Apache-2.0
"""What is predicted: class names and output width, and how a column of labels becomes class numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from idiolect.core.checks import RequestError

FEW_VALUES = 20  # whole-number targets with at most this many values are taken for class labels
KINDS = ("classification", "regression", "counts")


@dataclasses.dataclass(frozen=True)
class Task:
    """Kind of prediction; `outputs` is the model's output width: one per class, or one per target column."""

    kind: str  # one of `KINDS`
    classes: tuple[str, ...] = ()  # label names in the order of their numbers; () for numbers
    outputs: int = 1

    @classmethod
    def classification(cls, classes: tuple[str, ...]) -> Task:
        """A task with these class names."""
        return cls("classification", tuple(classes), len(classes))

    @classmethod
    def regression(cls, outputs: int = 1) -> Task:
        """A task with this many target columns."""
        return cls("regression", (), outputs)

    @classmethod
    def counts(cls) -> Task:
        """Whole numbers from 0 on, predicted by their rate; never inferred, since numbers and classes look alike."""
        return cls("counts")


def check_kind(kind: str | None) -> None:
    """Raise RequestError unless `kind` is a known kind of task or None."""
    if kind is not None and kind not in KINDS:
        raise RequestError(f"task must be one of {', '.join(KINDS)}, got {kind!r}; leave it out to have it inferred.")


def infer_kind(values: np.ndarray) -> tuple[str, str]:
    """The kind of task that targets suggest, and the sentence that says why."""
    override = "set --task (data.task in a spec) to say otherwise"
    if values.ndim > 1:
        return "regression", f"There are several target columns, so the task is regression; {override}."
    if values.dtype.kind not in "iuf":
        word = "true/false values" if values.dtype.kind == "b" else "texts"
        return "classification", f"The target holds {word}, so the task is classification; {override}."
    distinct = np.unique(values)
    whole = bool(np.all(np.isfinite(distinct)) and np.all(distinct == np.round(distinct)))
    labels = whole and len(distinct) <= FEW_VALUES
    kind, amount = ("classification", "different whole numbers") if labels else ("regression", "different numbers")
    hint = " (counts, if it counts events)" if whole and kind == "regression" and distinct[0] >= 0 else ""
    return kind, f"The target holds {len(distinct)} {amount}, so the task is {kind}; {override}{hint}."


def check_counts(values: np.ndarray, what: str) -> None:
    """RequestError unless all values are whole numbers of at least 0."""
    wrong = values[(values < 0) | (values != np.round(values))]
    if wrong.size:
        raise RequestError(
            f"With task counts {what} must be whole numbers of at least 0, got {wrong[0]:g}; use regression."
        )


def label_name(value: Any) -> str:
    """How a label or client id is written: whole numbers without a point, booleans as true / false."""
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return str(value)


def encode_labels(values: np.ndarray) -> tuple[tuple[str, ...], np.ndarray]:
    """Sorted distinct labels by name, and each entry's number (int32). Numbers sort as numbers."""
    distinct, codes = np.unique(values, return_inverse=True)
    return tuple(label_name(value) for value in distinct), codes.reshape(values.shape).astype(np.int32)


def refuse_one_hot(targets: np.ndarray, classes: int | None) -> None:
    """RequestError for rows that hold one 1 among zeros: as numbers to fit they would pass without a word.

    With a known number of classes rows of another length are sequences.
    """
    if targets.ndim != 2 or targets.dtype.kind not in "biuf" or classes not in (None, targets.shape[1]):
        return
    if targets.shape[1] > 1 and ((targets == 0) | (targets == 1)).all() and (targets.sum(axis=1) == 1).all():
        raise RequestError(
            f"Targets of a classification must be one class number per row, got one-hot rows of {targets.shape[1]}; "
            f"give targets.argmax(axis=1), or set task to 'regression' to fit {targets.shape[1]} numbers."
        )


def label_doubts(
    values: np.ndarray, names: tuple[str, ...], codes: np.ndarray, whose: Callable[[int], str]
) -> list[str]:
    """Sentences about labels that look like slips; `names` and `codes` are those of `encode_labels`."""
    doubts = []
    # -1 against 1 is a usual pair of classes
    doubtful = values.dtype.kind in "if" and set(names) != {"-1", "1"}
    negative = len(np.unique(values[values < 0])) if doubtful else 0
    if negative:
        others = f", and {negative - 1} other negative labels likewise" if negative > 1 else ""
        row = int(np.argwhere(codes == 0)[0][0])
        doubts.append(
            f"The label {names[0]} of {whose(row)} was taken for a class of its own{others}; correct a slip, "
            "and say how many classes there are (data.settings.classes of an npz file), which refuses negative labels."
        )
    counts = np.bincount(codes) if codes.ndim == 1 else np.zeros(0)
    single = [code for code in np.flatnonzero(counts == 1) if code >= negative]  # negative labels sort first
    if single:
        others = f", and so have {len(single) - 1} other classes" if len(single) > 1 else ""
        row = int(np.flatnonzero(codes == single[0])[0])
        doubts.append(
            f"The class {names[single[0]]!r} has a single row, of {whose(row)}{others}; correct its label if it is a "
            "slip."
        )
    return doubts
