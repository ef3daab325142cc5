# SPDX-License-Identifier: Apache-2.0
"""Variants of Flow (2023) beside each other on some columns: cells, a table of them, curves."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np

from papers import flow
from papers.cells import Cell, Cells, in_processes
from papers.flow import Column, Variant
from papers.reproduction import Progress, Spec, mean_and_half_width

Found = dict[str, dict[str, list[Cell]]]  # column -> label -> a cell per seed


class Comparison(NamedTuple):
    """Which variants stand beside each other, and how."""

    variants: Mapping[str, Variant]  # by the label of their row
    steps_of: Mapping[str, str]  # label -> the one whose step it takes; others choose their own
    soft: Collection[str] = ()  # labels that are asked for soft answers too

    def tuned(self, label: str) -> Variant:
        """The variant by which the step of a row is chosen."""
        return self.variants[self.steps_of.get(label, label)]


def fill(spec: Spec, use: str, comparison: Comparison, progress: Progress, cells: Cells) -> Found:
    """Compute what is missing, steps first, in processes where the size says so, and read it all."""
    sizes, processes, settings = flow.columns(spec, use), flow.processes(spec), dict(spec)
    # a row's columns are one task: those of one shape share what was compiled; no two processes look for the same step
    rows = {label: [name for name, size in sizes.items() if flow.has_row(size, label)] for label in comparison.variants}
    steps = {f"steps of {label}": (label, rows[label]) for label in rows if label not in comparison.steps_of}
    in_processes(functools.partial(_choose_steps, settings, cells, comparison), steps, **processes, told=progress)
    tasks = {label: (label, named) for label, named in rows.items()}
    in_processes(functools.partial(_fill_row, settings, cells, comparison), tasks, **processes, told=progress)
    return {
        name: {
            label: _row(flow.column(name, spec), label, comparison, spec, cells)
            for label, named in rows.items()
            if name in named
        }
        for name in sizes
    }


def _choose_steps(spec: Spec, cells: Cells, comparison: Comparison, task: tuple[str, list[str]]) -> None:
    label, named = task
    for name in named:
        flow.best_step(flow.column(name, spec), comparison.variants[label], spec, cells)


def _fill_row(spec: Spec, cells: Cells, comparison: Comparison, task: tuple[str, list[str]]) -> None:
    label, named = task
    for name in named:
        _row(flow.column(name, spec), label, comparison, spec, cells)


def _row(subject: Column, label: str, comparison: Comparison, spec: Spec, cells: Cells) -> list[Cell]:
    step = flow.best_step(subject, comparison.tuned(label), spec, cells)
    soft = label in comparison.soft
    return flow.cells_of(subject, comparison.variants[label], spec, cells, step=step, soft=soft)


def accuracy(own: list[Cell], key: str) -> np.ndarray:
    """(seeds,): per cent, mean over clients; not-a-number where the method has no such model."""
    if own[0][key] is None:
        return np.full(len(own), np.nan)
    return 100 * np.array([np.nanmean(np.array(one[key], float)) for one in own])


def taken(own: list[Cell]) -> float:
    """How often the shared version of a layer is taken, over rows, layers and seeds."""
    return float(np.mean([np.mean(one["taken"]) for one in own]))


def table_text(name: str, row: Mapping[str, list[Cell]], against: str = "") -> str:
    """Accuracies of one column; with `against`, each row's gain over that one with its 95 % interval over clients."""
    lines = [f"{name}: accuracy in per cent, mean over clients and seeds (spread over seeds)"]
    head = f"{'':21} {'shared':>13} {'personal':>13} {'new clients':>12} {'soft':>7} {'shared route':>13} {'step':>6}"
    lines.append(head + (f"   gain over {against}" if against else ""))
    for label, own in row.items():
        values = " ".join(f"{_spread(accuracy(own, key)):>13}" for key in ("shared", "personal"))
        new = _spread(accuracy(own, "new_personal"))
        soft = f"{accuracy(own, 'soft').mean():.1f}" if "soft" in own[0] else "-"
        route = f"{taken(own):.2f}" if "taken" in own[0] else "-"
        line = f"{label:21} {values} {new:>12} {soft:>7} {route:>13} {own[0]['step']:>6g}"
        if against and label != against:
            mean, half = gain(own, row[against])
            line += f"   {mean:+.1f} [{mean - half:+.1f}, {mean + half:+.1f}]"
        lines.append(line)
    return "\n".join(lines)


def gain(own: list[Cell], other: list[Cell]) -> tuple[float, float]:
    """Mean difference of personal accuracy in points, paired by client and averaged over seeds, and half its interval.

    Clients share the shared model: the interval is about other clients of this kind, not about another training run.
    """
    ours, theirs = (100 * np.nanmean(np.array([one["personal"] for one in cells], float), 0) for cells in (own, other))
    return mean_and_half_width(ours - theirs)


def curve(own: list[Cell]) -> tuple[np.ndarray, np.ndarray]:
    """Recorded rounds, and validation accuracy of personal models, mean over seeds."""
    history = np.array([[line[:2] for line in one["history"]] for one in own], float)
    return history[0, :, 0], 100 * history[:, :, 1].mean(axis=0)


def _spread(values: np.ndarray) -> str:
    return f"{values.mean():.1f} ({values.std():.1f})" if np.isfinite(values).all() else "-"
