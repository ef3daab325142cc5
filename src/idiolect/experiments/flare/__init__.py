# SPDX-License-Identifier: Apache-2.0
"""Deployment over NVIDIA FLARE: its messages, its start-up kits, its processes. Only this folder imports nvflare."""

from __future__ import annotations

import importlib.util

from idiolect.core.checks import RequestError


def require_flare() -> None:
    """RequestError where the package is not installed."""
    if importlib.util.find_spec("nvflare") is None:
        raise RequestError("NVIDIA FLARE is not installed; pip install 'idiolect[deploy]'.")
