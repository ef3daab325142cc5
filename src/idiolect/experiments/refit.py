# SPDX-License-Identifier: Apache-2.0
"""The rows that delivered models are fitted on: once everything is chosen, validation rows train too."""

from __future__ import annotations

import dataclasses

import numpy as np

from idiolect.core.data import join_rows
from idiolect.data.federation import Federation, no_rows


def with_validation_rows(federation: Federation) -> Federation:
    """The same clients whose training rows are those that trained and those that validated; none validates."""
    train, order = join_rows(federation.train, federation.validation)
    groups = federation.groups
    if groups is not None:
        groups = np.concatenate(groups[:2])[order], groups[1][:0], groups[2]
    held_out = None if federation.held_out is None else with_validation_rows(federation.held_out)
    empty = no_rows(federation.validation)
    return dataclasses.replace(federation, train=train, validation=empty, groups=groups, held_out=held_out, places=None)
