# SPDX-License-Identifier: Apache-2.0
"""Who listens to whom: a row-stochastic Lambda, kept as lists of neighbours, and its products Lambda v and Lambda^T v.

`Neighbours` has slot-major lists: slot k of client i listens to client `indices[k, i]` with weight `weights[k, i]`; the
transposed lists name the clients that listen to i, so that Lambda^T v is a gather too. Padding points at the client
itself with weight 0. Where a matrix has hardly a zero, `weights` is the matrix and the lists are empty tuples. W =
Lambda Lambda^T is never formed: apply `mix_back`, then `mix`.

Measured, 10,000 clients with 50 neighbours and 50 numbers each, two cores: adding one slot at a time 4 ms, (N, K) lists
10 ms, all slots at once or a segment sum 90 to 110 ms, the matrix 180 ms; lists win up to about N/4 neighbours.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from numpy.typing import ArrayLike as Given

from idiolect.core.checks import RequestError
from idiolect.core.data import Array
from idiolect.core.tree import Tree

_UNROLL = 5  # slots per trip of the loop
_DENSE_SHARE = 4  # lists of more than N/4 slots are slower than the matrix
_ROUNDING = 1e-5  # how far a row of float32 weights may be from 1


class Neighbours(NamedTuple):
    """Lambda, row-stochastic: client i listens to j with weight lambda_ij."""

    indices: Array  # (K, N) whom client i listens to; () where `weights` is the matrix
    weights: Array  # (K, N) how much, 0 for padding; or Lambda itself, (N, N)
    listeners: Array = ()  # (K', N) who listens to client i
    listener_weights: Array = ()  # (K', N) how much they do

    @property
    def agents(self) -> int:
        """N."""
        return int(self.weights.shape[-1])

    @property
    def is_dense(self) -> bool:
        """Whether the matrix itself is kept."""
        return isinstance(self.indices, tuple)


class Discrepancies(NamedTuple):
    """b_ij, in lists like `Neighbours`; pairs that are not listed are never close. Padding is not-a-number."""

    indices: Array  # (K, N), or ()
    values: Array  # (K, N) b of the pair, or the matrix b, (N, N)
    listeners: Array = ()  # (K', N)
    listener_values: Array = ()  # (K', N)

    @property
    def agents(self) -> int:
        """N."""
        return int(self.values.shape[-1])


class Phases(NamedTuple):
    """How accuracies and steps change over the rounds, one entry per phase; the last one has no end."""

    accuracy: Array  # eps_q: who is at most eps_q/2 away is listened to
    step_size: Array  # eta_q
    end: Array  # the first round of the next phase, ascending whole numbers


def misses_agents(name: str, told: Neighbours | Discrepancies | None, clients: int) -> str | None:
    """Why a table with a row per client does not fit the number of clients (0: not known yet), or None."""
    if told is None or not clients or told.agents == clients:
        return None
    return f"it needs the {name} of all {clients} clients, got those of {told.agents}"


def mix(neighbours: Neighbours, tree: Tree) -> Tree:
    """Lambda v for every leaf v, whose leading axis is clients: the weighted mean of what client i listens to."""
    return _product(neighbours.indices, neighbours.weights, tree)


def mix_back(neighbours: Neighbours, tree: Tree) -> Tree:
    """Lambda^T v for every leaf v: what client i's listeners hold, by how much they listen to it."""
    weights = neighbours.weights.T if neighbours.is_dense else neighbours.listener_weights
    return _product(neighbours.listeners, weights, tree)


def within(discrepancies: Discrepancies, accuracy: ArrayLike) -> Neighbours:
    """lambda_ij = 1{b_ij <= eps/2}/N_i, inside a compiled program; every client must be listed with itself."""
    limit = accuracy / 2
    close = (discrepancies.values <= limit).astype(discrepancies.values.dtype)  # not-a-number never is
    if isinstance(discrepancies.indices, tuple):
        return Neighbours((), close / jnp.sum(close, axis=1, keepdims=True))
    # never a division by 0: a client is at distance 0 from itself
    share = 1 / jnp.sum(close, axis=0)
    theirs = (discrepancies.listener_values <= limit).astype(close.dtype) * share[discrepancies.listeners]
    return Neighbours(discrepancies.indices, close * share[None], discrepancies.listeners, theirs)


def from_dense(matrix: Given, dense: bool | None = None) -> Neighbours:
    """Neighbours of a row-stochastic matrix, as lists or as it is: whichever is faster, unless told."""
    values = check_weights(matrix)
    listener, source = np.nonzero(values)
    slots = max(np.bincount(listener, minlength=len(values)).max(), np.bincount(source).max())
    if dense or (dense is None and slots * _DENSE_SHARE > len(values)):
        return Neighbours((), values)
    return from_pairs(len(values), listener, source, values[listener, source])


def from_pairs(agents: int, listener: Given, source: Given, weights: Given) -> Neighbours:
    """Neighbours from pairs (i, j) with lambda_ij, without ever making a matrix; lists whatever their length."""
    listener, source, values = _check_pairs(agents, listener, source, weights)
    _check_rows(values.min(initial=0.0), np.bincount(listener, values, agents))
    heard = values > 0
    return Neighbours(*_lists(agents, listener[heard], source[heard], values[heard], 0.0))


def discrepancies_from_dense(matrix: Given, dense: bool | None = None, largest: float = np.inf) -> Discrepancies:
    """b as a matrix or, where few pairs are at most `largest` apart, as lists; the diagonal must be 0."""
    values = np.asarray(matrix, np.float64)
    listener, source = np.nonzero(values <= largest)
    slots = np.bincount(listener, minlength=len(values)).max()
    if dense or (dense is None and slots * _DENSE_SHARE > len(values)):
        return Discrepancies((), values)
    return discrepancies_from_pairs(len(values), listener, source, values[listener, source])


def discrepancies_from_pairs(agents: int, listener: Given, source: Given, values: Given) -> Discrepancies:
    """b in lists from pairs (i, j) with b_ij; clients that are not paired with themselves are, with 0."""
    listener, source, numbers = _check_pairs(agents, listener, source, values)
    alone = np.setdiff1d(np.arange(agents), listener[listener == source])
    listener, source = np.concatenate([listener, alone]), np.concatenate([source, alone])
    return Discrepancies(*_lists(agents, listener, source, np.append(numbers, np.zeros(len(alone))), np.nan))


def dense(neighbours: Neighbours) -> np.ndarray:
    """Lambda as a matrix, on the host."""
    weights = np.asarray(neighbours.weights, np.float64)
    if neighbours.is_dense:
        return weights
    matrix = np.zeros((neighbours.agents, neighbours.agents))
    np.add.at(matrix, (np.arange(neighbours.agents)[None], np.asarray(neighbours.indices)), weights)
    return matrix


def counts(neighbours: Neighbours) -> np.ndarray:
    """N_i: how many clients each one listens to, itself included where it does."""
    weights = np.asarray(neighbours.weights)
    return (weights > 0).sum(axis=1 if neighbours.is_dense else 0)


def reach(neighbours: Neighbours) -> np.ndarray:
    """deg(W)_j: how many clients use j's gradient, itself included; W_ij > 0 where i and j listen to one alike."""
    if neighbours.is_dense:
        # in floats, whose products are BLAS; counts of up to 2^24 clients are exact in them
        positive = (np.asarray(neighbours.weights) > 0).astype(np.float32)
        return (positive @ positive.T > 0).sum(axis=0)
    heard, used = np.asarray(neighbours.indices), np.asarray(neighbours.weights) > 0
    hearing, counted = np.asarray(neighbours.listeners), np.asarray(neighbours.listener_weights) > 0
    found = np.empty(neighbours.agents, np.int64)
    for agent in range(neighbours.agents):  # row by row: the pairs of W need not fit in memory
        through = heard[used[:, agent], agent]
        found[agent] = len(np.unique(hearing[:, through][counted[:, through]]))
    return found


def check_weights(matrix: Given) -> np.ndarray:
    """A square matrix of weights whose rows sum to one, in float64, or RequestError."""
    values = np.asarray(matrix, np.float64)
    if values.ndim != 2 or values.shape[0] != values.shape[1] or not values.size:
        raise RequestError(f"Lambda must be a square matrix, one row per client, got shape {values.shape}.")
    _check_rows(values.min(), values.sum(axis=1))
    return values


def _check_rows(least: float, sums: np.ndarray) -> None:
    if not least >= 0:
        raise RequestError(f"Weights of neighbours must be at least 0, got {least:g}; set it to 0.")
    wrong = np.flatnonzero(~(np.abs(sums - 1) <= _ROUNDING))
    if wrong.size:
        row, total = int(wrong[0]), float(sums[wrong[0]])
        way_out = "let a client without neighbours listen to itself" if total == 0 else "divide it by its sum"
        raise RequestError(f"Every row of Lambda must sum to 1, row {row} sums to {total:g}; {way_out}.")


def _check_pairs(agents: int, *pairs: Given) -> tuple[np.ndarray, ...]:
    """As many listeners as sources and values, or RequestError."""
    listener, source, values = map(np.asarray, pairs, (np.int64, np.int64, np.float64))
    if not listener.shape == source.shape == values.shape or listener.ndim != 1:
        shapes = f"{listener.shape}, {source.shape} and {values.shape}"
        raise RequestError(f"Pairs need as many listeners as sources and values, got {shapes}.")
    for numbers in (listener, source):
        if numbers.size and not 0 <= numbers.min() <= numbers.max() < agents:
            wrong = numbers.min() if numbers.min() < 0 else numbers.max()
            raise RequestError(f"Clients are numbered from 0 to {agents - 1}, got {wrong}.")
    # one whole number per pair; N^2 stays far below 2^63
    repeated = len(listener) - len(np.unique(listener * agents + source))
    if repeated:
        raise RequestError(f"A pair of clients may be given once, got {repeated} repeated; add them up.")
    return listener, source, values


def _lists(
    agents: int, listener: np.ndarray, source: np.ndarray, values: np.ndarray, padding: float
) -> list[np.ndarray]:
    """(slots, clients) sources and values by listener, in ascending order of the source; then listeners by source.

    Padding comes last.
    """
    found = []
    for own, other in ((listener, source), (source, listener)):
        # in one order, whatever order the pairs came in: so the sums round alike
        order = np.lexsort((other, own))
        columns = own[order]
        amounts = np.bincount(columns, minlength=agents)
        places = np.arange(len(columns)) - (np.cumsum(amounts) - amounts)[columns]
        # padding points at the client itself with weight 0: a valid place, and one whose value is at hand
        indices = np.tile(np.arange(agents, dtype=np.int32), (max(int(amounts.max(initial=0)), 1), 1))
        numbers = np.full(indices.shape, padding)
        indices[places, columns], numbers[places, columns] = other[order], values[order]
        found += [indices, numbers]
    return found


def _product(indices: Array, weights: Array, tree: Tree) -> Tree:
    """What lists, or a matrix where there are no indices, make of every leaf."""
    if isinstance(indices, tuple):
        return jax.tree.map(lambda leaf: (weights @ leaf.reshape(leaf.shape[0], -1)).reshape(leaf.shape), tree)
    return jax.tree.map(lambda leaf: _gather(indices, weights, leaf), tree)


def _gather(indices: jax.Array, weights: jax.Array, leaf: jax.Array) -> jax.Array:
    """sum_k weights[k] * leaf[indices[k]], slot by slot: (slots, clients, ...) is never there at once."""
    column = (-1, *(1,) * (leaf.ndim - 1))

    def add(total: jax.Array, slot: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        whom, how_much = slot
        return total + how_much.reshape(column) * leaf.at[whom].get(mode="promise_in_bounds"), None

    total = jnp.zeros_like(leaf)
    if any(isinstance(part, jax.core.Tracer) for part in (indices, weights, leaf)):
        return jax.lax.scan(add, total, (indices, weights), unroll=_UNROLL)[0]
    for slot in zip(indices, weights):  # the debug engine compiles nothing
        total, _ = add(total, slot)
    return total
