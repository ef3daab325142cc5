# SPDX-License-Identifier: Apache-2.0
"""Every client's gain over training alone and over one model for all, paired on its test rows, and the verdict."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from idiolect.data.federation import Federation
from idiolect.experiments.trained import Trained
from idiolect.experiments.units import unit
from idiolect.metrics import SCORES, Estimates, gains, judge, paired_estimates, pseudo_values, student_intervals
from idiolect.metrics.jackknife import blocks_of
from idiolect.metrics.paired import Intervals, within
from idiolect.metrics.resampled import one_split, with_folds
from idiolect.metrics.shrinkage import moderated
from idiolect.objectives import GlobalModel

# methods whose personal model is the one shared model, the first that was run is *one model for all*
ONE_MODEL = (
    *("fedavg", "local_sgd", "fedprox", "scaffold", "minibatch_sgd"),
    *("scaffnew", "i_scaffnew", "fedadam", "fedyogi"),
)

Chosen = Mapping[str, bool | None]


class Against(NamedTuple):
    """A method's clients against a reference: their mean gain over seeds with its interval."""

    reference: Trained
    gain: Intervals


class Judged(NamedTuple):
    """One method's clients: against training alone, against one model for all, what to expect, and the verdict."""

    alone: Against | None = None
    one: Against | None = None
    expected: Intervals | None = None
    verdict: np.ndarray | None = None  # (clients,) of `VERDICTS`, or '' without a gain


def judge_methods(
    trained: list[Trained], federation: Federation, score: str, chosen: Chosen, choose_by: str | None = None
) -> dict[str, Judged]:
    """Per label: how each client fares. A client's mean over seeds is one witness, its test rows are the evidence.

    Where `choose_by`, which the folds were scored by, is the score itself, their spread is evidence of its error too.
    """
    frame = _frame(federation, score)
    if choose_by == score:
        frame = frame._replace(fold_unit=unit(score, federation), fold_rows=federation.validation.counts)
    bound, entries = SCORES[score].bound, {entry.method.label: entry for entry in trained}
    # every method is compared with the same references: predictions are scored once each
    observed = functools.cache(lambda label: _observed(entries[label], federation, score, frame))
    judged = {}
    for label, entry in entries.items():
        parts: dict[str, Any] = {}
        for name, reference in zip(("alone", "one"), find_references(entry, trained, chosen)):
            if reference is None:
                continue
            estimates = _estimates(entry, reference, (observed(label), observed(reference.method.label)), score, frame)
            intervals = student_intervals(moderated(estimates))
            parts[name] = Against(reference, intervals if bound is None else within(intervals, bound))
            if name == "alone":
                parts["expected"], parts["verdict"] = judge(estimates)
        judged[label] = Judged(**parts)
    return judged


def find_references(entry: Trained, trained: list[Trained], chosen: Chosen) -> tuple[Trained | None, Trained | None]:
    """Training alone, and one model for all, to compare `entry` with; None where no method is that."""
    alone = [other for other in trained if other.method.alone]
    shared = [other for name in ONE_MODEL for other in trained if other.method.algorithm == name and _is_plain(other)]
    first = [other for other in shared if other.method.algorithm == shared[0].method.algorithm]
    return _reference(entry, alone, chosen), _reference(entry, first, chosen)


def _is_plain(entry: Trained) -> bool:
    """Whether every client predicts with the shared model: no fine-tuning, no objective with a personal block."""
    return entry.method.minimised is GlobalModel and not getattr(entry.runs[0].algorithm, "fine_tuning_steps", 0)


def _reference(entry: Trained, candidates: list[Trained], chosen: Chosen) -> Trained | None:
    """A sweep's chosen one, else one with the same settings, or the first; one that diverged only where all did."""
    best = [other for other in candidates if chosen[other.method.label]]
    same = [other for other in candidates if other.method.swept_values == entry.method.swept_values]
    # `min` takes the first: of those that did not diverge, the chosen one
    return min([*best, *same, *candidates], key=lambda other: other.diverged is not None, default=None)


class _Frame(NamedTuple):
    """How a score's evidence is laid out: rows, or blocks of rows that are left out in turn."""

    mask: np.ndarray  # (clients, observations)
    groups: np.ndarray | None  # rows with equal numbers are one observation
    blocks: np.ndarray | None  # (clients, rows) of a score that is no mean over rows
    targets: np.ndarray  # (clients, rows, ...)
    overlap: np.ndarray  # (clients,) test rows / rows that were learned from
    weights: np.ndarray | None = None  # (clients, rows)
    fold_unit: float = 0.0  # 1 of a fold's score in the table's units; 0: folds were not scored by this score
    fold_rows: np.ndarray | None = None  # (clients,) validation rows of a fold


def _frame(federation: Federation, score: str) -> _Frame:
    counts = federation.test.counts
    rows = int(counts.max(initial=0))
    mask = np.arange(rows) < counts[:, None]
    padded = federation.test.pad(np.arange(federation.test.clients), rows)
    targets, weights = padded.targets, padded.weights
    learned = federation.train.counts + federation.validation.counts
    overlap = counts / np.maximum(learned, np.maximum(counts, 1))  # at most 1
    groups = None
    if federation.groups is not None:
        groups = np.zeros(mask.shape, np.int64)
        groups[mask] = federation.groups[2]
    blocks = None
    if SCORES[score].per_row is None:
        blocks = blocks_of(counts, rows, groups)
        number = blocks.max(axis=1, initial=-1) + 1
        mask, groups = np.arange(max(int(number.max(initial=0)), 1)) < number[:, None], None
    elif weights is not None:
        mask = mask & (weights > 0)
    return _Frame(mask, groups, blocks, targets, overlap, weights)


def _observed(entry: Trained, federation: Federation, score: str, frame: _Frame) -> np.ndarray:
    """(clients, observations): what each row, or each block, says of the method; the mean over seeds."""
    program = _program(score, 0 if frame.blocks is None else frame.mask.shape[1])
    layout = frame.mask if frame.blocks is None else frame.blocks.astype(np.int32)
    weights = () if frame.blocks is None or frame.weights is None else (jnp.asarray(frame.weights),)
    targets, found = jnp.asarray(frame.targets), []
    for run in entry.runs:
        outputs = jnp.asarray(run.outputs(run.selected)["personal"])[:, : frame.targets.shape[1]]
        found.append(np.asarray(program(outputs, targets, layout, *weights), np.float64))
    return np.asarray(unit(score, federation) * np.mean(found, axis=0))


@functools.cache
def _program(score: str, blocks: int) -> Any:
    """Compiled once for all methods: what each row says (0 blocks), or each of so many blocks of rows."""
    known = SCORES[score]
    if not blocks:
        assert known.per_row is not None
        return jax.jit(jax.vmap(known.per_row))

    def observed(answers: Any, targets: Any, own: Any, *weights: Any) -> Any:
        return pseudo_values(lambda *rows: known.function(*rows, *weights), answers, targets, own, blocks)

    return jax.jit(jax.vmap(observed))


def _estimates(
    entry: Trained, reference: Trained, observed: tuple[np.ndarray, np.ndarray], score: str, frame: _Frame
) -> Estimates:
    """Paired gains; the value is that of the recorded scores, its error comes from the observations."""
    known = SCORES[score]
    ours, theirs = (one.scores(score).mean(axis=0) for one in (entry, reference))
    value = gains(ours, theirs, known.higher_is_better)
    if entry is reference:
        nothing = np.zeros(len(value))
        return Estimates(value, nothing, nothing, frame.mask.sum(axis=1), nothing)
    differences = gains(observed[0], observed[1], known.higher_is_better)
    # a block without which there is no score tells nothing
    whole = (np.isfinite(differences) | ~frame.mask).all(axis=1)
    found = paired_estimates(
        np.where(whole[:, None] & frame.mask, differences, 0.0),
        frame.mask,
        frame.groups,
        known.bound,
        frame.weights if frame.blocks is None else None,
    )
    error = np.where(whole & np.isfinite(value), found.error, np.nan)
    found = found._replace(value=value, error=error, freedom=np.where(whole, found.freedom, 0.0))
    folds = [np.asarray([] if one.choice is None else one.choice.folds, np.float64) for one in (entry, reference)]
    if frame.fold_rows is not None and len(folds[0]) == len(folds[1]) > 1:
        between = frame.fold_unit * gains(folds[0], folds[1], known.higher_is_better)
        found = with_folds(found, between, frame.fold_rows, frame.mask.sum(axis=1))
    return one_split(found, frame.overlap)
