# SPDX-License-Identifier: Apache-2.0
"""Thousands of tiny matrix products are slower on several threads than on one: threads wait for one another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_thread() -> Iterator[None]:
    """Matrix libraries use one thread inside; scikit-learn brings what can tell them so."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1, user_api="blas"):
        yield
