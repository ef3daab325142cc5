# SPDX-License-Identifier: Apache-2.0
"""Every client's gain over training alone and over one model for all, paired on its test rows, and the verdict."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from idiolect.algorithms import find
from idiolect.data.federation import Federation
from idiolect.engines.simulate import Run
from idiolect.experiments.candidates import LOCAL
from idiolect.experiments.trained import Trained, mean_answer
from idiolect.experiments.units import unit
from idiolect.metrics.jackknife import blocks_of, pseudo_values
from idiolect.metrics.paired import Estimates, Intervals, paired_estimates, student_intervals, within
from idiolect.metrics.resampled import one_split, with_folds
from idiolect.metrics.scores import SCORES
from idiolect.metrics.shrinkage import moderated
from idiolect.metrics.summary import gains
from idiolect.metrics.verdicts import judge

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
    # every method is compared with the same references: predictions are scored once each
    observed = functools.cache(lambda place: _observed(trained[place], federation, score, frame))
    places = {entry.method.label: place for place, entry in enumerate(trained)}

    def against(entry: Trained, reference: Trained) -> Estimates:
        ours, theirs = (observed(places[one.method.label]) for one in (entry, reference))
        return _estimates(entry, reference, (ours, theirs), score, frame)

    judged = {}
    for entry in trained:
        found = Judged()
        alone, one = alone_for(entry, trained, chosen), one_for(entry, trained, chosen)
        if alone is not None:
            estimates = against(entry, alone)
            expected, verdict = judge(estimates)
            found = found._replace(alone=_shown(alone, estimates, score), expected=expected, verdict=verdict)
        if one is not None:
            found = found._replace(one=_shown(one, against(entry, one), score))
        judged[entry.method.label] = found
    return judged


def alone_for(entry: Trained, trained: list[Trained], chosen: Chosen) -> Trained | None:
    """Training alone, to compare `entry` with."""
    return _reference(entry, [other for other in trained if other.method.algorithm == LOCAL], chosen)


def one_for(entry: Trained, trained: list[Trained], chosen: Chosen) -> Trained | None:
    """One model for all, to compare `entry` with."""
    candidates = sorted(filter(is_one_model, trained), key=lambda other: ONE_MODEL.index(other.method.algorithm))
    first = [other for other in candidates if other.method.algorithm == candidates[0].method.algorithm]
    return _reference(entry, first, chosen)


def is_one_model(entry: Trained) -> bool:
    """Whether every client predicts with the shared model: no fine-tuning, no objective with a personal block."""
    if entry.method.algorithm not in ONE_MODEL:
        return False
    objective = entry.method.objective or find(entry.method.algorithm).objective
    tuned = getattr(entry.runs[0].algorithm, "fine_tuning_steps", 0)
    return objective == "global_model" and not tuned


def _reference(entry: Trained, candidates: list[Trained], chosen: Chosen) -> Trained | None:
    """A sweep's chosen one, else one with the same settings, or the first; one that diverged only where all did."""
    swept = _swept_values(entry)
    best = [other for other in candidates if chosen[other.method.label]]
    same = [other for other in candidates if _swept_values(other) == swept]
    # sorting is stable: of those that did not diverge, the chosen one stays first
    ranked = sorted([*best, *same, *candidates], key=lambda other: other.diverged is not None)
    return next(iter(ranked), None)


def _swept_values(entry: Trained) -> dict[str, Any]:
    """The settings that a sweep varied, with their values; nothing where there was none."""
    swept = entry.method.swept
    return {} if swept is None else {name: entry.method.settings[name] for name in swept.settings}


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
    if SCORES[score].per_row is not None:
        return _Frame(mask if weights is None else mask & (weights > 0), groups, None, targets, overlap, weights)
    blocks = blocks_of(counts, rows, groups)
    number = blocks.max(axis=1, initial=-1) + 1
    return _Frame(
        np.arange(max(int(number.max(initial=0)), 1)) < number[:, None], None, blocks, targets, overlap, weights
    )


def _observed(entry: Trained, federation: Federation, score: str, frame: _Frame) -> np.ndarray:
    """(clients, observations): what each row, or each block, says of the method; the mean over seeds."""
    scale = unit(score, federation)
    return scale * np.mean([_of_run(run, score, frame) for run in entry.runs], axis=0)


def _of_run(run: Run, score: str, frame: _Frame) -> np.ndarray:
    outputs = jnp.asarray(run.outputs(run.selected)["personal"])[:, : frame.targets.shape[1]]
    by_block = frame.blocks is not None
    program = _program(score, frame.mask.shape[1] if by_block else 0)
    layout = frame.mask if frame.blocks is None else frame.blocks.astype(np.int32)
    weights = () if frame.blocks is None or frame.weights is None else (jnp.asarray(frame.weights),)
    return np.asarray(program(outputs, jnp.asarray(frame.targets), layout, *weights), np.float64)


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
    value = gains(mean_answer(entry, score), mean_answer(reference, score), known.higher_is_better)
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


def _shown(reference: Trained, estimates: Estimates, score: str) -> Against:
    found, bound = student_intervals(moderated(estimates)), SCORES[score].bound
    return Against(reference, found if bound is None else within(found, bound))
