# SPDX-License-Identifier: Apache-2.0
"""auto: measure the executors once, take the fastest, and write the choice down.

The choice and the block length go into the resolved spec, so that repeats and resumed runs use the same programs.
"""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

import jax

from idiolect.engines.demand import block_length
from idiolect.engines.door import Training

if TYPE_CHECKING:
    from idiolect.engines.session import Session

WORTH_SECONDS = 10.0  # a run shorter than this gains less from a better executor than compiling the others costs
BLOCK_SECONDS = 1.0  # a block should end about this often, so that progress and interrupts stay alive


def resolve(session: Session, training: Training) -> Training:
    """The training request with executor, chunk and block filled in."""
    seconds = 0.0
    if training.executor == "auto":
        training, seconds = _fastest(session, training)
    block = training.block
    if not block:
        block = block_length(training, session.widest, len(session.seeds))
        if seconds > BLOCK_SECONDS / block:  # a long block would silence progress and interrupts
            block = max(1, int(BLOCK_SECONDS / seconds))
    return dataclasses.replace(training, block=block)


def _fastest(session: Session, training: Training) -> tuple[Training, float]:
    cohort = session.widest
    batched = dataclasses.replace(training, executor="batched", chunk=0)
    if training.rounds == 0 or cohort == 0:
        return batched, 0.0
    seconds = _measure(session, batched)
    if seconds * training.rounds < WORTH_SECONDS:
        return batched, seconds
    measured = [(seconds, batched)]
    for chunk in (1, 8):
        if chunk < cohort:
            chunked = dataclasses.replace(training, executor="chunked", chunk=chunk)
            measured.append((_measure(session, chunked), chunked))
    if session.lanes == "one":
        for executor in ("looped", "looped_steps"):
            looped = dataclasses.replace(training, executor=executor, chunk=0)
            measured.append((_measure(session, looped), looped))
    seconds, chosen = min(measured, key=lambda pair: pair[0])
    return chosen, seconds


def _measure(session: Session, training: Training) -> float:
    """Seconds per round, after compilation; the state is left as it was."""
    jax.block_until_ready(session.block(0, 1, training))
    began = time.perf_counter()
    jax.block_until_ready(session.block(0, 1, training))
    return time.perf_counter() - began
