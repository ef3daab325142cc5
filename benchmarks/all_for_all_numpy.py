# SPDX-License-Identifier: Apache-2.0
"""All-for-all with doubling phases in plain NumPy, written from the paper alone: what expected.toml calls independent.

`python -m benchmarks.all_for_all_numpy` prints the numbers of afa-bernoulli and afa-noise.
"""

from __future__ import annotations

import math

import numpy as np


def phases(b: np.ndarray, tosses: np.ndarray, start: float = 0.5) -> np.ndarray:
    """Models after every round, (rounds, agents), one toss of each agent per round; sigma^2 = 1/4, eps_q = 2^-q/4."""
    agents, rounds = tosses.shape
    models, accuracy, left, seen = np.full(agents, start), 0.25, 0, []
    for k in range(rounds):
        if left == 0:  # a new phase, of half the accuracy
            close = (b <= accuracy / 2).astype(float)
            listened = close.sum(axis=1)
            weights = close / listened[:, None]
            mixing = weights @ weights.T
            stable = 0.5 / np.linalg.eigvalsh(mixing)[-1]
            step = min(stable, agents * accuracy / (4 * 0.25 * (1 / listened).sum()))
            left, accuracy = math.ceil(math.log(4) / step), accuracy / 2
        models = models - step * mixing @ (models - tosses[:, k])
        left -= 1
        seen.append(models)
    return np.array(seen)


def distances(places: np.ndarray) -> np.ndarray:
    """b_ij = (p_i - p_j)^2/2."""
    return 0.5 * (places[:, None] - places) ** 2


def errors(models: np.ndarray, places: np.ndarray) -> np.ndarray:
    """mean_i (x_i - p_i)^2/2 of every round."""
    return 0.5 * ((models - places) ** 2).mean(axis=1)


def main(draws: int = 40) -> None:
    """The full experiment, on the rows that the reproductions draw."""
    from papers import afa, afa_problems

    found: dict[str, list[np.ndarray]] = {}
    for draw in range(draws):
        problem = afa_problems.bernoulli_means(100, 1000, draw, dtype=np.float64)
        places, tosses = afa.true_means(problem)[:, 0], problem.federation.train.targets.reshape(100, 1000)
        found.setdefault("exact", []).append(errors(phases(distances(places), tosses), places))
        noise = np.random.default_rng([4, draw])
        for level in (0.02, 0.08, 0.18, 0.32, 0.5):
            noisy = places + noise.uniform(-level, level, (100, 1))[:, 0]
            found.setdefault(f"{level}", []).append(errors(phases(distances(noisy), tosses), places))
    for name, own in found.items():
        mean = np.mean(own, axis=0)
        print(name, {k: float(mean[k - 1]) for k in (1, 3, 10, 30, 100, 300, 1000)})


if __name__ == "__main__":
    main()
