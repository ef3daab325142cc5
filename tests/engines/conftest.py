# SPDX-License-Identifier: Apache-2.0
"""The runs that engine tests compare: few programs, shared by all files through JAX's own cache."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from idiolect.engines.door import Training

PARTIAL = Training(rounds=6, cohort=4, dropout=0.25, record_every=3, block=3, executor="batched")
FULL = Training(rounds=6, record_every=3, block=3, executor="batched")


@pytest.fixture(scope="session")
def bench(workbench):
    """Methods whose clients take unequally many steps, with and without client state, and two requests."""
    return SimpleNamespace(
        stateful=workbench.build("scaffold", epochs=1, batch_size=2, step_size=0.2),
        stateless=workbench.build("fedadam", epochs=1, batch_size=2),
        optax=workbench.build("local_sgd", epochs=1, batch_size=2, server_optimizer="adam", server_step_size=0.05),
        personal=workbench.build("lsgd_pfl", epochs=1, batch_size=2, step_size=0.2),
        partial=PARTIAL,
        full=FULL,
    )
