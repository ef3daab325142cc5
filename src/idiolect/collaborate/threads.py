# SPDX-License-Identifier: Apache-2.0
"""Thousands of tiny matrix products are slower on several threads than on one: threads wait for one another."""

from __future__ import annotations

from contextlib import AbstractContextManager


def one_thread() -> AbstractContextManager[object]:
    """Matrix libraries use one thread inside; scikit-learn brings what can tell them so."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(limits=1, user_api="blas")
