# SPDX-License-Identifier: Apache-2.0
"""How often per-client intervals hold the truth, and how often a client is called hurt that is not.

Simulated clients have a known gain. Real tables have clients whose rows are dealt out anew (shuffled clients do not
differ, so that learning together hurts none of them); there the truth is a client's mean gain over other splits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.measure import Result, Target
from benchmarks.splits_coverage import over_splits
from idiolect.core.checks import RequestError
from idiolect.data.federation import Federation
from idiolect.data.shared_files import school, vehicle
from idiolect.metrics.jackknife import blocks_of, pseudo_values
from idiolect.metrics.paired import Estimates, Intervals, paired_estimates, student_intervals
from idiolect.metrics.resampled import one_split
from idiolect.metrics.scores import auc
from idiolect.metrics.summary import bootstrap_interval
from idiolect.metrics.verdicts import judge

ROWS = (6, 10, 15, 40)
Draw = tuple[np.ndarray, float]  # (clients, rows) differences, and the true gain


def run(quick: bool) -> Result:
    """Coverage in percent, by kind of score and number of test rows; false calls in percent of clients."""
    clients, splits = (80, 2) if quick else (4000, 30)
    numbers: dict[str, Any] = {name: {} for name in SIMULATED}
    for name, (simulate, bound) in SIMULATED.items():
        for rows in ROWS:
            found, truth = simulate(np.random.default_rng(rows), clients, rows, bound)
            numbers[name][f"{rows} rows"] = covered(student_intervals(found), truth)
    numbers["percentile bootstrap, squared error"] = {f"{n} rows": _bootstrap(n, clients // 8) for n in ROWS}
    numbers |= {f"expected gain, {m} clients": _expected(m, 2000 // m if not quick else 2) for m in (4, 30, 300)}
    repeated = {f"{splits} splits": over_splits(splits, 2 if quick else 200) for splits in (2, 5, 10, 20)}
    numbers |= {f"repeated splits, {name}": held for name, held in repeated.items()}
    targets = [
        target
        for name in SIMULATED
        for rows, value in numbers[name].items()
        for target in (
            Target(f"{name}, {rows}", value, 93.0, "%", at_least=True),
            Target(f"{name}, {rows}", value, 99.5 if name in FEW_STEPS else 98.0, "%"),
        )
    ]
    for name, held in repeated.items():
        targets.append(Target(f"clients over {name}", held["clients"], 93.0, "%", at_least=True))
        targets.append(Target(f"clients over {name}", held["clients"], 98.0, "%"))
    for name, load in TABLES.items():
        try:
            numbers[name] = _table(load(), splits)
        except RequestError as error:  # the data files are not part of the package
            numbers[name] = str(error)
            continue
        targets.append(Target(f"{name}: falsely hurt, shuffled", numbers[name]["hurt, shuffled clients"], 5.0, "%"))
    return Result(numbers, tuple(targets))


def covered(found: Intervals, truth: Any) -> float:
    """Percent of the clients with an interval whose interval holds the truth."""
    known = ~np.isnan(found.low)
    return float(100 * np.mean(((found.low <= truth) & (truth <= found.high))[known]))


def _rows_right(draw: np.random.Generator, clients: int, rows: int, bound: float | None) -> tuple[Estimates, float]:
    """One model wins 20 % of the rows, the other 10 %."""
    drawn = draw.random((clients, rows))
    difference = (drawn < 0.2).astype(float) - (drawn > 0.9)
    return paired_estimates(difference, np.ones((clients, rows), bool), bound=bound), 0.1


def _squared(better: float) -> Callable[..., tuple[Estimates, float]]:
    """Two models with correlated normal errors; the second one's are `better` times as large."""

    def simulate(draw: np.random.Generator, clients: int, rows: int, bound: float | None) -> tuple[Estimates, float]:
        difference, truth = _errors(draw, clients, rows, better)
        return paired_estimates(difference, np.ones((clients, rows), bool), bound=bound), truth

    return simulate


def _errors(draw: np.random.Generator, clients: int, rows: int, better: float) -> Draw:
    noise = draw.normal(size=(2, clients, rows))
    return noise[0] ** 2 - (better * (0.8 * noise[0] + 0.6 * noise[1])) ** 2, 1 - better**2


def _areas(draw: np.random.Generator, clients: int, rows: int, bound: float | None) -> tuple[Estimates, float]:
    """Two equally good rankings of rows of which half are positive, so that the true gain is 0."""
    targets = (draw.random((clients, rows)) < 0.5).astype(np.int32)
    common, *own = draw.normal(size=(3, clients, rows))
    blocks = blocks_of(np.full(clients, rows), rows).astype(np.int32)
    score = jax.jit(jax.vmap(lambda *one: pseudo_values(auc, *one, int(blocks.max()) + 1)))
    logits = [0.7 * common + 0.7 * noise + targets for noise in own]
    values = [score(jnp.stack([jnp.zeros_like(z), z], axis=-1), targets, blocks) for z in map(jnp.asarray, logits)]
    difference = np.asarray(values[0]) - np.asarray(values[1])
    whole = ~np.isnan(difference).any(axis=1)
    return paired_estimates(difference[whole], np.ones(difference[whole].shape, bool), bound=bound), 0.0


SIMULATED: dict[str, tuple[Callable[..., tuple[Estimates, float]], float | None]] = {
    "accuracy": (_rows_right, 1.0),
    "squared error, level": (_squared(1.0), None),
    "squared error, a third less": (_squared(0.8), None),
    "squared error, three quarters less": (_squared(0.5), None),
    "auc": (_areas, 1.0),
}
FEW_STEPS = ("accuracy", "auc")  # scores of few rows move in steps: an interval of 95 % exactly does not exist


def _bootstrap(rows: int, clients: int) -> float:
    """The same of a percentile bootstrap over rows, for comparison."""
    difference, truth = _errors(np.random.default_rng(rows), clients, rows, 0.8)
    ends = [bootstrap_interval(line, np.random.default_rng(0), 500) for line in difference]
    return float(100 * np.mean([low <= truth <= high for low, high in ends]))


def _expected(clients: int, tables: int) -> dict[str, float]:
    """Expected gains of clients that differ, from 6 to 15 rows, one client in twenty an outlier."""
    draw, held, false, errors = np.random.default_rng(clients), [], [], []
    for _ in range(tables):
        truth = np.where(draw.random(clients) < 0.05, -1.5, 0.3 + 0.3 * draw.normal(size=clients))
        noise = draw.normal(size=(clients, 15)) * np.exp(0.4 * draw.normal(size=(clients, 1)))
        found = paired_estimates(truth[:, None] + noise, np.arange(15) < draw.integers(6, 16, clients)[:, None])
        expected, verdict = judge(found)
        held.append(covered(expected, truth))
        false.append(100 * np.mean((verdict == "hurt") & (truth >= 0)))
        errors.append([np.mean((values - truth) ** 2) for values in (expected.value, found.value)])
    shrunk, raw = np.mean(errors, axis=0)
    return {
        "coverage": float(np.mean(held)),
        "falsely hurt": float(np.mean(false)),
        "squared error, ratio": shrunk / raw,
    }


def _table(federation: Federation, splits: int) -> dict[str, float]:
    inputs, targets, owner = _all_rows(federation)
    plain = _splits(inputs, targets, owner, splits)
    shuffled = _splits(inputs, targets, np.random.default_rng(0).permutation(owner), splits)
    held = [covered(student_intervals(found), _elsewhere(plain, place)) for place, (found, _) in enumerate(plain)]
    return {
        "coverage of the mean gain on other splits": float(np.mean(held)),
        "hurt, shuffled clients": float(100 * np.mean([verdict == "hurt" for _, verdict in shuffled])),
        "helped, shuffled clients": float(100 * np.mean([verdict == "helped" for _, verdict in shuffled])),
        "hurt": float(100 * np.mean([verdict == "hurt" for _, verdict in plain])),
        "helped": float(100 * np.mean([verdict == "helped" for _, verdict in plain])),
    }


def _elsewhere(found: list[tuple[Estimates, np.ndarray]], place: int) -> np.ndarray:
    values = np.stack([one.value for other, (one, _) in enumerate(found) if other != place])
    known = ~np.isnan(values)
    return np.where(known, values, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)


def _all_rows(federation: Federation) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    parts = (federation.train, federation.validation, federation.test)
    owner = np.concatenate([np.repeat(np.arange(federation.clients), rows.counts) for rows in parts])
    inputs = np.concatenate([rows.inputs.reshape(len(rows.targets), -1) for rows in parts]).astype(float)
    targets = np.concatenate([rows.targets for rows in parts]).astype(float)
    if federation.task.kind == "classification":
        targets = 2.0 * targets - 1  # two classes, answered by the sign of a least-squares fit
    return np.hstack([inputs, np.ones((len(inputs), 1))]), targets, owner


def _splits(
    inputs: np.ndarray, targets: np.ndarray, owner: np.ndarray, splits: int
) -> list[tuple[Estimates, np.ndarray]]:
    """Ridge regressions: alone against a correction of the shared model, on other test rows each time."""
    of_classes = set(np.unique(targets)) == {-1.0, 1.0}
    found = []
    for split in range(splits):
        test = np.random.default_rng(split).random(len(owner)) < 0.2
        shared = _ridge(inputs[~test], targets[~test], 1.0)
        lines, learned = [], []
        for client in range(owner.max() + 1):
            train, held = (owner == client) & ~test, (owner == client) & test
            alone = _ridge(inputs[train], targets[train], 30.0)
            personal = shared + _ridge(inputs[train], targets[train] - inputs[train] @ shared, 30.0)
            answers = [inputs[held] @ model for model in (alone, personal)]
            losses = [(a * targets[held] < 0) if of_classes else (a - targets[held]) ** 2 for a in answers]
            learned.append(train.sum())
            lines.append(losses[0].astype(float) - losses[1].astype(float))
        width = max(map(len, lines))
        mask = np.arange(width) < np.asarray([len(line) for line in lines])[:, None]
        padded = np.stack([np.pad(line, (0, width - len(line))) for line in lines])
        estimates = paired_estimates(padded, mask, bound=1.0 if of_classes else None)
        estimates = one_split(estimates, mask.sum(axis=1) / np.maximum(learned, 1))
        found.append((estimates, judge(estimates)[1]))
    return found


def _ridge(inputs: np.ndarray, targets: np.ndarray, penalty: float) -> np.ndarray:
    return np.linalg.solve(inputs.T @ inputs + penalty * np.eye(inputs.shape[1]), inputs.T @ targets)


TABLES: dict[str, Callable[[], Federation]] = {"school": school, "vehicle": vehicle}
