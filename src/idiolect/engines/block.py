# SPDX-License-Identifier: Apache-2.0
"""Rounds fused into one compiled block, for one run or for many lanes (seeds, settings) at once."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import jax

from idiolect.core.algorithm import Algorithm
from idiolect.core.data import ClientData
from idiolect.core.keys import Key
from idiolect.engines.round import Cohort, RoundCost, run_round

TRACES: Counter[str] = Counter()  # how often each program was traced; a test holds it to once per shape


def _block(
    algorithm: Algorithm,
    root: Key,
    server: Any,
    states: Any,
    data: ClientData,
    rounds: Any,
    cohorts: Cohort | None,
    uniform: bool,
    chunk: int,
) -> tuple[Any, Any, RoundCost]:
    def one_round(carried: tuple[Any, Any], scanned: tuple[Any, Cohort | None]) -> tuple[tuple[Any, Any], RoundCost]:
        round_number, cohort = scanned
        server, states, cost = run_round(
            algorithm, root, round_number, *carried, data, cohort, uniform=uniform, chunk=chunk
        )
        return (server, states), cost

    (server, states), costs = jax.lax.scan(one_round, (server, states), (rounds, cohorts))
    return server, states, costs


@functools.partial(jax.jit, static_argnames=("uniform", "chunk", "lanes"))
def run_block(
    algorithm: Algorithm,
    root: Key,
    server: Any,
    states: Any,
    data: ClientData,
    rounds: Any,
    cohorts: Cohort | None,
    *,
    uniform: bool,
    chunk: int,
    lanes: str,
) -> tuple[Any, Any, RoundCost]:
    """Run `rounds` (an array of round numbers) in one program; costs come back one row per round.

    `lanes` is "one" (no lane axis), "together" (a `vmap` over lanes) or "in_turn" (one lane after another, for
    drawn step counts that would otherwise run in lockstep). Everything but `data` and `rounds` has a lane axis then.
    """
    TRACES["block"] += 1
    if lanes == "one":
        return _block(algorithm, root, server, states, data, rounds, cohorts, uniform, chunk)

    def lane(own: tuple[Algorithm, Key, Any, Any, Cohort | None]) -> tuple[Any, Any, RoundCost]:
        algorithm, root, server, states, cohorts = own
        return _block(algorithm, root, server, states, data, rounds, cohorts, uniform, chunk)

    run_lanes = jax.vmap(lane) if lanes == "together" else functools.partial(jax.lax.map, lane)
    return run_lanes((algorithm, root, server, states, cohorts))
