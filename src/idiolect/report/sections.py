# SPDX-License-Identifier: Apache-2.0
"""The parts of a run's page as values that its template shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from idiolect.report.answer import Answer, level_with, nothing_right, traffic_bytes
from idiolect.report.clients import VERDICTS, ClientTable
from idiolect.report.columns import Column
from idiolect.report.folder import Run
from idiolect.report.html import LIMIT, Cell, Grid, Head, Row, Tile, facts, number, number_heads, text_cell, word_heads
from idiolect.report.table import ComparisonTable, title_of
from idiolect.report.wording import (
    NONE,
    ScoreWords,
    absent,
    count,
    finite,
    listed,
    megabytes,
    plural,
    score_words,
    size,
)

FLOPS = {"training": "a round", "adaptation": "to adapt", "prediction": "a prediction"}


def tiles(answer: Answer, words: ScoreWords) -> list[Tile]:
    """The four parts of the answer, one to a tile."""
    shown: list[Tile] = []
    if answer.best is not None:
        name = words.name.replace("_", " ")
        tied = f", within noise of {listed(list(answer.tied))}" if answer.tied else level_with(answer.best_level)
        title = "Chosen on validation rows" if answer.announced else "Best on average"
        shown.append(Tile(title, answer.best, f"{name} {words.show(answer.best_mean)}{tied}"))
        worst, best = f"{name} {words.show(answer.worst_decile)}", answer.worst_decile_best or NONE
        if nothing_right(answer.worst_decile, words):
            best = "no method"
        else:
            worst += level_with(answer.worst_decile_level)
        shown.append(Tile("Best for the worst tenth", best, worst))
    if answer.compared is not None:
        about = f"{answer.hurt or 'none'} clearly hurt; {answer.personalized} against alone"
        shown.append(Tile("Clearly helped", f"{answer.helped or 0:,} of {answer.compared:,} clients", about))
    if answer.traffic_bytes is not None:
        rounds = f"{NONE} rounds" if answer.rounds is None else plural(answer.rounds, "round")
        about = f"{answer.personalized}, {rounds}, all clients"
        shown.append(Tile("Communication", size(answer.traffic_bytes), about))
    return shown


def methods_grid(table: ComparisonTable, columns: tuple[Column, ...], label: str) -> Grid:
    """Methods against some columns, the best values marked; the first column is the method's label."""
    heads = [Head(title_of(columns, place), column.about, not place) for place, column in enumerate(columns)]
    rows = []
    for row, ((name, _), *texts) in zip(table.rows, table.cells(columns)):
        cells = []
        for column, (text, best) in zip(columns[1:], texts):
            shown, bracket, interval = text.partition(" [")  # quieter than the number before it
            value = number(getattr(row, column.key), shown)
            cells.append(value._replace(small=f"[{interval}" if bracket else "", mark="best" if best else ""))
        rows.append(Row(name, cells, row.method))
    return Grid(label, heads, rows)


def remarks(run: Run, missing: Sequence[str]) -> list[tuple[str, Sequence[str]]]:
    """Warnings, notes on the data, and what could not be found."""
    reason = run.summary.get("score_reason")
    return [
        ("Warnings", run.summary.get("warnings") or []),
        ("Notes", ([reason] if reason else []) + (run.summary.get("notes") or [])),
        ("What this report could not find", missing),
    ]


class ClientLine(NamedTuple):
    """One client before the page's script takes over."""

    client: str
    new: bool
    rows: str
    scores: Sequence[str]
    gain: str
    interval: str
    verdict: str


class ClientsShown(NamedTuple):
    """Controls and the first rows of one method's clients."""

    methods: Sequence[str]
    shown: int
    verdicts: Sequence[str]
    heads: Sequence[tuple[str, int | None]]  # with the place in the script's rows; None: the drawn gain
    lines: Sequence[ClientLine]


def clients(tables: Sequence[ClientTable], shown: int, words: ScoreWords) -> ClientsShown | None:
    """The table of one method's clients; None where there are no scores of single clients."""
    if not tables:
        return None
    unit = f" ({words.unit})" if words.unit else ""
    titles = ("client", "training rows", f"alone{unit}", f"shared{unit}", f"personal{unit}", "expected gain [95 %]")
    heads = (*((title, place) for place, title in enumerate(titles)), ("", None), ("verdict", 8))
    table = tables[shown]
    lines = [_client_line(table, m, words) for m in table.order()[:LIMIT]]
    return ClientsShown([one.method for one in tables], shown, ("", *VERDICTS), heads, lines)


def _client_line(table: ClientTable, m: int, words: ScoreWords) -> ClientLine:
    return ClientLine(
        client=str(table.client[m]),
        new=bool(table.held_out[m]),
        rows=NONE if absent(table.train_rows[m]) else f"{table.train_rows[m]:.0f}",
        scores=[words.bare(scores[m]) for scores in (table.alone, table.shared, table.personal)],
        gain=words.signed(table.expected[m]),
        interval=words.interval(table.expected_low[m], table.expected_high[m]),
        verdict=str(table.verdict[m]),
    )


def client_data(tables: Sequence[ClientTable], shown: int, words: ScoreWords) -> dict[str, object]:
    """Every method's clients for the page's script."""
    return {
        "limit": LIMIT,
        "shown": shown,
        "scale": words.scale,
        "decimals": int(words.specification[1]) if words.specification.endswith("f") else None,
        "methods": [{"method": table.method, "rows": _client_rows(table)} for table in tables],
    }


def _client_rows(table: ClientTable) -> list[list[str | float | None]]:
    gain = (table.expected, table.expected_low, table.expected_high)
    numbers = (table.alone, table.shared, table.personal, *gain)
    rows = []
    for m in range(len(table)):
        scores = [_rounded(values[m]) for values in numbers]
        trained = finite(float(table.train_rows[m]))
        trained = None if trained is None else round(trained)
        rows.append([str(table.client[m]), trained, *scores, str(table.verdict[m]), int(table.held_out[m])])
    return rows


def _rounded(value: float) -> float | None:
    """Six digits: more than is shown, a third of the page's size."""
    known = finite(float(value))
    return None if known is None else float(f"{known:.6g}")


_LEDGER = (
    *("rounds", "MB up", "MB down", "MB delivery", "MB per client"),
    *("gradients shared", "gradients personal", "gradients both", "useful steps %", "seconds"),
    *("bytes kept by a client", "bytes kept by the server", "bytes of a model"),
)


def ledger(run: Run) -> Grid:
    """Bytes, gradients and steps of every method."""
    members = len(run.names())  # new clients never communicated
    counted = any(entry.get("flops") for entry in run.methods)
    heads = [*word_heads(("method",)), *number_heads(_LEDGER)]
    if counted:
        heads += [Head(f"FLOPs, {what}", "Of one client, counted by the compiler.") for what in FLOPS.values()]
    rows = [Row(entry["method"], _ledger_cells(entry, members, counted)) for entry in run.methods]
    return Grid("What it cost", heads, rows)


def _ledger_cells(entry: dict[str, Any], members: int, counted: bool) -> list[Cell]:
    each = traffic_bytes(entry) / members if members else None
    sent = [entry.get(f"{way}_bytes") for way in ("upload", "download", "delivery")]
    executed, seconds = entry.get("executed_steps"), entry.get("seconds")
    useful = 100 * (entry.get("useful_steps") or 0) / executed if executed else None
    kept, flops = entry.get("storage") or {}, entry.get("flops") or {}
    gradients = [entry.get(f"gradients_{block}") for block in ("shared", "personal", "both")]
    counts = [kept.get(f"{who}_bytes") for who in ("client", "server", "model")]
    counts += [flops.get(what) for what in FLOPS] if counted else []
    return [
        number(entry.get("rounds"), count(entry.get("rounds"))),
        *(number(value, megabytes(value)) for value in (*sent, each)),
        *(number(value, count(value)) for value in gradients),
        number(useful, NONE if useful is None else f"{useful:.0f}"),
        number(seconds, NONE if absent(seconds) else f"{seconds:.3g}"),
        *(number(value, count(value)) for value in counts),
    ]


def seeds(run: Run) -> Grid:
    """Selected and last round, each seed, the shared model, new clients."""
    words = score_words(run.score)
    titles = ("mean, selected round", "95 % interval", "mean, last round", "shared model", "new clients")
    heads = [*word_heads(("method",)), *number_heads(titles), *word_heads(("each seed", "selected rounds"))]
    rows = []
    for entry in run.methods:
        low, high = entry.get("interval") or (None, None)
        interval = NONE if absent(low) or absent(high) else f"{words.bare(low)} to {words.bare(high)}"
        mean, last = (entry.get("score") or {}).get("mean"), entry.get("last_mean")
        shared, new = entry.get("shared_mean"), (entry.get("new_clients") or {}).get("mean")
        cells = [number(mean, words.bare(mean)), number(low, interval)]
        cells += [number(value, words.bare(value)) for value in (last, shared, new)]
        each = ", ".join(words.bare(value) for value in entry.get("seed_means") or []) or NONE
        rounds = ", ".join(str(one) for one in entry.get("selected_rounds") or []) or NONE
        rows.append(Row(entry["method"], [*cells, text_cell(each), text_cell(rounds)]))
    return Grid("Every seed, and the last round", heads, rows)


class MethodFacts(NamedTuple):
    """One method with its settings and reference."""

    label: str
    summary: str
    facts: Sequence[tuple[str, str]]


def settings(run: Run) -> list[MethodFacts]:
    """Each method with its settings and reference."""
    shown = []
    for entry in run.methods:
        reference = entry.get("reference") or entry.get("citation")
        values = {
            "algorithm": entry.get("algorithm"),
            "objective": entry.get("objective"),
            **(entry.get("settings") or {}),
            "seeds": entry.get("seeds"),
            "tuned": entry.get("tuned"),
            "diverged": entry.get("diverged"),
            "reference": reference
            or f"not recorded in the run folder; `idiolect explain {entry.get('algorithm')}` prints it",
        }
        shown.append(MethodFacts(entry["method"], entry.get("summary") or "", facts(values)))
    return shown
