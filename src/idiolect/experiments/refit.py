# SPDX-License-Identifier: Apache-2.0
"""The rows that delivered models are fitted on: once everything is chosen, validation rows train too."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from idiolect.core.data import join_rows
from idiolect.data.federation import Federation, no_rows
from idiolect.theory.constants import Constants


def with_validation_rows(federation: Federation) -> Federation:
    """The same clients whose training rows are those that trained and those that validated; none validates."""
    train, order = join_rows(federation.train, federation.validation)
    groups = federation.groups
    if groups is not None:
        groups = np.concatenate(groups[:2])[order], groups[1][:0], groups[2]
    held_out = None if federation.held_out is None else with_validation_rows(federation.held_out)
    empty = no_rows(federation.validation)
    return dataclasses.replace(federation, train=train, validation=empty, groups=groups, held_out=held_out, places=None)


def shorten_steps(chosen: Mapping[str, Any], before: Constants | None, after: Constants | None) -> dict[str, Any]:
    """Settings with steps above 1 / smoothness shortened by as much as the loss is less smooth on the rows to fit.

    Where validation rows are unlike training rows (a split by time), a long step that was good on the one may diverge
    on both together. Steps are never made longer, and shorter ones are safe as they are.
    """
    if before is None or after is None:
        return dict(chosen)

    def one(name: str, value: Any) -> Any:
        if not name.endswith("step_size"):
            return value
        own = isinstance(value, list)  # a step of each client's own follows the client's own rows
        was, now = (known.client_smoothness if own else known.smoothness for known in (before, after))
        rougher = (np.asarray(was) > 0) & (np.asarray(was) < now)
        now = np.where(rougher, now, 1.0)
        shorter = np.where(rougher, np.minimum(value, np.maximum(np.multiply(value, was) / now, 1 / now)), value)
        return shorter.tolist() if own else float(shorter)

    return {name: one(name, value) for name, value in chosen.items()}


def step_notes(chosen: Mapping[str, Any], fitted: Mapping[str, Any]) -> list[str]:
    """Sentences about the steps that are shorter in the final fit than those that were chosen."""
    return [
        f"{name.replace('_', ' ')} {np.max(fitted[name]):.3g}{' at most' if np.ndim(fitted[name]) else ''} "
        "in the final fit, because the loss is less smooth on training and validation rows together."
        for name in chosen
        if name.endswith("step_size") and name in fitted and np.any(np.less(fitted[name], chosen[name]))
    ]
