# SPDX-License-Identifier: Apache-2.0
"""The vocabulary is tested without silent broadcasting, on top of the strict dtypes of all tests."""

from __future__ import annotations

import jax
import pytest


@pytest.fixture(autouse=True, scope="module")
def strict_ranks():
    with jax.numpy_rank_promotion("raise"):
        yield
