# SPDX-License-Identifier: Apache-2.0
"""Table 3 of Flow 2023 (7 in its appendix): for how many clients the personal model is the better one."""

from __future__ import annotations

from matplotlib.figure import Figure

from papers import flow_figures
from papers.cells import Cells
from papers.flow_tables import NAMES, PUBLISHED, Results, cell_text, fill, of_paper
from papers.flow_tables import check as check
from papers.reproduction import Measured, Progress, Spec


def measure(spec: Spec, progress: Progress, cells: Cells) -> Measured:
    """Table 3: for how many clients the personal model is better than the shared one."""
    results = fill(spec, progress, cells)
    numbers = {f"{name}_flow_helped": row["flow"].helped for name, row in results.table.items() if "flow" in row}
    return Measured(numbers, results, _helped_text(results))


def _helped_text(results: Results) -> str:
    lines = []
    for name, row in results.table.items():
        lines.append(f"{name}: per cent of clients, then of test rows")
        lines.append(
            f"{'':14} {'helped':>7} {'hurt':>7} {'paper':>7}    {'both':>7} {'shared only':>11} {'personal only':>13} "
            f"{'neither':>8}"
        )
        for method, one in row.items():
            rows = None if one.rows is None else {key: 100 * float(part) for key, part in one.rows.fractions().items()}
            parts = [None] * 4 if rows is None else list(rows.values())
            shares = " ".join(f"{cell_text(part):>{width}}" for part, width in zip(parts, (7, 11, 13, 8)))
            paper = PUBLISHED.get(name, {}).get(method, {}).get("helped")
            clients = " ".join(f"{cell_text(part):>7}" for part in (one.helped, one.hurt, paper))
            lines.append(f"{NAMES[method]:14} {clients}    {shares}")
        lines.append("")
    return "\n".join(lines).rstrip()


def draw(spec: Spec, results: Results) -> Figure:
    """Clients helped and hurt, and who gets which rows right."""
    return flow_figures.draw_helped(results.table, NAMES, of_paper(results, "helped"))
