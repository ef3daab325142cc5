# SPDX-License-Identifier: Apache-2.0
"""What a run cost: bytes from types, gradients from tallies, seconds from a stated bandwidth."""

from idiolect.accounting.bytes import bytes_of as bytes_of
from idiolect.accounting.bytes import model_units as model_units
from idiolect.accounting.bytes import wire as wire
from idiolect.accounting.ledger import Ledger as Ledger
from idiolect.accounting.time_model import TIME_MODELS as TIME_MODELS
from idiolect.accounting.time_model import TimeModel as TimeModel
from idiolect.accounting.time_model import find_time_model as find_time_model
