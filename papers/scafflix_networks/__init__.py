# SPDX-License-Identifier: Apache-2.0
"""Figures 2 and 3 and table 1 of Scafflix 2023: FedAvg, FLIX, Scaffnew, Scafflix with networks, two natural data sets.

All four make 1/p local steps per round (Scaffnew and Scafflix on average), on batches of the same size, with clients of
equal weight; `x*_m` comes from epochs of SGD on the client's own rows. Steps are given, not from theory: networks have
no constants.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from papers.cells import Cells, in_processes
from papers.problems import natural_file
from papers.reproduction import Measured, Progress, Spec, chosen_size, mean_and_half_width
from papers.scafflix_networks import runs
from papers.scafflix_networks.figure import draw as draw
from papers.scafflix_networks.runs import ALONE, DATA_SETS, METHODS, Trained

PAIRS = (("flix", "fedavg"), ("scaffnew", "fedavg"), ("scafflix", "scaffnew"), ("scafflix", "flix"))  # table 1's order
ABLATED = ("alpha", "cohort", "p")  # on the writers


class Results(NamedTuple):
    """Everything that the figure shows."""

    table: dict[str, dict[str, Trained]]  # data set -> method
    alone: dict[str, float]  # data set -> accuracy of x*_m itself
    ablations: dict[str, dict[float, Trained]]  # alpha | cohort | p -> value


def check(spec: Spec) -> None:
    """RequestError unless both data sets are here, before a folder is begun."""
    for source, _ in DATA_SETS.values():
        natural_file(source)


def measure(spec: Spec, progress: Progress, cells: Cells) -> Measured:
    """Table 1's comparison on both data sets, then the ablations on the writers."""
    size = chosen_size(spec, "scafflix-networks")
    parts = [(name, part) for name in DATA_SETS for part in (ALONE, *METHODS)] + [("writers", part) for part in ABLATED]
    tasks = {f"{name} {part}": (name, part) for name, part in parts}
    processes = {"workers": size["workers"], "xla_flags": size["xla_flags"]}
    in_processes(functools.partial(compute, dict(spec), cells), tasks, **processes, told=progress)
    found = {(name, part): compute(spec, cells, (name, part)) for name, part in parts}  # of cells that are there now
    table = {name: {short: found[name, short][short] for short in METHODS} for name in DATA_SETS}
    alone = {name: found[name, ALONE] for name in DATA_SETS}
    ablations = {part: found["writers", part] for part in ABLATED}
    return Measured(_numbers(table, alone, ablations), Results(table, alone, ablations), _text(table, alone))


def compute(spec: Spec, cells: Cells, task: tuple[str, str]) -> Any:
    """One part of the result: x*_m alone, a method with all seeds, or an ablation; what is missing is trained."""
    name, part = task
    subject = runs.problem(name, spec)
    if part == ALONE:
        return runs.find_alone(subject, range(spec["seeds"]), cells)
    if part in ABLATED:
        return _ablate(subject, part, spec, cells)
    step, tuned = runs.best_step(subject, part, spec, cells)
    return runs.find_or_train(subject, {part: (runs.setting(subject, part, step), tuned)}, range(spec["seeds"]), cells)


def _ablate(subject: runs.Problem, part: str, spec: Spec, cells: Cells) -> dict[float, Trained]:
    """Scafflix, with the step of table 1, with other alpha, p (lanes of one program) or cohorts (a program each)."""
    size = chosen_size(spec, "scafflix-networks")["ablations"]
    step, tuned = runs.best_step(subject, "scafflix", spec, cells)
    asked = {
        f"{part}-{value:g}": (runs.setting(subject, "scafflix", step, rounds=size["rounds"], **{part: value}), tuned)
        for value in size[part]
    }
    found = runs.find_or_train(subject, asked, range(size["seeds"]), cells)
    return {value: found[f"{part}-{value:g}"] for value in size[part]}


def _text(table: Mapping[str, Mapping[str, Trained]], alone: Mapping[str, float]) -> str:
    """Table 1 as measured: seeds apart, and how steps were chosen."""
    lines = []
    for name, row in table.items():
        lines += [f"{name}: test accuracy in per cent, mean over clients; x*_m alone {100 * alone[name]:.1f}"]
        for short, trained in row.items():
            seeds = " ".join(f"{100 * one:6.2f}" for one in np.nanmean(trained.test, axis=1))
            lines.append(
                f"{short:10} {100 * trained.accuracy:6.2f}   seeds {seeds}   step {trained.step:g}, {trained.tuned}"
            )
    return "\n".join(lines)


def difference(one: Trained, other: Trained) -> tuple[float, float]:
    """Mean over clients of the seeds' mean difference in accuracy, and half of its 95 % interval over clients."""
    return mean_and_half_width(np.nanmean(one.test - other.test, axis=0))


def _numbers(
    table: Mapping[str, Mapping[str, Trained]],
    alone: Mapping[str, float],
    ablations: Mapping[str, Mapping[float, Trained]],
) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for name, row in table.items():
        numbers[f"{name}_alone_accuracy"] = alone[name]
        numbers |= {f"{name}_{short}_accuracy": trained.accuracy for short, trained in row.items()}
        for better, worse in PAIRS:
            gap, half = difference(row[better], row[worse])
            numbers[f"{name}_{better}_minus_{worse}"] = gap
            numbers[f"{name}_{better}_minus_{worse}_half_width"] = half
    by_alpha = {alpha: trained.accuracy for alpha, trained in ablations["alpha"].items()}
    numbers["best_alpha"] = float(max(by_alpha, key=lambda alpha: by_alpha[alpha]))
    by_p = ablations["p"]
    numbers["smallest_p_minus_largest"] = by_p[min(by_p)].accuracy - by_p[max(by_p)].accuracy
    cohorts = sorted(ablations["cohort"])
    middle = len(cohorts) // 2
    few, many = (
        float(np.mean([ablations["cohort"][cohort].accuracy for cohort in part]))
        for part in (cohorts[:middle], cohorts[middle:])
    )
    numbers["large_cohorts_minus_small"] = many - few
    return numbers
