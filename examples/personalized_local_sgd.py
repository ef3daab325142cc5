# SPDX-License-Identifier: Apache-2.0
"""PLSGD 2023 on its two-client instance: how far copies of w drift apart, with and without personalization.

f_1 = (1/2)(v - 1 + zeta)^2 and f_2 = (1/2)(v - 1 - zeta)^2: no single v suits both. Local SGD's consensus error
comes back every round; with a personal correction it dies out. The debug engine shows every local step.
"""

from __future__ import annotations

import argparse

import jax
import numpy as np

from idiolect import Additive, ClientLoss, Location, Training, debug
from idiolect.algorithms import PersonalizedLocalSGD
from idiolect.data.synthetic import two_clients
from idiolect.metrics import consensus_error
from idiolect.theory.rates import consensus_at


def consensus_by_step(alpha: float, step_size: float, local_steps: int, rounds: int, zeta: float) -> np.ndarray:
    """xi_t = mean_m |w_m - wbar|^2 after every local step t."""
    problem = two_clients(zeta, center=1.0, dtype=np.float64)
    objective = Additive(ClientLoss(model=Location(1), criterion="squared"))
    algorithm = PersonalizedLocalSGD(objective, step_size=step_size, personal_step_scale=alpha, local_steps=local_steps)
    copies: dict[tuple[int, int], list[np.ndarray]] = {}

    def watch(event) -> None:
        if event.stage == "step":
            shared = np.asarray(event.value.shared["location"])
            copies.setdefault((event.round, event.t), []).append(shared)

    training = Training(rounds=rounds, precision="float64")
    debug(algorithm, problem.federation, training, observe=watch)
    with jax.enable_x64(True):
        return np.asarray([consensus_error(np.stack(copies[moment])) for moment in sorted(copies)])


def main() -> None:
    """Print measured and predicted consensus errors just before each communication."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--local-steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--zeta", type=float, default=1.0)
    given = parser.parse_args()
    print("consensus error one step before each communication")
    for alpha, step_size in ((0.0, 0.5), (1.0, 0.25)):
        measured = consensus_by_step(alpha, step_size, given.local_steps, given.rounds, given.zeta)
        # the entry after step t stands at time t + 1; at multiples of K the theory speaks of after the communication
        times = [r * given.local_steps + given.local_steps - 1 for r in range(given.rounds)]
        expected = [
            consensus_at(
                time,
                personal_step_scale=alpha,
                step_size=step_size,
                local_steps=given.local_steps,
                spread=given.zeta,
            )
            for time in times
        ]
        shown = [measured[time - 1] for time in times]
        np.testing.assert_allclose(shown, expected, rtol=1e-10)
        print(f"alpha = {alpha:g}: " + "  ".join(f"{value:.2e}" for value in shown))


if __name__ == "__main__":
    main()
