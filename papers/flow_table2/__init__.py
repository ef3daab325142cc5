# SPDX-License-Identifier: Apache-2.0
"""Table 2 of Flow 2023 (5 and 6 in its appendix): accuracy of the shared and of the personal models."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from papers import flow_figures
from papers.cells import Cells
from papers.flow import FINE_TUNING
from papers.flow_summary import Summary
from papers.flow_tables import NAMES, PUBLISHED, Results, cell_text, fill, of_paper
from papers.flow_tables import check as check
from papers.reproduction import Measured, Progress, Spec, mean_and_half_width

FLOWS = ("flow", "flow_no_split", "flow_equal_steps", "flow_printed", "flow_momentum")
WIDTH = max(map(len, NAMES.values()))
AGAINST = {"flow_equal_steps": "fine_tuning_more_steps", "flow_momentum": "fine_tuning_momentum"}  # the like of it
CLAIMED = ("flow", "flow_equal_steps")  # at equal gradients, and at equal passes over the rows as in the paper


def measure(spec: Spec, progress: Progress, cells: Cells) -> Measured:
    """Table 2: accuracy of the shared model before and of the personal model after adaptation."""
    results = fill(spec, progress, cells)
    numbers = {}
    for name, row in results.table.items():
        tuned = row[FINE_TUNING]
        for label in [label for label in CLAIMED if label in row]:
            numbers[f"{name}_{label}_minus_fine_tuning"] = float(np.nanmean(row[label].above(tuned)))
            # before any row of a client has moved a parameter; fine-tuning's shared model is FedAvg's
            numbers[f"{name}_shared_{label}_minus_fedavg"] = row[label].shared_above(tuned)
        if routed := results.flow[name]:
            soft, hard = (100 * np.mean([np.nanmean(one[key]) for one in routed]) for key in ("soft", "hard"))
            numbers[f"{name}_soft_minus_hard"] = float(soft - hard)
    return Measured(numbers, results, _accuracy_text(results, spec))


def _accuracy_text(results: Results, spec: Spec) -> str:
    lines = []
    for name, row in results.table.items():
        lines.append(
            f"{name}: accuracy in per cent, mean over clients, then over seeds {spec['seeds']} (spread over seeds)"
        )
        lines.append(
            f"{'':{WIDTH}} {'shared':>14} {'personal':>14} {'worst tenth':>11} {'new: shared':>11} {'personal':>8} "
            f"{'MB':>7} {'paper':>13}   step"
        )
        for method, one in row.items():
            ours = f"{_spread(one.shared):>14} {_spread(one.personal):>14} {cell_text(one.worst_tenth):>11}"
            new = f"{cell_text(one.new_shared):>11} {cell_text(one.new_personal):>8}"
            published = PUBLISHED.get(name, {}).get(method, {})
            paper = f"{cell_text(published.get('shared'))} / {cell_text(published.get('personal'))}"
            lines.append(
                f"{NAMES[method]:{WIDTH}} {ours} {new} {one.megabytes:7.0f} {paper:>13}   {one.step:g}, {one.tuned}"
            )
        pairs = [(label, FINE_TUNING) for label in FLOWS] + list(AGAINST.items())
        lines += [_gap_text(row, *pair) for pair in pairs if set(pair) <= set(row)]
        lines.append(
            "Steps useful / executed: 1, since all clients make equally many; "
            f"{results.useful[name]:.2f} if rounds were epochs."
        )
        lines.append("")
    return "\n".join(lines).rstrip()


def _gap_text(row: Mapping[str, Summary], label: str, against: str) -> str:
    gap, half = mean_and_half_width(row[label].above(row[against]))
    return f"{NAMES[label]} minus {NAMES[against]}: {gap:+.1f} +- {half:.1f} points (95 % over clients)"


def _spread(values: np.ndarray) -> str:
    if not np.isfinite(values).all():
        return "-"
    return f"{values.mean():.1f} ({values.std():.1f})" if len(values) > 1 else f"{values.mean():.1f}"


def draw(spec: Spec, results: Results) -> Figure:
    """Shared and personal accuracy of every method, a panel per column."""
    return flow_figures.draw_accuracy(results.table, NAMES, of_paper(results, "personal"))
