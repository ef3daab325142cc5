# SPDX-License-Identifier: Apache-2.0
"""Many clients: a few models that all clients judge sort them into blocks, which are looked at closely."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.cluster import KMeans

from idiolect.collaborate.excess import judging, noise_scale
from idiolect.collaborate.exchange import Exchange
from idiolect.collaborate.quadratic import FEW_COEFFICIENTS, Sample, common_model, expand, quick_models, score
from idiolect.collaborate.weights import exchange_of, learn_weights
from idiolect.core.checks import RequestError
from idiolect.core.keys import Purpose, host_generator

LEAST_SHARE = 1e-3  # kept in the lists of neighbours
SEED = 0  # of landmarks and clusters: the same rows are always sorted alike


class Neighbourhoods(NamedTuple):
    """Lambda in lists: client i gives `shares[i]` to the clients `members[i]`; every list sums to one."""

    members: list[np.ndarray]
    shares: list[np.ndarray]
    blocks: list[np.ndarray]  # the clients that were compared with one another
    exchange: Exchange  # its `pairs` is the number of ordered pairs that were evaluated

    def dense(self) -> np.ndarray:
        """(clients, clients)."""
        matrix = np.zeros((len(self.members), len(self.members)))
        for agent, (members, shares) in enumerate(zip(self.members, self.shares)):
            matrix[agent, members] = shares
        return matrix


def learn_in_blocks(sample: Sample, penalty: float = 0.0, block: int = 100, landmarks: int = 16) -> Neighbourhoods:
    """Lambda with N x landmarks + N x block judgements in place of N^2; shares below LEAST_SHARE are dropped.

    1. Sample: a few models (landmarks) are judged by all clients. 2. Cluster: clients whose rows judge them alike are
    sorted into blocks of at most `block`. 3. Refine: `learn_weights` inside every block.
    """
    blocks, exchange = split_into_blocks(sample, penalty, block, landmarks)
    found = []
    for members in blocks:
        part = sample.some_agents(members)
        found.append((members, learn_weights(part, penalty).shares))
        exchange = exchange + exchange_of(part)
    return listed(found, sample.agents, exchange, LEAST_SHARE)


def split_into_blocks(
    sample: Sample, penalty: float, block: int = 100, landmarks: int = 16
) -> tuple[list[np.ndarray], Exchange]:
    """Clients that are alike, at most `block` together, and what finding them has cost."""
    if block < 2 or landmarks < 1:
        raise RequestError(f"block must be at least 2 and landmarks at least 1, got {block} and {landmarks}.")
    if sample.agents <= block:
        return [np.arange(sample.agents)], Exchange()
    signatures, exchange = _signatures(sample, penalty, min(landmarks, sample.agents))
    return _sorted(_spread_over(signatures, sample.counts > 0), block), exchange


def _spread_over(signatures: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Clients without a row, which are like no other, spread evenly over the others: no block is to be theirs alone."""
    if known.all() or not known.any():
        return signatures
    found, lent = signatures.copy(), np.flatnonzero(known)
    found[~known] = signatures[lent[np.arange((~known).sum()) * len(lent) // (~known).sum()]]
    return found


def _signatures(sample: Sample, penalty: float, landmarks: int) -> tuple[np.ndarray, Exchange]:
    """(clients, landmarks): root of the nats that a client's rows hold against every landmark's model."""
    draws = host_generator(SEED, Purpose.PARTITION, sample.agents)
    chosen = np.sort(draws.choice(sample.agents, landmarks, replace=False))
    few = sample.some_agents(chosen)
    common = common_model(few, penalty)
    models = quick_models(few, expand(few, common), np.eye(few.agents), penalty)
    losses = sample.means(score(sample, models))
    refits = _REFITS if sample.size <= FEW_COEFFICIENTS else 0
    for _ in range(refits):  # one client's few rows make a poor landmark: the clients it serves best refit it
        models = _refit(sample, penalty, losses.argmin(axis=1), models)
        losses = sample.means(score(sample, models))
    least = losses.min(axis=1)
    # in nats, and its root: excess grows with the square of a distance, and k-means compares distances
    scale = noise_scale(sample, least[sample.owner])
    # per row, not per client: clients of different size shall not be sorted by their size
    judged = judging(sample, landmarks, sample.agents * landmarks)
    return np.sqrt((losses - least[:, None]) / scale[:, None]), judged.times(1 + refits)


def _refit(sample: Sample, penalty: float, nearest: np.ndarray, models: np.ndarray) -> np.ndarray:
    """Every landmark's model on the rows of the clients that are nearest to it; one without clients stays."""
    _, groups = sample.grouped(nearest[sample.owner], len(models))
    found = groups.optima(sample.ridge(penalty), models)
    return np.where((np.diff(groups.starts) > 0)[:, None], found, models)


def _sorted(signatures: np.ndarray, block: int) -> list[np.ndarray]:
    """Blocks of at most `block` clients (never a single one), clusters of like clients kept together."""
    agents = len(signatures)
    seen = signatures
    if agents > _MOST_CLUSTERED:
        draws = host_generator(SEED, Purpose.PARTITION, agents, 1)
        seen = signatures[np.sort(draws.choice(agents, _MOST_CLUSTERED, replace=False))]
    # about two clusters to a block: a block that must be cut is cut between two of them
    clusters = min(max(2, 2 * agents // block), _MOST_CLUSTERS, len(np.unique(seen, axis=0)))
    found = KMeans(clusters, n_init=1, random_state=SEED).fit(seen)
    label = found.labels_ if seen is signatures else found.predict(signatures)
    # neighbouring clusters stand side by side along the line of largest spread, and clients along it inside them
    middle = found.cluster_centers_.mean(axis=0)
    direction = np.linalg.svd(found.cluster_centers_ - middle, full_matrices=False)[2][0]
    line = (found.cluster_centers_ - middle) @ direction
    order = np.lexsort(((signatures - middle) @ direction, np.argsort(np.argsort(line))[label]))
    amount = -(-agents // block)
    return [np.sort(part) for part in np.array_split(order, amount)]


_REFITS = 3
_MOST_CLUSTERED = 20_000  # clients among which clusters are looked for; the others join the nearest
_MOST_CLUSTERS = 64


def listed(
    found: list[tuple[np.ndarray, np.ndarray]], agents: int, exchange: Exchange, least: float = 0.0
) -> Neighbourhoods:
    """Matrices of blocks, (members, shares) each, as lists; shares below `least` are dropped."""
    members: list[np.ndarray] = [np.zeros(0, np.int64)] * agents
    shares: list[np.ndarray] = [np.zeros(0)] * agents
    for inside, matrix in found:
        for place, agent in enumerate(inside):
            row = matrix[place]
            kept = (row >= least) | (inside == agent)
            members[agent], shares[agent] = inside[kept], row[kept] / row[kept].sum()
    return Neighbourhoods(members, shares, [inside for inside, _ in found], exchange)
