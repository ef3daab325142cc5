# SPDX-License-Identifier: Apache-2.0
"""Many agents: sample a few models that everybody judges, sort agents by what they say, look closely within blocks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.cluster import KMeans

from idiolect.collaborate.excess import Exchange, judging, noise_scale
from idiolect.collaborate.quadratic import Sample, common_model, expand, own_weights, quick_models, score
from idiolect.collaborate.weights import exchange_of, learn_weights
from idiolect.core.checks import RequestError
from idiolect.core.keys import Purpose, host_generator


class Neighbourhoods(NamedTuple):
    """Lambda in lists: agent i gives `shares[i]` to the agents `members[i]`; every list sums to one."""

    members: list[np.ndarray]
    shares: list[np.ndarray]
    blocks: list[np.ndarray]  # the agents that were compared with one another
    exchange: Exchange  # its `pairs` is the number of ordered pairs that were evaluated

    def dense(self) -> np.ndarray:
        """(agents, agents)."""
        matrix = np.zeros((len(self.members), len(self.members)))
        for agent, (members, shares) in enumerate(zip(self.members, self.shares)):
            matrix[agent, members] = shares
        return matrix


def learn_in_blocks(
    sample: Sample, penalty: float = 0.0, block: int = 100, landmarks: int = 16, seed: int = 0, least: float = 1e-3
) -> Neighbourhoods:
    """Lambda with N x landmarks + N x block judgements in place of N^2; shares below `least` are dropped.

    1. Sample: a few agents' models (landmarks) are judged by everybody. 2. Cluster: agents whose rows judge them
    alike are sorted into blocks of at most `block`. 3. Refine: `learn_weights` inside every block.
    """
    if block < 2 or landmarks < 1:
        raise RequestError(f"block must be at least 2 and landmarks at least 1, got {block} and {landmarks}.")
    if sample.agents <= block:
        learned = learn_weights(sample, penalty)
        return _listed([(np.arange(sample.agents), learned.shares)], sample, exchange_of(sample), least)
    signatures, exchange = _signatures(sample, penalty, min(landmarks, sample.agents), seed)
    found = []
    for members in _sorted(signatures, block, seed):
        part = sample.some_agents(members)
        found.append((members, learn_weights(part, penalty).shares))
        exchange = exchange + exchange_of(part)
    return _listed(found, sample, exchange, least)


def _signatures(sample: Sample, penalty: float, landmarks: int, seed: int) -> tuple[np.ndarray, Exchange]:
    """(agents, landmarks): root of the nats that an agent's rows hold against every landmark's model."""
    draws = host_generator(seed, Purpose.PARTITION, sample.agents)
    chosen = np.sort(draws.choice(sample.agents, landmarks, replace=False))
    few = sample.some_agents(chosen)
    models = quick_models(few, expand(few, common_model(few, penalty)), own_weights(few), penalty)
    losses = sample.means(score(sample, models))
    least = losses.min(axis=1)
    scale = noise_scale(sample, least[sample.owner])
    # per row, not per agent: agents of different size shall not be sorted by their size
    return np.sqrt((losses - least[:, None]) / scale[:, None]), judging(sample, landmarks, sample.agents * landmarks)


def _sorted(signatures: np.ndarray, block: int, seed: int) -> list[np.ndarray]:
    """Blocks of at most `block` agents (never a single one), clusters of like agents kept together."""
    agents = len(signatures)
    clusters = min(max(2, 2 * agents // block), len(np.unique(signatures, axis=0)))
    found = KMeans(clusters, n_init=1, random_state=seed % 2**32).fit(signatures)
    # neighbouring clusters stand side by side along the line of largest spread
    centred = found.cluster_centers_ - found.cluster_centers_.mean(axis=0)
    line = centred @ np.linalg.svd(centred, full_matrices=False)[2][0]
    order = np.lexsort((signatures[:, 0], np.argsort(np.argsort(line))[found.labels_]))
    amount = -(-agents // block)
    return [np.sort(part) for part in np.array_split(order, amount)]


def _listed(
    found: list[tuple[np.ndarray, np.ndarray]], sample: Sample, exchange: Exchange, least: float
) -> Neighbourhoods:
    members: list[np.ndarray] = [np.zeros(0, np.int64)] * sample.agents
    shares: list[np.ndarray] = [np.zeros(0)] * sample.agents
    for agents, matrix in found:
        for place, agent in enumerate(agents):
            row = matrix[place]
            kept = (row >= least) | (agents == agent)
            members[agent], shares[agent] = agents[kept], row[kept] / row[kept].sum()
    return Neighbourhoods(members, shares, [agents for agents, _ in found], exchange)
