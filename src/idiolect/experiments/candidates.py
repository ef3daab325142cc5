# SPDX-License-Identifier: Apache-2.0
"""The methods that a comparison tries unasked, and how each is set up for the user's own rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from idiolect.algorithms import ALGORITHMS
from idiolect.core.checks import RequestError
from idiolect.data.preparation import LOCAL
from idiolect.experiments.contest import Contest
from idiolect.experiments.spec import parse_numbers
from idiolect.metrics.scores import find_score
from idiolect.record.schema import ALONE

# alone; one model; one model and own steps; own models held near it; own and shared models mixed; some parameters
# shared; gradients shared with those who are alike
DEFAULT = (ALONE, "fedavg", "fedavg_fine_tuning", "ditto", "flix_sgd", "fedper", "all_for_all")
ALL = "all"
MOST_ROUNDS = 1000  # where training goes on until validation rows show no more progress
NEIGHBOURS = ("all_for_all", "all_for_all_naive")  # they ask who is alike
EXACT = {"batch_size": 0, "local_steps": 5}  # on a linear model: no noise, and faster than drawing batches
DRAWN = {"batch_size": 20, "epochs": 1}


def comparison(data: dict[str, Any], asked: Contest) -> dict[str, Any]:
    """The spec, as a table, that compares methods on `data`, a spec's [data]; RequestError for a slip in an option."""
    names, most = method_names(asked.methods), MOST_ROUNDS if asked.rounds is None else asked.rounds
    # methods that the user names are refused with the reason where they do not fit, others are passed over
    named = asked.methods is not None and asked.methods.strip() != ALL
    spec: dict[str, Any] = {
        "data": dict(data),
        "model": {"name": asked.model},
        "training": {"rounds": most, "cohort": asked.cohort, "record_every": max(1, most // 20)},
        "defaults": local_work(asked.model, asked.batch_size, asked.epochs),
        "methods": method_tables(names, asked.model),
        "tuning": _tuning(asked),
        # who is alike is learnt from models, where a method asks
        "collaboration": {"source": "models"} if set(NEIGHBOURS) & set(names) else {},
        "evaluation": {"unfit": "refuse" if named else "leave_out"},
    }
    if asked.model == "linear":
        spec["training"]["executor"] = "batched"
    if asked.score is not None:
        spec["evaluation"]["scores"] = [asked.score]
        spec["model"] |= _quantile_loss(asked.score)
    if asked.seed is not None:
        spec["data"]["seed"], spec["seeds"] = asked.seed, [asked.seed]
    if asked.held_out:
        # a number of clients is a whole number; inf is none, and refused later
        whole = asked.held_out >= 1 and float(asked.held_out).is_integer()
        spec["data"]["held_out"] = int(asked.held_out) if whole else asked.held_out
    return spec if asked.epsilon is None else private_comparison(spec, asked.epsilon, asked.rounds)


def _tuning(asked: Contest) -> dict[str, Any]:
    """[tuning] of a spec: a grid that widens itself, and as many rounds as it takes, unless the user says so."""
    until = "converged" if asked.rounds is None else "rounds"
    found: dict[str, Any] = {"auto": True, "until": until, "refit": asked.refit}
    if asked.minutes is not None:
        found["minutes"] = asked.minutes
    if asked.step_sizes is not None:
        sizes = found["step_size"] = parse_numbers(asked.step_sizes, "--step-sizes", "0.01,0.1,1")
        if len(set(sizes)) < len(sizes):
            given = ",".join(f"{size:g}" for size in sizes)
            raise RequestError(f"--step-sizes must differ, got {given!r}; name each once.")
    return found


def _quantile_loss(score: str) -> dict[str, Any]:
    """[model] settings of a score that needs them: a quantile is learnt by the loss that it minimises."""
    if not score.startswith("pinball_"):
        return {}
    find_score(score)
    return {"loss": "pinball", "quantile": int(score.removeprefix("pinball_")) / 100}


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
    given = {"preparation": LOCAL} if spec["data"].get("source") in TABLES else {}
    return {key: value for key, value in spec.items() if key not in ("tuning", "collaboration")} | {
        "data": given | spec["data"],
        "training": spec["training"] | {"rounds": number, "record_every": max(1, number // 20)},
        "defaults": spec["defaults"] | {"step_size": sizes[0]},
        "privacy": {"epsilon": epsilon},
    }


def method_names(asked: str | None) -> list[str]:
    """Names with commas between them, "all" for every registered one, None for the default seven."""
    if asked is None:
        return list(DEFAULT)
    if asked.strip() == ALL:
        return list(ALGORITHMS)
    names = [name.strip() for name in asked.split(",") if name.strip()]
    if not names:
        raise RequestError(f"--methods needs names such as local,fedavg, or all, got {asked!r}.")
    if ALL in names:
        raise RequestError(f"--methods all stands for every method, got {asked!r}; leave the other names out.")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise RequestError(f"--methods must differ, got {twice!r} more than once; name each once.")
    return names


def local_work(model: str, batch_size: int | None, epochs: int | None) -> dict[str, int]:
    """[defaults] of a spec: what a client does in a round, unless the user says so."""
    if epochs is not None and epochs < 1:
        raise RequestError(f"--epochs must be at least 1, got {epochs}.")
    if batch_size is None and epochs is None:
        return dict(EXACT if model == "linear" else DRAWN)
    return {"batch_size": DRAWN["batch_size"] if batch_size is None else batch_size, "epochs": epochs or 1}


def method_tables(names: Sequence[str], model: str) -> dict[str, dict[str, Any]]:
    """[methods] of a spec: the named algorithms with the settings that suit a table."""
    solver = {"solver": "epochs"}  # as many as serve a client best alone: few rows have no optimum, or a bad one
    suited: dict[str, dict[str, Any]] = {"flix_sgd": solver, "flix_gd": solver, "scafflix": solver}
    suited["fedavg_fine_tuning"] = {"fine_tuning_steps": 20}
    if model == "linear":
        suited["fedper"] = {"personal_part": "bias"}  # all but the intercept, which each client has for itself
        suited["ditto"] = {"bias_penalty": 0.1}  # as in mixed models, intercepts may vary more than coefficients
    return {name: dict(suited.get(name, {})) for name in names}
