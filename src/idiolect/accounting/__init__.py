# SPDX-License-Identifier: Apache-2.0
"""What a run cost: bytes from types, gradients from tallies, seconds from a stated bandwidth."""

from idiolect.accounting.bytes import bytes_of, model_units, wire
from idiolect.accounting.ledger import Ledger
from idiolect.accounting.time_model import TIME_MODELS, TimeModel, find_time_model

__all__ = [
    "TIME_MODELS",
    "Ledger",
    "TimeModel",
    "bytes_of",
    "find_time_model",
    "model_units",
    "wire",
]
