# SPDX-License-Identifier: Apache-2.0
"""What secure aggregation costs: bytes and seconds of one round for a client and for the server, on one core.

Every party works in turn, in one process: seconds are of computing, without any connection.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.measure import Result, in_turns, medians
from idiolect.core.reduction import weighted_mean
from idiolect.protection import SecureAggregation
from idiolect.protection.masked_sums import MaskedReduction
from idiolect.protection.masking import Aggregator, Party, Terms

Found = TypeVar("Found")
GONE = 5  # one client in so many drops out after it sent its shares


class Upload(NamedTuple):
    """One array and a weight."""

    move: Any
    weight: Any


class Clock:
    """Adds up seconds by whose work they are."""

    def __init__(self) -> None:
        self.spent = {"clients": 0.0, "server": 0.0}

    def take(self, whose: str, work: Callable[[], Found]) -> Found:
        """What `work` returns, timed."""
        began = time.perf_counter()
        found = work()
        self.spent[whose] += time.perf_counter() - began
        return found


def one_round(clients: int, length: int, gone: int) -> dict[str, float]:
    """Seconds of one client (the mean over those asked) and of the server; the sum is checked."""
    clock, terms = Clock(), Terms(b"benchmark", 2 * clients // 3 + 1)
    draw = np.random.default_rng(0)
    vectors = draw.integers(0, 2**64, (clients, length), np.uint64)
    parties = [Party(number, terms) for number in range(clients)]
    server = Aggregator(terms, length)
    adverts = {party.number: clock.take("clients", party.advertise) for party in parties}
    server.collect_keys(adverts)
    sealed = {party.number: clock.take("clients", lambda p=party: p.share(adverts)) for party in parties}
    boxes = clock.take("server", lambda: server.route_shares(sealed))
    stay = parties[gone:]
    for party in stay:
        masked = clock.take("clients", lambda p=party: p.mask(vectors[p.number], boxes[p.number]))
        clock.take("server", lambda p=party, m=masked: server.add(p.number, m))
    came = server.survivors()
    answers = {party.number: clock.take("clients", lambda p=party: p.answer(came)) for party in stay}
    total = clock.take("server", lambda: server.unmask(answers))
    assert np.array_equal(total, vectors[gone:].sum(axis=0, dtype=np.uint64))
    return {"client": clock.spent["clients"] / clients, "server": clock.spent["server"]}


def simulated(clients: int, length: int, turns: int) -> dict[str, float]:
    """Seconds of the compiled sum of all uploads, as it is and as secure aggregation has it."""
    draw = np.random.default_rng(0)
    uploads = Upload(jnp.asarray(draw.normal(size=(clients, length)), jnp.float32), jnp.ones(clients))
    numbers, present = jnp.arange(clients), jnp.ones(clients, bool)
    masked = MaskedReduction(weighted_mean, SecureAggregation(threshold=clients, cohort=clients))
    clocks = {}
    for name, reduction in {"plain": weighted_mean, "fixed-point": masked}.items():
        program = jax.jit(lambda given, own=reduction: own.lower(own.collect(given, numbers, present)).mean.move)

        def clock(program: Callable[[Upload], jax.Array] = program) -> float:
            began = time.perf_counter()
            jax.block_until_ready(program(uploads))
            return time.perf_counter() - began

        clocks[name] = clock
    return medians(in_turns(clocks, turns))


def run(quick: bool) -> Result:
    """10 and 50 clients with 10,000 numbers each, with and without dropouts."""
    sizes, length, turns = ((4,), 100, 1) if quick else ((10, 50), 10_000, 5)
    numbers: dict[str, Any] = {}
    for clients in sizes:
        reduction = MaskedReduction(weighted_mean, SecureAggregation(threshold=clients, cohort=clients))
        types = Upload(jax.ShapeDtypeStruct((length,), jnp.float32), jax.ShapeDtypeStruct((), jnp.float32))
        legs = reduction.legs(types, clients)
        found: dict[str, Any] = {
            "bytes up": sum(leg.bytes for leg in legs if leg.up),
            "bytes down": sum(leg.bytes for leg in legs if not leg.up),
            "bytes up, plain": 4 * (length + 1),
            "seconds of a simulated sum": simulated(clients, length, turns),
        }
        for gone in (0, clients // GONE):
            rounds = [one_round(clients, length, gone) for _ in range(turns)]
            found[f"seconds, {gone} gone"] = {who: float(np.median([one[who] for one in rounds])) for who in rounds[0]}
        numbers[f"{clients} clients"] = found
    return Result(numbers)
