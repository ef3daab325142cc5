# SPDX-License-Identifier: Apache-2.0
"""The methods that a comparison tries unasked, and how each is set up for the user's own rows."""

from __future__ import annotations

from typing import Any

from idiolect.algorithms import ALGORITHMS

# alone; one model; one model and own steps; own models held near it; own and shared models mixed; some parameters
# shared; gradients shared with those who are alike
DEFAULT = ("local", "fedavg", "fedavg_fine_tuning", "ditto", "flix_sgd", "fedper", "all_for_all")
NEIGHBOURS = ("all_for_all", "all_for_all_naive")  # they ask who is alike
EXACT = {"batch_size": 0, "local_steps": 5}  # on a linear model: no noise, and faster than drawing batches
DRAWN = {"batch_size": 20, "epochs": 1}


def method_names(asked: str | None) -> list[str]:
    """Names with commas between them, "all" for every registered one, None for the default seven."""
    if asked is None:
        return list(DEFAULT)
    if asked.strip() == "all":
        return list(ALGORITHMS)
    return [name.strip() for name in asked.split(",") if name.strip()]


def local_work(model: str, batch_size: int | None, epochs: int | None) -> dict[str, int]:
    """[defaults] of a spec: what a client does in a round, unless the user says so."""
    if batch_size is None and epochs is None:
        return dict(EXACT if model == "linear" else DRAWN)
    return {"batch_size": DRAWN["batch_size"] if batch_size is None else batch_size, "epochs": epochs or 1}


def method_tables(names: list[str], model: str) -> dict[str, dict[str, Any]]:
    """[methods] of a spec: the named algorithms with the settings that suit a table."""
    return {name: dict(_settings(name, model)) for name in names}


def _settings(name: str, model: str) -> dict[str, Any]:
    if name == "fedper" and model == "linear":
        return {"personal_part": "bias"}  # the other coefficients are shared, each client has an intercept
    if name in ("flix_sgd", "flix_gd", "scafflix"):
        return {"solver": "epochs"}  # as many as serve a client best alone: few rows have no optimum, or a bad one
    if name == "fedavg_fine_tuning":
        return {"fine_tuning_steps": 20}
    return {}


def collaboration_table(names: list[str]) -> dict[str, Any]:
    """[collaboration] of a spec: who is alike is learnt from models, where a method asks."""
    return {"source": "models"} if any(name in NEIGHBOURS for name in names) else {}
