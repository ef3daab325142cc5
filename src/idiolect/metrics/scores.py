# SPDX-License-Identifier: Apache-2.0
"""Scores: one number per client, compiled into evaluation under `vmap` over clients.

Every score takes `(outputs, targets, mask, weights=None)` of ONE client: outputs (rows, classes) logits, or (rows,) or
(rows, k) values; targets (rows,) class indices, or values shaped like the outputs; mask (rows,). Rows whose
mask is 0 are padding and never matter, whatever they hold. A row may be a sequence: outputs (rows, time, classes),
targets (rows, time), a negative target being none; the row then counts as the mean of its positions, or for scores
that are no mean over rows (balanced accuracy, auc) as so many rows. Not-a-number means *this client has no such score*
(no row, one class only); a model that answers not-a-number on a real row gets the score's worst value.
`weights` (rows,) say how much a row counts: weight 2 is the row twice, and a row of weight 0 is as good as padding.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp

from idiolect.core.checks import RequestError, nearest
from idiolect.core.data import Array
from idiolect.metrics.masked import divided, floating, mean_over_rows, mean_where, row_weights, worst_if_nan
from idiolect.metrics.number_scores import (
    absolute_error_rows,
    mae,
    pinball,
    pinball_rows,
    poisson_deviance,
    poisson_deviance_rows,
    r2,
    rmse,
    squared_error,
    squared_error_rows,
)

RARE_FRACTION = 0.10  # under this fraction of the rows a class is rare enough for accuracy to mislead


def correct_rows(outputs: Array, targets: Array, mask: Array) -> Array:
    """Per row: does the largest logit name the target? False on padding and on not-a-number logits.

    Of a sequence, the share of positions where it does.
    """
    right = _correct(*_classification(outputs, targets, mask))
    return right if targets.ndim == 1 else _mean_of_positions(right.astype(floating(outputs)), targets)


def correct_positions(outputs: Array, targets: Array, mask: Array) -> Array:
    """Shaped as the targets: does the largest logit name the target? False where there is none."""
    return _correct(*_classification(outputs, targets, mask)).reshape(targets.shape)


def mean_of_rows(flags: Array, targets: Array, mask: Array, weights: Array | None = None) -> Array:
    """The fraction of rows with a flag set, flags shaped as the targets; a sequence counts as its positions' mean.

    Not-a-number when no row is real.
    """
    values = flags.astype(floating(flags))
    return mean_over_rows(values if targets.ndim == 1 else _mean_of_positions(values, targets), mask, weights)


def _correct(logits: Array, classes: Array, real: Array) -> Array:
    answered = ~jnp.isnan(logits).any(axis=1)  # argmax would return the first not-a-number as the answer
    return real & answered & (jnp.argmax(logits, axis=1).astype(jnp.int32) == classes)


def _mean_of_positions(values: Array, targets: Array) -> Array:
    """(rows,) from a value per position, 0 where there is no target."""
    known = jnp.sum((targets >= 0).astype(values.dtype), axis=1)
    return jnp.sum(values.reshape(targets.shape), axis=1) / jnp.maximum(known, 1)


def log_loss_rows(outputs: Array, targets: Array, mask: Array) -> Array:
    """Per row: minus the log-probability of the target, in nats; 0 on padding."""
    logits, classes, real = _classification(outputs, targets, mask)
    losses = -jnp.take_along_axis(jax.nn.log_softmax(logits, axis=1), classes[:, None], axis=1)[:, 0]
    losses = jnp.where(real, worst_if_nan(losses), 0)
    return losses if targets.ndim == 1 else _mean_of_positions(losses, targets)


def brier_rows(outputs: Array, targets: Array, mask: Array) -> Array:
    """Per row: squared distance of the predicted probabilities from the answer, summed over classes; 0 on padding."""
    logits, classes, real = _classification(outputs, targets, mask)
    right = jax.nn.one_hot(classes, logits.shape[1], dtype=logits.dtype)
    distance = jnp.sum(jnp.square(jax.nn.softmax(logits, axis=1) - right), axis=1)
    distance = jnp.where(real, jnp.where(jnp.isnan(distance), 2, distance), 0)
    return distance if targets.ndim == 1 else _mean_of_positions(distance, targets)


def accuracy(outputs: Array, targets: Array, mask: Array, weights: Array | None = None) -> Array:
    """Fraction of rows whose largest logit is the target's."""
    correct = correct_rows(outputs, targets, mask)
    return mean_over_rows(correct.astype(floating(outputs)), mask, weights)


def log_loss(outputs: Array, targets: Array, mask: Array, weights: Array | None = None) -> Array:
    """Mean over rows of minus the log-probability of the target, in nats."""
    return mean_over_rows(log_loss_rows(outputs, targets, mask), mask, weights)


def brier(outputs: Array, targets: Array, mask: Array, weights: Array | None = None) -> Array:
    """Mean over rows of the squared error of the predicted probabilities, summed over classes: 0 to 2."""
    return mean_over_rows(brier_rows(outputs, targets, mask), mask, weights)


def balanced_accuracy(outputs: Array, targets: Array, mask: Array, weights: Array | None = None) -> Array:
    """Mean recall over the classes present in the client's rows."""
    logits, classes, real = _classification(outputs, targets, mask)
    correct = _correct(logits, classes, real)
    nothing = jnp.zeros(logits.shape[1], logits.dtype)
    counted, right = real.astype(logits.dtype), correct.astype(logits.dtype)
    if weights is not None:
        counted = row_weights(real, _of_positions(weights, targets), logits.dtype)
        right = right * counted
    # A target outside the classes is dropped here and in `auc`; `accuracy` counts it as wrong.
    rows = nothing.at[classes].add(counted, mode="drop")
    hits = nothing.at[classes].add(right, mode="drop")
    present = rows > 0
    return mean_where(hits / jnp.where(present, rows, 1), present)


def _of_positions(weights: Array, targets: Array) -> Array:
    """Weights of rows as those of every position, where rows are sequences."""
    return weights if targets.ndim == 1 else jnp.repeat(weights, targets.shape[1])


def auc(outputs: Array, targets: Array, mask: Array, weights: Array | None = None) -> Array:
    """Area under the ROC curve: P(a positive row outranks a negative one), ties counting one half.

    Two classes: rows are ranked by the logit difference z_1 - z_0. More: the mean over classes c that are
    present (and not alone) of c against the rest, ranked by the log-odds z_c - log sum_{j != c} exp z_j.
    """
    logits, classes, real = _classification(outputs, targets, mask)
    real &= classes < logits.shape[1]
    counted = None if weights is None else row_weights(real, _of_positions(weights, targets), logits.dtype)

    def area(ranks: Array, positive: Array) -> Array:
        # A row without an answer loses every comparison it is in.
        ranks = jnp.where(jnp.isnan(ranks), jnp.where(positive, -jnp.inf, jnp.inf), ranks)
        ranks = jnp.where(ranks == 0, 0, ranks)  # -0.0 and 0.0 are one value, hence one rank
        if counted is not None:
            return _weighted_rank_area(ranks, positive, counted)
        return _rank_area(ranks, positive, real)

    if logits.shape[1] == 2:
        return area(logits[:, 1] - logits[:, 0], classes == 1)

    def one_against_rest(label: Array) -> Array:
        others = jnp.where(jnp.arange(logits.shape[1]) == label, -jnp.inf, logits)
        odds = jnp.take(logits, label, axis=1) - jax.nn.logsumexp(others, axis=1)
        return area(odds, classes == label)

    # `map`, not `vmap`: classes x classes x rows would not fit for large vocabularies.
    areas = jax.lax.map(one_against_rest, jnp.arange(logits.shape[1], dtype=jnp.int32))
    return mean_where(areas, ~jnp.isnan(areas))


def _rank_area(ranks: Array, positive: Array, real: Array) -> Array:
    """Mann-Whitney U / (positives x negatives), exact for up to half a million rows."""
    positive, negative = real & positive, real & ~positive
    negatives, positives = jnp.sum(negative, dtype=jnp.int32), jnp.sum(positive, dtype=jnp.int32)
    ordered = jnp.sort(jnp.where(negative, ranks, jnp.inf))  # the negatives first, then only infinities
    below = jnp.searchsorted(ordered, ranks, side="left").astype(jnp.int32)
    up_to = jnp.searchsorted(ordered, ranks, side="right").astype(jnp.int32)
    wins = jnp.where(positive, jnp.minimum(below, negatives) + jnp.minimum(up_to, negatives), 0)  # in halves
    # Summed in two integer parts: a float32 total is inexact past 2^24, a plain int32 total overflows.
    high, low = jnp.sum(wins >> 12, dtype=jnp.int32), jnp.sum(wins & 4095, dtype=jnp.int32)
    total = high.astype(ranks.dtype) * 4096 + low.astype(ranks.dtype)
    pairs = negatives.astype(ranks.dtype) * positives.astype(ranks.dtype)
    return jnp.where(pairs > 0, total / (2 * jnp.maximum(pairs, 1)), jnp.nan)


def _weighted_rank_area(ranks: Array, positive: Array, weights: Array) -> Array:
    """sum of w_i w_j over pairs that are in order, ties by half, over that of all pairs; rows of weight 0 are none."""
    wins, losses = jnp.where(positive, weights, 0), jnp.where(positive, 0, weights)
    order = jnp.argsort(ranks)
    # of the first k ranks the weight of the negatives, k = 0, 1, ...
    passed = jnp.concatenate([jnp.zeros(1, weights.dtype), jnp.cumsum(losses[order])])
    below, up_to = (passed[jnp.searchsorted(ranks[order], ranks, side=side)] for side in ("left", "right"))
    return divided(jnp.sum(wins * (below + up_to)), 2 * jnp.sum(wins) * jnp.sum(losses))


def _classification(outputs: Array, targets: Array, mask: Array) -> tuple[Array, Array, Array]:
    """Logits, class indices and mask, with padding replaced by zeros so that nothing in it can spread.

    Positions of sequences become rows, and one without a target is padding.
    """
    if targets.ndim == 2 and outputs.ndim == 3:
        mask = mask.astype(bool)[:, None] & (targets >= 0)
        outputs, targets, mask = outputs.reshape(-1, outputs.shape[2]), targets.reshape(-1), mask.reshape(-1)
    if outputs.ndim != 2 or outputs.shape[1] < 2:
        raise RequestError(
            f"Classification scores need logits of shape (rows, classes >= 2), got {tuple(outputs.shape)}. "
            "A single logit z is the pair of columns [0, z]."
        )
    if targets.ndim != 1 or jnp.issubdtype(targets.dtype, jnp.inexact):
        raise RequestError(
            f"Classification scores need integer class indices of shape (rows,), got {targets.dtype} "
            f"of shape {tuple(targets.shape)}. Number the classes from 0."
        )
    real = mask.astype(bool)
    logits = jnp.where(real[:, None], outputs.astype(floating(outputs)), 0)
    classes = targets.astype(jnp.int32)
    # Indices count from the end when negative: a label -1 must not pass for the last class.
    classes = jnp.where(classes < 0, logits.shape[1], classes)
    return logits, jnp.where(real, classes, 0), real


@dataclasses.dataclass(frozen=True)
class Score:
    """A score and how to read it; where `per_row` is given, the score is its mean over the client's rows."""

    function: Callable[..., Array]  # of outputs, targets, mask and, where rows have some, weights
    higher_is_better: bool
    task: str  # "classification", "regression" or "counts"
    unit: str
    format: str  # a format specification, for tables
    per_row: Callable[[Array, Array, Array], Array] | None = None
    bound: float | None = None  # of what one row decides wholly or not at all: the most it can differ by
    power: int = 0  # how the score grows with the target's unit

    def fits(self, task_kind: str) -> bool:
        """Whether it can be asked of such a task; errors of numbers are also those of predicted rates of counts."""
        return self.task == task_kind or (self.task, task_kind) == ("regression", "counts")

    @property
    def limits(self) -> tuple[float, float]:
        """The least and the most that it can be: errors and losses begin at 0, what is better higher ends at 1."""
        return (0.0 if self.bound is not None or not self.higher_is_better else -math.inf), (
            1.0 if self.higher_is_better else math.inf
        )

    def show(self, value: float) -> str:
        """The value as a person reads it; 'none' for a client without this score."""
        return "none" if math.isnan(value) else format(value, self.format)


@functools.cache
def _pinball(percent: int) -> Score:
    rows = pinball_rows(percent)
    return Score(pinball(percent), False, "regression", "target units", ".4g", rows, power=1)


_PINBALL = re.compile(r"pinball_([1-9][0-9]?)")


class _Scores(dict[str, Score]):
    """Scores by name; pinball_1 to pinball_99 are made when asked for."""

    def __missing__(self, name: str) -> Score:
        found = _PINBALL.fullmatch(name)
        if found is None:
            raise KeyError(name)
        return _pinball(int(found[1]))


SCORES: dict[str, Score] = _Scores(
    accuracy=Score(accuracy, True, "classification", "fraction of rows", ".1%", correct_rows, bound=1),
    balanced_accuracy=Score(balanced_accuracy, True, "classification", "mean recall", ".1%", bound=1),
    auc=Score(auc, True, "classification", "probability", ".3f", bound=1),
    log_loss=Score(log_loss, False, "classification", "nats", ".4f", log_loss_rows),
    brier=Score(brier, False, "classification", "squared probability", ".4f", brier_rows),
    squared_error=Score(squared_error, False, "regression", "squared target units", ".4g", squared_error_rows, power=2),
    mae=Score(mae, False, "regression", "target units", ".4g", absolute_error_rows, power=1),
    rmse=Score(rmse, False, "regression", "target units", ".4g", power=1),
    r2=Score(r2, True, "regression", "fraction of variance", ".3f"),
    pinball_90=_pinball(90),
    poisson_deviance=Score(poisson_deviance, False, "counts", "target units", ".4g", poisson_deviance_rows, power=1),
)


def find_score(name: str, task_kind: str | None = None) -> Score:
    """The score of that name; refused when unknown or when it belongs to another kind of task."""
    try:
        score = SCORES[name]
    except KeyError:
        if name.startswith("pinball_"):
            raise RequestError(
                f"Score pinball_N needs a whole percent N from 1 to 99, got {name!r}; pinball_50 scores medians."
            ) from None
        raise RequestError(f"There is no score {name!r}.{nearest(name, SCORES)}") from None
    if task_kind is not None and not score.fits(task_kind):
        fitting = ", ".join(known for known, other in SCORES.items() if other.fits(task_kind))
        raise RequestError(f"Score {name} is for {score.task}, and the task is {task_kind}. Use one of: {fitting}.")
    return score


PROPER = {"classification": "log_loss", "regression": "squared_error", "counts": "poisson_deviance"}


def proper_score(task_kind: str, quantile: float | None = None) -> str:
    """The score whose best value only the true distribution reaches: what rounds and steps are chosen by.

    `quantile` is that of a model trained by the pinball loss.
    """
    if task_kind not in PROPER:
        raise RequestError(f"task_kind must be one of {', '.join(PROPER)}, got {task_kind!r}.")
    return PROPER[task_kind] if quantile is None else f"pinball_{round(100 * quantile)}"


def _class_shares(class_fractions: Iterable[float] | None) -> list[float]:
    """Those of the classes that occur, or RequestError."""
    fractions = () if class_fractions is None else class_fractions
    shares = [float(share) for share in fractions if share != 0]
    if not shares or min(shares) < 0 or not math.isclose(sum(shares), 1, abs_tol=1e-3):
        raise RequestError(
            f"class_fractions must be fractions of the rows that sum to 1, got {class_fractions}. "
            "Divide each class's number of rows by all rows."
        )
    return shares


_OF_NUMBERS = {"regression": "a number", "counts": "a count"}


def default_score(task_kind: str, class_fractions: Iterable[float] | None = None) -> tuple[str, str]:
    """The score to use when none was asked for, and one sentence for the user that says which and why.

    Accuracy, unless the rarest class that occurs holds under 10 % of all rows and under half of an even share
    (ten even classes are not imbalanced): then `auc` for two classes, `balanced_accuracy` for more.
    """
    name = proper_score(task_kind)
    if task_kind in _OF_NUMBERS:
        return name, f"Scored by {name} (mean over rows, lower is better): the target is {_OF_NUMBERS[task_kind]}."
    shares = _class_shares(class_fractions)
    rarest, commonest, classes = min(shares), max(shares), len(shares)
    if classes == 1 or rarest >= min(RARE_FRACTION, 0.5 / classes):
        balance = f"the rarest of {classes} classes holds {rarest:.1%} of the rows" if classes > 1 else "one class only"
        return "accuracy", f"Scored by accuracy (higher is better): {balance}."
    name = "auc" if classes == 2 else "balanced_accuracy"
    return name, (
        f"Scored by {name} (higher is better), not accuracy: the rarest of {classes} classes holds "
        f"{rarest:.1%} of the rows, and always answering the commonest would already be "
        f"{commonest:.1%} accurate."
    )
