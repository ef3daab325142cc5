# SPDX-License-Identifier: Apache-2.0
"""Deployment over NVIDIA FLARE: its messages, its start-up kits, its processes. Only this folder imports nvflare."""

from __future__ import annotations

import importlib.util

from idiolect.core.checks import RequestError

if importlib.util.find_spec("nvflare") is None:  # here, so that whoever imports a part of it reads this sentence
    raise RequestError("NVIDIA FLARE is not installed; pip install 'idiolect[flare]'.")
