# SPDX-License-Identifier: Apache-2.0
"""Deployment over Flower: its messages, its keys, its processes. Only this folder imports flwr.

Flower starts a process for every message to a site. It imports `relay` alone, which is why nothing here loads JAX.
"""

from __future__ import annotations

import importlib.util

if importlib.util.find_spec("flwr") is None:  # here, so that the import of any part of it fails with this sentence
    from idiolect.core.checks import RequestError

    raise RequestError("Flower is not installed; pip install 'idiolect[flower]', in an environment of its own.")
