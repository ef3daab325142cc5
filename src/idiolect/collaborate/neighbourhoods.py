# SPDX-License-Identifier: Apache-2.0
"""From discrepancies b_ij and an accuracy eps to who listens to whom; on the host, checked, in NumPy.

b_ij >= f_i(x*_j) - f_i(x*_i): how much worse j's best model is for client i. lambda_ij = 1{b_ij <= eps/2}/N_i with
N_i = #{j : b_ij <= eps/2}, `<=` in both (theorem 2 of All-for-all 2022 prints `<` in one, E004-7). Every client is
close to itself: one without neighbours listens to itself.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from idiolect.core import mixing
from idiolect.core.checks import RequestError
from idiolect.core.mixing import Discrepancies, Neighbours

ASYMMETRIC = ("refuse", "keep", "larger")
_ROUNDING = 1e-6  # of the largest entry: how far b_ij and b_ji may differ unremarked


def neighbourhood_weights(discrepancy: ArrayLike, accuracy: float, *, asymmetric: str = "refuse") -> np.ndarray:
    """Lambda for a target accuracy eps, (N, N)."""
    b = check_discrepancy(discrepancy, asymmetric)
    close = b <= check_accuracy(accuracy) / 2
    return close / close.sum(axis=1, keepdims=True)


def neighbourhoods(discrepancy: ArrayLike, accuracy: float, *, asymmetric: str = "refuse") -> Neighbours:
    """`neighbourhood_weights` as lists, or as a matrix where that is faster."""
    return mixing.from_dense(neighbourhood_weights(discrepancy, accuracy, asymmetric=asymmetric))


def neighbourhoods_from_pairs(
    agents: int, first: ArrayLike, second: ArrayLike, values: ArrayLike, accuracy: float
) -> Neighbours:
    """The same from unordered pairs {i, j} with b_ij = b_ji, each given once; pairs not given are far apart.

    No N x N matrix is ever made.
    """
    own, other, b = _both_ways(agents, first, second, values)
    close = b <= check_accuracy(accuracy) / 2
    # each client is among its own pairs, so no count is 0
    number = np.bincount(own[close], minlength=agents)
    return mixing.from_pairs(agents, own[close], other[close], 1 / number[own[close]])


def discrepancies(discrepancy: ArrayLike, *, asymmetric: str = "refuse", largest: float = np.inf) -> Discrepancies:
    """b in the form that the time-adaptive algorithm carries; pairs further apart than `largest` may be dropped."""
    return mixing.discrepancies_from_dense(check_discrepancy(discrepancy, asymmetric), largest=largest)


def check_discrepancy(discrepancy: ArrayLike, asymmetric: str = "refuse") -> np.ndarray:
    """b as a float64 matrix with zeros on its diagonal, or RequestError.

    `asymmetric` says what becomes of b_ij != b_ji: "refuse", "keep" (f_i(x*_j) - f_i(x*_i) is asymmetric where losses
    curve differently) or "larger" of both.
    """
    b = np.array(discrepancy, np.float64)
    if asymmetric not in ASYMMETRIC:
        raise RequestError(f"asymmetric must be one of {', '.join(ASYMMETRIC)}, got {asymmetric!r}.")
    if b.ndim != 2 or b.shape[0] != b.shape[1] or not b.size:
        raise RequestError(f"Discrepancies must be a square matrix, one row per client, got shape {b.shape}.")
    if np.isnan(b).any():
        i, j = np.argwhere(np.isnan(b))[0]
        raise RequestError(f"Every discrepancy must be a number, b[{i}, {j}] is not; use inf for clients far apart.")
    if (b < 0).any():
        i, j = np.argwhere(b < 0)[0]
        raise RequestError(f"Discrepancies must be at least 0, got b[{i}, {j}] = {b[i, j]:g}; clip it at 0.")
    if np.diag(b).any():
        i = int(np.flatnonzero(np.diag(b))[0])
        raise RequestError(f"A client is at distance 0 from itself, got b[{i}, {i}] = {b[i, i]:g}; set it to 0.")
    return b if asymmetric == "keep" else _symmetric(b, asymmetric)


def _symmetric(b: np.ndarray, asymmetric: str) -> np.ndarray:
    """The larger of b_ij and b_ji; RequestError where they differ by more than rounding and `asymmetric` refuses."""
    finite = np.where(np.isfinite(b), b, 0)
    with np.errstate(invalid="ignore"):
        # two infinities differ by not-a-number, which is no smaller than anything: the second test lets them pass
        apart = ~(np.abs(b - b.T) <= _ROUNDING * finite.max()) & (b != b.T)
    if asymmetric == "refuse" and apart.any():
        i, j = np.argwhere(apart)[0]
        raise RequestError(
            f"Discrepancies must be symmetric, got b[{i}, {j}] = {b[i, j]:g} and b[{j}, {i}] = {b[j, i]:g}; take the "
            "larger of both (asymmetric = 'larger'), or keep them as they are (asymmetric = 'keep')."
        )
    return np.maximum(b, b.T)


def check_accuracy(accuracy: float) -> float:
    """eps, above 0."""
    if not accuracy > 0:
        raise RequestError(f"An accuracy must be above 0, got {accuracy:g}; it is a distance from the best loss.")
    return accuracy


def describe(neighbours: Neighbours) -> str:
    """One sentence: how many neighbours there are, and who has none."""
    number = mixing.counts(neighbours)
    alone = int((number == 1).sum())
    single = f", {alone} of {len(number)} clients to themselves alone" if alone else ""
    low, high, total = number.min(), number.max(), len(number)
    if low == high:
        return f"every client listens to {'all' if low == total else f'{low} of'} {total} clients, itself included"
    return (
        f"clients listen to {low} to {high} of {total} clients, themselves included, "
        f"{number.mean():.3g} on average{single}"
    )


def _both_ways(
    agents: int, first: ArrayLike, second: ArrayLike, values: ArrayLike
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ordered pairs from unordered ones, every client paired with itself at 0."""
    own, other, b = np.asarray(first, np.int64), np.asarray(second, np.int64), np.asarray(values, np.float64)
    if not (b >= 0).all():
        raise RequestError(f"Discrepancies must be at least 0, got {b[~(b >= 0)][0]:g}; clip it at 0.")
    itself = own == other
    if b[itself].any():
        raise RequestError(f"A client is at distance 0 from itself, got {b[itself].max():g}; leave such pairs out.")
    own, other, b = own[~itself], other[~itself], b[~itself]
    if agents < 1:
        raise RequestError(f"There must be at least one client, got {agents}.")
    everyone = np.arange(agents)
    return (
        np.concatenate([own, other, everyone]),
        np.concatenate([other, own, everyone]),
        np.concatenate([b, b, np.zeros(agents)]),
    )
