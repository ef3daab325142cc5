# SPDX-License-Identifier: Apache-2.0
"""Rows that a plain loss would not understand: indexing and one-hot codes would take them without a word."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from idiolect.core.checks import RequestError
from idiolect.core.data import Rows
from idiolect.models import Model
from idiolect.objectives.client_loss import CRITERIA, ClientLoss


def check_rows(client_loss: ClientLoss, rows: Rows, names: Sequence[str]) -> None:
    """RequestError where inputs do not fit the model, or tokens or labels are none of those it knows."""
    if not len(rows.targets):
        return
    model, criterion = client_loss.model, client_loss.criterion
    if model.reads_tokens:
        _check_tokens(type(model).__name__, model.input_width, rows, names)
    outputs = _outputs(model, rows.inputs.shape[1:], _kind(rows.inputs))
    numbers = criterion not in ("cross_entropy", "logistic")
    kind = _kind(rows.targets) if numbers else jnp.int32  # what they are is looked at below
    target = jax.ShapeDtypeStruct((1, *rows.targets.shape[1:]), kind)
    jax.eval_shape(CRITERIA[criterion], outputs, target)  # refuses shapes that do not fit each other
    if criterion == "poisson":
        _check_counts(rows, names)
    elif not numbers:
        _check_labels(outputs.shape[-1] if criterion == "cross_entropy" else 2, model.reads_tokens, rows, names)


def _check_counts(rows: Rows, names: Sequence[str]) -> None:
    row = int(np.argmin(rows.targets))
    if rows.targets.min() < 0:
        raise RequestError(
            f"Counts must be at least 0, but client {_owner(rows, names, row)!r} has {rows.targets[row]:g}; use the "
            "task regression."
        )


def _check_labels(classes: int, tokens: bool, rows: Rows, names: Sequence[str]) -> None:
    """A class per row, or one per position of a sequence, -1 where there is none."""
    sequences = rows.targets.ndim > 1
    extent = (rows.targets.min(), rows.targets.max())
    found = _outside(rows.targets, extent, -1 if sequences else 0, classes)
    if found is not None:
        row, value = found
        rule = f"A label must be a class number from 0 to {classes - 1}"
        way_out = "number the classes from 0, or give the model an output for each"
        if sequences and tokens:
            rule = f"A target must be a token from 0 to {classes - 1}, or -1 for none"
            way_out = "give the model an output for each token of the vocabulary"
        raise RequestError(f"{rule}, but client {_owner(rows, names, row)!r} has {value:g}; {way_out}.")
    bare = (rows.targets < 0).all(axis=tuple(range(1, rows.targets.ndim))) if sequences else np.zeros(1)
    if bare.any():
        owner = _owner(rows, names, int(np.argmax(bare)))
        raise RequestError(
            f"A sequence needs a target at one position at least, but client {owner!r} has one with -1 at all of them; "
            "leave it out."
        )


def _check_tokens(model: str, vocabulary: int, rows: Rows, names: Sequence[str]) -> None:
    if rows.inputs.dtype.kind not in "iu":
        raise RequestError(
            f"{model} reads tokens, whole numbers from 0 to {vocabulary - 1}, got inputs of type {rows.inputs.dtype}; "
            "make the federation with tokens=True, or in a spec set data.settings.vocabulary."
        )
    found = _outside(rows.inputs, rows.extent, 0, vocabulary)
    if found is not None:
        row, value = found
        raise RequestError(
            f"{model} knows the tokens 0 to {vocabulary - 1}, but client {_owner(rows, names, row)!r} has {value:g}; "
            "give it the vocabulary of all clients, also of those held out."
        )
    length, targets = rows.inputs.shape[1], rows.targets.shape[1:2] or rows.inputs.shape[1:2]
    if targets != (length,):
        raise RequestError(
            f"A text needs as many targets as tokens, got {length} tokens and {targets[0]} targets per row; "
            "cut or fill both to one length, with -1 where there is no target."
        )


@functools.lru_cache(maxsize=256)
def _outputs(model: Model, inputs: tuple[int, ...], kind: Any) -> jax.ShapeDtypeStruct:
    """The shape of the model's answer to one row."""
    # by shapes alone: nothing is computed, however large the model
    params = jax.eval_shape(lambda: model.init(jax.random.key(0)))
    try:
        return jax.eval_shape(model.apply, params, jax.ShapeDtypeStruct((1, *inputs), kind))
    except RequestError:
        raise
    except Exception as error:  # a user's model may raise anything
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise RequestError(
            f"{type(model).__name__} does not take inputs of shape {inputs} ({reason}); make it for these, or bring "
            "the inputs to its shape."
        ) from error


def _kind(values: np.ndarray) -> Any:
    return jnp.result_type(float) if values.dtype.kind == "f" else jnp.int32


def _outside(values: np.ndarray, extent: tuple[float, ...], lowest: int, end: int) -> tuple[int, float] | None:
    """Row and value of the first number that is not one of lowest, ..., end - 1; None where all are."""
    # nearly always all is well, and nothing need be searched
    whole = values.dtype.kind in "iub" or bool((values == np.round(values)).all())
    if whole and extent[0] >= lowest and extent[1] < end:
        return None
    wrong = (values < lowest) | (values >= end) | (values != np.round(values))
    place = np.argwhere(wrong)[0]
    return int(place[0]), float(values[tuple(place)])


def _owner(rows: Rows, names: Sequence[str], row: int) -> str:
    return str(names[int(np.searchsorted(rows.offsets, row, side="right")) - 1])
