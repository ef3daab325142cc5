# SPDX-License-Identifier: Apache-2.0
"""The methods that a comparison tries unasked, and how each is set up for the user's own rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from idiolect.algorithms import ALGORITHMS
from idiolect.core.checks import RequestError
from idiolect.data.preparation import LOCAL as LOCALLY
from idiolect.metrics.scores import find_score

LOCAL = "local"  # the method that trains every client alone
# alone; one model; one model and own steps; own models held near it; own and shared models mixed; some parameters
# shared; gradients shared with those who are alike
DEFAULT = (LOCAL, "fedavg", "fedavg_fine_tuning", "ditto", "flix_sgd", "fedper", "all_for_all")
ALL = "all"
MOST_ROUNDS = 1000  # where training goes on until validation rows show no more progress
NEIGHBOURS = ("all_for_all", "all_for_all_naive")  # they ask who is alike
EXACT = {"batch_size": 0, "local_steps": 5}  # on a linear model: no noise, and faster than drawing batches
DRAWN = {"batch_size": 20, "epochs": 1}


def comparison(
    data: dict[str, Any],
    *,
    model: str = "linear",
    methods: str | None = None,
    rounds: int | None = None,
    minutes: float | None = None,
    cohort: int = 0,
    batch_size: int | None = None,
    epochs: int | None = None,
    step_sizes: list[float] | None = None,
    refit: bool = True,
    score: str | None = None,
    seed: int | None = None,
    held_out: float = 0,
    epsilon: float | None = None,
) -> dict[str, Any]:
    """The spec, as a table, that compares methods on `data`, a spec's [data]; None: what suits most tables."""
    names, most = method_names(methods), MOST_ROUNDS if rounds is None else rounds
    spec: dict[str, Any] = {
        "data": dict(data),
        "model": {"name": model},
        "training": {"rounds": most, "cohort": cohort, "record_every": max(1, most // 20)},
        "defaults": local_work(model, batch_size, epochs),
        "methods": method_tables(names, model),
        "tuning": {"auto": True, "until": "rounds" if rounds is not None else "converged", "refit": refit}
        | _given(step_size=step_sizes, minutes=minutes),
        "collaboration": collaboration_table(names),
        # methods that the user names are refused with the reason where they do not fit, others are passed over
        "evaluation": {"unfit": "leave_out" if methods is None or methods.strip() == ALL else "refuse"},
    }
    if model == "linear":
        spec["training"]["executor"] = "batched"
    if score is not None:
        spec["evaluation"]["scores"] = [score]
        spec["model"] |= quantile_loss(score)
    if seed is not None:
        spec["data"]["seed"], spec["seeds"] = seed, [seed]
    if held_out:  # a number of clients is a whole number; inf is none, and refused later
        spec["data"]["held_out"] = int(held_out) if held_out >= 1 and float(held_out).is_integer() else held_out
    return spec if epsilon is None else private_comparison(spec, epsilon, rounds)


TABLES = ("table", "heart_disease", "school", "landmine")  # sources whose columns are scaled
PRIVATE_ROUNDS, PRIVATE_STEP = 40, 0.1  # rounds spend epsilon; columns are scaled, so that this step suits most tables


def private_comparison(spec: dict[str, Any], epsilon: float, rounds: int | None) -> dict[str, Any]:
    """The comparison under a privacy budget: nothing is chosen on rows, and no column's sums are sent."""
    number, sizes = PRIVATE_ROUNDS if rounds is None else rounds, spec["tuning"].get("step_size", [PRIVATE_STEP])
    if len(sizes) > 1 or "minutes" in spec["tuning"]:
        raise RequestError(
            "--epsilon leaves nothing to choose on validation rows, got --minutes or several --step-sizes; give one "
            "step size, and --rounds."
        )
    given = {"preparation": LOCALLY} if spec["data"].get("source") in TABLES else {}
    return {key: value for key, value in spec.items() if key not in ("tuning", "collaboration")} | {
        "data": given | spec["data"],
        "training": spec["training"] | {"rounds": number, "record_every": max(1, number // 20)},
        "defaults": spec["defaults"] | {"step_size": sizes[0]},
        "privacy": {"epsilon": epsilon},
    }


def _given(**options: object) -> dict[str, object]:
    return {name: value for name, value in options.items() if value is not None}


def quantile_loss(score: str) -> dict[str, Any]:
    """[model] settings of a score that needs them: a quantile is learnt by the loss that it minimises."""
    percent = score.removeprefix("pinball_")
    if percent == score:
        return {}
    find_score(score)
    return {"loss": "pinball", "quantile": int(percent) / 100}


def method_names(asked: str | None) -> list[str]:
    """Names with commas between them, "all" for every registered one, None for the default seven."""
    if asked is None:
        return list(DEFAULT)
    if asked.strip() == ALL:
        return list(ALGORITHMS)
    return [name.strip() for name in asked.split(",") if name.strip()]


def check_methods(asked: str | None) -> str | None:
    """The names as they were given, or RequestError where there are none, one twice, or 'all' beside others."""
    names = [ALL] if asked is None or asked.strip() == ALL else method_names(asked)
    if not names:
        raise RequestError(f"--methods needs names such as local,fedavg, or all, got {asked!r}.")
    if ALL in names and len(names) > 1:
        raise RequestError(f"--methods all stands for every method, got {asked!r}; leave the other names out.")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise RequestError(f"--methods must differ, got {twice!r} more than once; name each once.")
    return asked


def check_epochs(epochs: int | None) -> int | None:
    """Passes over a client's rows per round; RequestError for less than one."""
    if epochs is not None and epochs < 1:
        raise RequestError(f"--epochs must be at least 1, got {epochs}.")
    return epochs


def check_step_sizes(sizes: Sequence[float] | None) -> list[float] | None:
    """The step sizes to choose from; RequestError where one is given twice."""
    if sizes is not None and len(set(sizes)) < len(sizes):
        given = ",".join(f"{size:g}" for size in sizes)
        raise RequestError(f"--step-sizes must differ, got {given!r}; name each once.")
    return None if sizes is None else [float(size) for size in sizes]


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
    if name == "ditto" and model == "linear":
        return {"bias_penalty": 0.1}  # as in mixed models, intercepts may vary more between clients than coefficients
    if name == "fedavg_fine_tuning":
        return {"fine_tuning_steps": 20}
    return {}


def collaboration_table(names: list[str]) -> dict[str, Any]:
    """[collaboration] of a spec: who is alike is learnt from models, where a method asks."""
    return {"source": "models"} if any(name in NEIGHBOURS for name in names) else {}
