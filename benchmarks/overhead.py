# SPDX-License-Identifier: Apache-2.0
"""What the engine costs on a tiny problem, against the same maths written by hand, NumPy, and 30 seeds at once.

1000 rounds of LSGD-PFL: 20 clients, 15 features, 5 local steps of one row, float64. Compilation is not counted; the
engine's cost ledger is.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import by_hand
from benchmarks.measure import TURNS, Result, Target, in_turns, medians, ratio, seconds_of
from benchmarks.problems import small_logistic
from idiolect.core.keys import root_key
from idiolect.engines.simulate import Session, Training, open_session

SEED = 3


def run(quick: bool) -> Result:
    """Time engine, two hand-written scans, NumPy and a sweep in turns; the scan of the same draws must agree."""
    rounds, seeds = (40, 3) if quick else (1000, 30)
    algorithm, federation = small_logistic(rows=50 if quick else 1000)
    training = Training(rounds=rounds, record_every=rounds, precision="float64", executor="batched")
    sessions: dict[int, Session] = {}

    def engine(lanes: int) -> float:
        seeds_of = [SEED + lane for lane in range(lanes)]
        session = open_session([algorithm] * lanes, federation, training, seeds_of, ("log_loss",))
        session.train()
        sessions[lanes] = session
        return session.state.seconds  # the compiled blocks and their bills

    clients = federation.clients
    data = federation.train.pad(np.arange(clients))
    with jax.enable_x64(True):
        inputs, signs = jnp.asarray(data.inputs), jnp.asarray(2.0 * data.targets - 1)
        settings = {"rounds": rounds, "steps": algorithm.local_steps}
        scan = functools.partial(by_hand.compiled, root_key(SEED), inputs, signs, algorithm.step_size, **settings)
        one = functools.partial(by_hand.compiled, inputs=inputs, signs=signs, step_size=algorithm.step_size, **settings)
        many_scans = jax.jit(jax.vmap(lambda root: one(root, once=False)))
        roots = jax.vmap(root_key)(jnp.arange(SEED, SEED + seeds))
        numpy = functools.partial(by_hand.in_numpy, SEED, data.inputs, np.asarray(signs), algorithm.step_size)
        clocks = {
            "engine": lambda: engine(1),
            "scan, same draws": lambda: seconds_of(lambda: scan(once=False)),
            "scan, one draw per round": lambda: seconds_of(lambda: scan(once=True)),
            "numpy": lambda: seconds_of(lambda: numpy(**settings)),
            f"engine, {seeds} seeds": lambda: engine(seeds),
            f"scan, {seeds} seeds": lambda: seconds_of(lambda: many_scans(roots)),
        }
        seconds = in_turns(clocks, 1 if quick else TURNS)
        shared, personal = scan(once=False)
        np.testing.assert_allclose(sessions[1].snapshot().server.shared["weights"], shared, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(sessions[1].snapshot().states.personal["weights"], personal, rtol=1e-9, atol=1e-12)

    same = ratio(seconds, "engine", "scan, same draws")
    faster = ratio(seconds, "numpy", "engine")
    many = ratio(seconds, f"engine, {seeds} seeds", "engine")
    numbers = {
        "median seconds": medians(seconds),
        "engine / scan, same draws": same,
        "engine / scan, one draw per round": ratio(seconds, "engine", "scan, one draw per round"),
        "numpy / engine": faster,
        f"{seeds} seeds / one seed": many,
        f"{seeds} seeds / one seed, both by hand": ratio(seconds, f"scan, {seeds} seeds", "scan, same draws"),
        f"engine / scan, {seeds} seeds": ratio(seconds, f"engine, {seeds} seeds", f"scan, {seeds} seeds"),
    }
    targets = (
        Target("engine over a hand-written scan of the same draws", same, 1.3),
        Target("engine faster than vectorised NumPy", faster, 2.0, at_least=True),
        Target("30 seeds over one seed", many, 12.0),
    )
    return Result(numbers, targets)
