# SPDX-License-Identifier: Apache-2.0
"""Figures 2 and 3 and table 1 of Scafflix 2023: FedAvg, FLIX, Scaffnew, Scafflix with networks, two natural data sets.

All four make 1/p local steps per round (Scaffnew and Scafflix on average), on batches of the same size, with clients of
equal weight; `x*_m` comes from epochs of SGD on the client's own rows. Steps are given, not from theory: networks have
no constants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from idiolect import Algorithm, ClientLoss, Federation, GlobalModel, Training
from idiolect.algorithms import LocalSGD, Scafflix
from idiolect.data.dataset_files import dataset_file
from idiolect.objectives import FLIX
from papers import lanes
from papers.problems import natural_federation, network_loss
from papers.reproduction import Measured, Progress, Spec, chosen_size, count_parts
from papers.scafflix_networks.figure import draw as draw
from papers.scafflix_networks.figure import mean_and_half_width

METHODS = ("fedavg", "flix", "scaffnew", "scafflix")
DATA_SETS = {"writers": ("mnist_writers", "cnn"), "shakespeare": ("shakespeare", "character_lstm")}
PAIRS = (("flix", "fedavg"), ("scaffnew", "fedavg"), ("scafflix", "scaffnew"), ("scafflix", "flix"))  # table 1's order
SCORES = ("accuracy",)


class Problem(NamedTuple):
    """One data set, its network's loss, and the size of the runs on it."""

    name: str
    federation: Federation
    loss: ClientLoss
    size: Mapping[str, Any]
    probability: float  # p


class Trained(NamedTuple):
    """What several seeds of one method brought: scores of the personal models."""

    rounds: np.ndarray  # (records,)
    validation: np.ndarray  # (seeds, records): mean over clients
    test: np.ndarray  # (seeds, clients): after the last round

    @property
    def accuracy(self) -> float:
        """Mean over clients, then over seeds."""
        return float(np.nanmean(self.test))


class Results(NamedTuple):
    """Everything that the figure shows."""

    table: dict[str, dict[str, Trained]]  # data set -> method
    alone: dict[str, float]  # data set -> accuracy of x*_m itself
    ablations: dict[str, dict[float, Trained]]  # alpha | cohort | p -> value


def check(spec: Spec) -> None:
    """Refuse before a folder is begun; the roles are bundled, the writers are not."""
    dataset_file("images/mnist_writers.npz.xz")


def measure(spec: Spec, progress: Progress) -> Measured:
    """Table 1's comparison on both data sets, then the ablations on the writers."""
    size = chosen_size(spec, "scafflix-networks")
    seeds = list(range(spec["seeds"]))
    ablations: dict[str, list[Any]] = {key: size["ablations"][key] for key in ("alpha", "cohort", "p")}
    tell = count_parts(progress, len(DATA_SETS) * (len(METHODS) + 1) + len(ablations["cohort"]) + 2)
    table: dict[str, dict[str, Trained]] = {}
    alone: dict[str, float] = {}
    problems = {name: problem(name, spec) for name in DATA_SETS}
    for name, subject in problems.items():
        own = method(subject, "flix", alpha=0.0, step=1.0)
        alone[name] = train(subject, [own], seeds, rounds=0).accuracy
        tell(f"{name} x*_m alone")
        table[name] = {}
        for short in METHODS:
            step = best_step(subject, short, spec)
            table[name][short] = train(subject, [method(subject, short, step=step)], seeds)
            tell(f"{name} {short}")
    found = _ablate(problems["writers"], size["ablations"], ablations, tell)
    return Measured(_numbers(table, alone, found), Results(table, alone, found))


def problem(name: str, spec: Spec) -> Problem:
    """Data and network of one half of table 1."""
    size = chosen_size(spec, "scafflix-networks")[name]
    source, model = DATA_SETS[name]
    federation = natural_federation(source, size, spec["data_seed"])
    return Problem(name, federation, network_loss(model, {"settings": size["model"]}, federation), size, spec["p"])


def method(
    subject: Problem, short: str, *, step: float, alpha: float | None = None, probability: float | None = None
) -> Algorithm:
    """One of the four methods; alpha and p are the problem's unless given."""
    size = subject.size
    p = subject.probability if probability is None else probability
    solver = {key: size[key] for key in ("solver_epochs", "solver_batch_size", "solver_step_size")}
    mixed = FLIX(subject.loss, personalization=size["alpha"] if alpha is None else alpha, solver="epochs", **solver)
    objective = mixed if short in ("flix", "scafflix") else GlobalModel(subject.loss)
    if short in ("fedavg", "flix"):
        return LocalSGD(objective, local_steps=round(1 / p), batch_size=size["batch_size"], step_size=step)
    return Scafflix(objective, batch_size=size["batch_size"], local_step=step, communication_probability=p)


def train(
    subject: Problem,
    algorithms: Sequence[Algorithm],
    seeds: Sequence[int],
    *,
    rounds: int | None = None,
    cohort: int | None = None,
) -> Trained:
    """Every algorithm with every seed, as lanes of one program; lanes are (algorithm, seed), seeds within."""
    size = subject.size
    training = Training(
        rounds=size["rounds"] if rounds is None else rounds,
        cohort=min(size["cohort"] if cohort is None else cohort, subject.federation.clients),
        record_every=size["record_every"],
        executor="batched",
    )
    pairs = [(algorithm, seed) for algorithm in algorithms for seed in seeds]
    runs = lanes.simulate_many(
        [algorithm for algorithm, _ in pairs],
        subject.federation,
        training,
        seeds=[seed for _, seed in pairs],
        scores=SCORES,
    )
    histories = [run.recorder.history for run in runs]
    column = "validation_personal_accuracy_mean"
    return Trained(
        np.array([row["round"] for row in histories[0]]),
        np.array([[row[column] for row in history] for history in histories]),
        np.array([run.recorder.last["test"]["personal"]["accuracy"] for run in runs], np.float64),
    )


def best_step(subject: Problem, short: str, spec: Spec) -> float:
    """The step that the size gives; with a `grid`, the best of it on validation rows, as a mean over other seeds."""
    if not spec["grid"]:
        return float(subject.size["steps"][short])
    grid = [float(step) for step in spec["grid"]]
    tried = train(subject, [method(subject, short, step=step) for step in grid], spec["tuning_seeds"])
    scores = np.nan_to_num(tried.validation[:, -1], nan=0.0).reshape(len(grid), -1).mean(axis=1)
    return grid[int(np.argmax(scores))]


def _ablate(
    subject: Problem, size: Mapping[str, Any], values: Mapping[str, list[Any]], tell: Any
) -> dict[str, dict[float, Trained]]:
    """Scafflix with other alpha (lanes of one program), other p (likewise) and other cohorts (a program each)."""
    seeds, rounds = list(range(size["seeds"])), size["rounds"]
    step = float(subject.size["steps"]["scafflix"])
    found: dict[str, dict[float, Trained]] = {}
    for key in ("alpha", "p"):
        named = [{"alpha" if key == "alpha" else "probability": float(value)} for value in values[key]]
        together = train(
            subject, [method(subject, "scafflix", step=step, **one) for one in named], seeds, rounds=rounds
        )
        found[key] = {
            value: together._replace(
                validation=together.validation[place * len(seeds) : (place + 1) * len(seeds)],
                test=together.test[place * len(seeds) : (place + 1) * len(seeds)],
            )
            for place, value in enumerate(values[key])
        }
        tell(f"{subject.name} {key}")
    found["cohort"] = {}
    for cohort in values["cohort"]:
        algorithm = method(subject, "scafflix", step=step)
        found["cohort"][cohort] = train(subject, [algorithm], seeds, rounds=rounds, cohort=int(cohort))
        tell(f"{subject.name} cohort {cohort}")
    return found


def difference(one: Trained, other: Trained) -> tuple[float, float]:
    """Mean over clients of the seeds' mean difference in accuracy, and half of its 95 % interval over clients."""
    return mean_and_half_width(one.test - other.test)


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
