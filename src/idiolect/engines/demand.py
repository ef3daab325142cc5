# SPDX-License-Identifier: Apache-2.0
"""What a method asks of the machine by its numbers: steps that can be counted, and memory, before either is taken."""

from __future__ import annotations

import jax

from idiolect.core.algorithm import Algorithm
from idiolect.core.batches import batches_per_epoch
from idiolect.core.checks import RequestError
from idiolect.core.data import Rows
from idiolect.engines.door import Training
from idiolect.engines.footprint import storage
from idiolect.record.memory import check_bytes, free_bytes

COUNTABLE = 2**31  # steps of a round: they are counted in 32 bits
INTEGER = 4  # bytes
COPIES = 3  # of a model in one step: itself, its gradient, the result
MOST_COSTS = 1 << 22  # clients x rounds x lanes whose costs one block brings back


def block_length(training: Training, widest: int, lanes: int) -> int:
    """Rounds of a block where no number was asked for: those to the next record, as far as memory bears it."""
    return max(1, min(training.record_every, training.rounds or 1, MOST_COSTS // max(1, widest * lanes)))


def check_demand(algorithm: Algorithm, rows: Rows, training: Training, lanes: int = 1) -> None:
    """RequestError for numbers that ask for more local steps than can be counted, or for more memory than is free."""
    capacity = max(1, int(rows.counts.max(initial=1)))
    size, epochs, local = (int(getattr(algorithm, name, 0)) for name in ("batch_size", "epochs", "local_steps"))
    steps = epochs * batches_per_epoch(capacity, size) if epochs else local
    asked = f"epochs = {epochs}" if epochs else f"local_steps = {local}"
    if steps >= COUNTABLE:
        raise RequestError(
            f"{asked} makes {steps} local steps in a round, and they must be below 2^31; use fewer, and more rounds."
        )
    free = free_on_device()
    if free is None:
        return
    at_once = _at_once(training, rows.clients) * lanes
    if size:
        # rows of a whole round are drawn at once, by every client that works side by side with others
        drawn = (epochs * capacity if epochs else local * size) * 2 * INTEGER
        check_bytes(at_once * drawn, f"{asked} with batch_size = {size}", "use fewer, and more rounds", free)
    _check_state(algorithm, rows, training, lanes, at_once, free)


def fitting_chunk(widest: int, message_bytes: int) -> int:
    """0 where all clients of a round may fit side by side, by what each sends; else how many of them may."""
    free = free_on_device()
    each = COPIES * max(1, message_bytes)
    return 0 if free is None or widest * each <= free else max(1, free // each)


def check_block(training: Training, widest: int, lanes: int) -> None:
    """RequestError where a block that was asked for brings back more than memory holds."""
    if training.block:
        needed = 50 * training.block * max(1, widest) * lanes
        check_bytes(
            needed, f"training.block = {training.block}", "use a smaller one, or 0, which chooses", free_on_device()
        )


def _check_state(algorithm: Algorithm, rows: Rows, training: Training, lanes: int, at_once: int, free: int) -> None:
    # three questions, the smallest first: the sentence names the part that does not fit, and what makes that part
    # smaller
    kept = storage(algorithm, rows, training.precision)
    shown = f"A model of {kept.model_bytes // INTEGER} numbers"
    smaller = "use smaller or fewer layers (model.hidden, [model.settings]), or fewer classes"
    check_bytes(COPIES * kept.model_bytes, shown, smaller, free)
    together = lanes * (rows.clients * kept.client_bytes + kept.server_bytes)
    check_bytes(
        together, f"What {rows.clients} clients keep in {lanes} runs", f"train fewer seeds at once, or {smaller}", free
    )
    check_bytes(
        together + at_once * COPIES * kept.model_bytes,
        f"{shown} on {at_once} clients at once",
        "use a smaller training.cohort, executor 'chunked' with a small chunk, or fewer seeds",
        free,
    )


def _at_once(training: Training, clients: int) -> int:
    """Clients that are advanced side by side."""
    cohort = min(training.cohort or clients, clients)
    if training.executor.startswith("looped") or training.executor == "auto":  # which takes as many as fit
        return 1
    return min(training.chunk or cohort, cohort) if training.executor == "chunked" else cohort


def free_on_device() -> int | None:
    """Of the device that trains, where it has memory of its own; else of this process."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return int(stats["bytes_limit"]) - int(stats.get("bytes_in_use", 0))
    return free_bytes()
