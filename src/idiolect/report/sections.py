# SPDX-License-Identifier: Apache-2.0
"""The parts of the page as HTML; every string that came from a user passes through `e`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from idiolect.report.answer import Answer, level_with, nothing_right, traffic_bytes
from idiolect.report.clients import VERDICTS, ClientTable
from idiolect.report.columns import Column
from idiolect.report.figures import Drawn
from idiolect.report.folder import Run
from idiolect.report.style import for_page
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

LIMIT = 100  # clients shown before "show all"
FLOPS = {"training": "a round", "adaptation": "to adapt", "prediction": "a prediction"}


def e(value: Any) -> str:
    """Text made harmless for an element or an attribute."""
    return escape(str(value), quote=True)


def tiles(answer: Answer, words: ScoreWords) -> str:
    """The four parts of the answer, one to a tile."""
    shown: list[tuple[str, str, str]] = []
    if answer.best is not None:
        name = words.name.replace("_", " ")
        tied = f", within noise of {listed(list(answer.tied))}" if answer.tied else level_with(answer.best_level)
        title = "Chosen on validation rows" if answer.announced else "Best on average"
        shown.append((title, answer.best, f"{name} {words.show(answer.best_mean)}{tied}"))
        worst, best = f"{name} {words.show(answer.worst_decile)}", answer.worst_decile_best or NONE
        if nothing_right(answer.worst_decile, words):
            best = "no method"
        else:
            worst += level_with(answer.worst_decile_level)
        shown.append(("Best for the worst tenth", best, worst))
    if answer.compared is not None:
        about = f"{answer.hurt or 'none'} clearly hurt; {answer.personalized} against alone"
        shown.append(("Clearly helped", f"{answer.helped or 0:,} of {answer.compared:,} clients", about))
    if answer.traffic_bytes is not None:
        rounds = f"{NONE} rounds" if answer.rounds is None else plural(answer.rounds, "round")
        about = f"{answer.personalized}, {rounds}, all clients"
        shown.append(("Communication", size(answer.traffic_bytes), about))
    return "".join(
        f'<div class="tile"><span>{e(title)}</span><b>{e(value)}</b><span>{e(about)}</span></div>'
        for title, value, about in shown
    )


def comparison(table: ComparisonTable) -> str:
    """The comparison table, sortable, its best values marked."""
    return methods_table(table, table.columns, "Methods side by side")


def methods_table(table: ComparisonTable, columns: tuple[Column, ...], label: str) -> str:
    """Methods against some columns, sortable, the best values marked."""
    head = [(title_of(columns, place), column.about, column.key == "method") for place, column in enumerate(columns)]
    lines = []
    for row, cells in zip(table.rows, table.cells(columns)):
        parts = []
        for column, (text, best) in zip(columns, cells):
            value = getattr(row, column.key)
            value = "" if value is None or value != value else value
            if column.key == "method":
                parts.append(f'<th scope="row" data-value="{e(value)}">{e(text)}</th>')
            else:
                kind = ' class="best"' if best else ""
                mark = '<span class="skip">best: </span>' if best else ""
                parts.append(f'<td{kind} data-value="{e(value)}">{mark}{_small(text)}</td>')
        lines.append(f"<tr>{''.join(parts)}</tr>")
    return scrolling(label, table_head(head), lines)


def remarks(run: Run, missing: Sequence[str]) -> str:
    """Warnings, notes on the data, and what could not be found; nothing when there are none."""
    reason = run.summary.get("score_reason")
    groups = (
        ("Warnings", run.summary.get("warnings") or []),
        ("Notes", ([reason] if reason else []) + (run.summary.get("notes") or [])),
        ("What this report could not find", missing),
    )
    return remarks_section(groups)


def remarks_section(groups: Sequence[tuple[str, Sequence[str]]]) -> str:
    """Sentences under headings; nothing where there are none."""
    body = "".join(
        f"<h3>{e(title)}</h3><ul>{''.join(f'<li>{e(line)}</li>' for line in lines)}</ul>"
        for title, lines in groups
        if lines
    )
    if not body:
        return ""
    title = '<h2 id="remarks-title">To keep in mind</h2>'
    return f'<section id="remarks" aria-labelledby="remarks-title">{title}{body}</section>'


def figures(drawn: Iterable[Drawn]) -> str:
    """The figures inline, with links to their files."""
    parts = [
        f'<figure id="figure-{one.name}"><h3>{e(one.title)}</h3>'
        f'<div class="plot">{for_page(one.svg, one.name, e(f"{one.title}. {one.caption}"))}</div>'
        f'<figcaption>{e(one.caption)} <a href="figures/{one.name}.png">PNG</a> · '
        f'<a href="figures/{one.name}.svg">SVG</a></figcaption></figure>'
        for one in drawn
    ]
    return "".join(parts) or "<p>There was nothing to draw.</p>"


def clients(tables: Sequence[ClientTable], shown: int, words: ScoreWords) -> str:
    """Controls and the table of one method's clients; the page's script takes over from these first rows."""
    if not tables:
        return "<p>The run folder holds no scores of single clients.</p>"
    choices = "".join(
        f'<option value="{place}"{" selected" if place == shown else ""}>{e(table.method)}</option>'
        for place, table in enumerate(tables)
    )
    buttons = "".join(
        f'<button type="button" data-verdict="{verdict}" aria-pressed="false">{verdict or "all"}</button>'
        for verdict in ("", *VERDICTS)
    )
    unit = f" ({words.unit})" if words.unit else ""
    heads: tuple[tuple[str, int | None], ...] = (
        ("client", 0),
        ("training rows", 1),
        (f"alone{unit}", 2),
        (f"shared{unit}", 3),
    )
    heads += ((f"personal{unit}", 4), ("expected gain [95 %]", 5), ("", None), ("verdict", 8))
    head = "".join(
        '<th scope="col"><span class="skip">gain, drawn</span></th>'
        if column is None
        else f'<th scope="col" data-column="{column}"{_kind(column in (0, 8))}>'
        f'<button type="button">{e(title)}</button></th>'
        for title, column in heads
    )
    table = tables[shown]
    lines = [_client_line(table, m, words) for m in table.order()[:LIMIT]]
    return (
        '<div class="controls" id="client-controls" hidden>'
        f'<label>Method <select id="client-method">{choices}</select></label>'
        '<label>Search <input id="client-search" type="search" placeholder="client name" autocomplete="off"></label>'
        f'<div role="group" aria-label="Filter by verdict">{buttons}</div>'
        '<span id="client-count" class="about" role="status"></span></div>'
        '<div class="scroll" tabindex="0" role="region" aria-label="Client by client"><table id="client-table">'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
        '<button type="button" class="more" id="client-more" hidden>Show all</button>'
    )


def client_data(tables: Sequence[ClientTable], shown: int, words: ScoreWords) -> str:
    """Every method's clients as JSON that is safe inside a script element."""
    decimals = int(words.specification[1]) if words.specification.endswith("f") else None
    data = {
        "limit": LIMIT,
        "shown": shown,
        "scale": words.scale,
        "decimals": decimals,
        "methods": [{"method": table.method, "rows": _client_rows(table)} for table in tables],
    }
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    # '<' could close the element and '&' read as an entity in XHTML; both are the same JSON when escaped.
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def ledger(run: Run) -> str:
    """Bytes, gradients and steps of every method."""
    members = len(run.names())  # new clients never communicated
    head = [("method", "", True)] + [
        (title, "", False)
        for title in (
            "rounds",
            "MB up",
            "MB down",
            "MB delivery",
            "MB per client",
            "gradients shared",
            "gradients personal",
            "gradients both",
            "useful steps %",
            "seconds",
            "bytes kept by a client",
            "bytes kept by the server",
            "bytes of a model",
        )
    ]
    counted = any(entry.get("flops") for entry in run.methods)
    titles = [(f"FLOPs, {what}", "Of one client, counted by the compiler.", False) for what in FLOPS.values()]
    head += titles if counted else []
    lines = []
    for entry in run.methods:
        total, executed = traffic_bytes(entry), entry.get("executed_steps")
        each = total / members if members else None
        useful = 100 * (entry.get("useful_steps") or 0) / executed if executed else None
        cells = [(entry.get("rounds"), count(entry.get("rounds")))]
        cells += [(n, megabytes(n)) for n in (entry.get(f"{way}_bytes") for way in ("upload", "download", "delivery"))]
        cells.append((each, megabytes(each)))
        cells += [(n, count(n)) for n in (entry.get(f"gradients_{block}") for block in ("shared", "personal", "both"))]
        cells.append((useful, NONE if useful is None else f"{useful:.0f}"))
        seconds = entry.get("seconds")
        cells.append((seconds, NONE if absent(seconds) else f"{seconds:.3g}"))
        kept, flops = entry.get("storage") or {}, entry.get("flops") or {}
        cells += [(n, count(n)) for n in (kept.get(f"{who}_bytes") for who in ("client", "server", "model"))]
        cells += [(n, count(n)) for n in (flops.get(what) for what in FLOPS)] if counted else []
        lines.append(method_line(entry["method"], cells))
    return scrolling("What it cost", table_head(head), lines)


def seeds(run: Run) -> str:
    """Selected and last round, each seed, the shared model, new clients."""
    words = score_words(run.score)
    titles = ("mean, selected round", "95 % interval", "mean, last round", "shared model", "new clients")
    head = [("method", "", True), *((title, "", False) for title in titles)]
    head += [("each seed", "", True), ("selected rounds", "", True)]
    lines = []
    for entry in run.methods:
        low, high = entry.get("interval") or (None, None)
        interval = NONE if absent(low) or absent(high) else f"{words.bare(low)} to {words.bare(high)}"
        mean, last = (entry.get("score") or {}).get("mean"), entry.get("last_mean")
        shared, new = entry.get("shared_mean"), (entry.get("new_clients") or {}).get("mean")
        cells = [(mean, words.bare(mean)), (low, interval)]
        cells += [(value, words.bare(value)) for value in (last, shared, new)]
        each = ", ".join(words.bare(value) for value in entry.get("seed_means") or []) or NONE
        rounds = ", ".join(str(number) for number in entry.get("selected_rounds") or []) or NONE
        lines.append(method_line(entry["method"], cells, (each, rounds)))
    return scrolling("Every seed, and the last round", table_head(head), lines)


def settings(run: Run) -> str:
    """Each method with its settings and reference, then the resolved spec."""
    parts = []
    for entry in run.methods:
        reference = entry.get("reference") or entry.get("citation")
        facts = {
            "algorithm": entry.get("algorithm"),
            "objective": entry.get("objective"),
            **(entry.get("settings") or {}),
            "seeds": entry.get("seeds"),
            "tuned": entry.get("tuned"),
            "diverged": entry.get("diverged"),
            "reference": reference
            or f"not recorded in the run folder; `idiolect explain {entry.get('algorithm')}` prints it",
        }
        title = f"<b>{e(entry['method'])}</b> {e(entry.get('summary') or '')}"
        parts.append(f"<details><summary>{title}</summary>{facts_list(facts)}</details>")
    if run.spec_text:
        parts.append(f"<details><summary><b>spec.toml</b> as resolved</summary><pre>{e(run.spec_text)}</pre></details>")
    return "".join(parts)


def facts_list(facts: dict[str, Any]) -> str:
    """Names and values; nested ones are written as JSON, absent ones are left out."""
    lines = []
    for name, value in facts.items():
        if value is None:
            continue
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        lines.append(f"<dt>{e(str(name).replace('_', ' '))}</dt><dd>{e(text)}</dd>")
    return f"<dl>{''.join(lines)}</dl>" if lines else "<p>Not recorded.</p>"


def _client_rows(table: ClientTable) -> list[list[Any]]:
    gain = (table.expected, table.expected_low, table.expected_high)
    numbers = (table.alone, table.shared, table.personal, *gain)
    rows = []
    for m in range(len(table)):
        scores = [_rounded(values[m]) for values in numbers]
        trained = finite(float(table.train_rows[m]))
        number = None if trained is None else round(trained)
        rows.append([str(table.client[m]), number, *scores, str(table.verdict[m]), int(table.held_out[m])])
    return rows


def _rounded(value: float) -> float | None:
    """Six digits: more than is shown, a third of the page's size."""
    known = finite(float(value))
    return None if known is None else float(f"{known:.6g}")


def _client_line(table: ClientTable, m: int, words: ScoreWords) -> str:
    interval = words.interval(table.expected_low[m], table.expected_high[m])
    gain = words.signed(table.expected[m]) + (f" <small>{e(interval)}</small>" if interval else "")
    scores = "".join(f"<td>{e(words.bare(v[m]))}</td>" for v in (table.alone, table.shared, table.personal))
    verdict = str(table.verdict[m])
    held_out = " <small>new</small>" if table.held_out[m] else ""
    rows = NONE if absent(table.train_rows[m]) else f"{table.train_rows[m]:.0f}"
    return (
        f'<tr><th scope="row">{e(table.client[m])}{held_out}</th><td>{rows}</td>{scores}<td>{gain}</td><td></td>'
        f'<td class="words {e(verdict)}">{e(verdict or NONE)}</td></tr>'
    )


def table_head(columns: Sequence[tuple[str, str, bool]]) -> str:
    """Headings to sort by: (title, what it means, whether it holds words)."""
    return "".join(
        f'<th scope="col"{_kind(words)}{f" title={chr(34)}{e(about)}{chr(34)}" if about else ""}>'
        f'<button type="button">{e(title)}</button></th>'
        for title, about, words in columns
    )


def _kind(words: bool) -> str:
    return ' data-kind="words" class="words"' if words else ""


def method_line(
    method: str, cells: Iterable[tuple[Any, str]], words: Iterable[str] = (), before: Iterable[str] = ()
) -> str:
    """A row: the method, words before the numbers, the numbers with how they read, words after them."""
    parts = [f'<th scope="row" data-value="{e(method)}">{e(method)}</th>']
    parts += [f'<td class="words" data-value="{e(text)}">{e(text)}</td>' for text in before]
    for value, text in cells:
        parts.append(f'<td data-value="{"" if absent(value) else e(value)}">{e(text)}</td>')
    parts += [f'<td class="words" data-value="{e(text)}">{e(text)}</td>' for text in words]
    return f"<tr>{''.join(parts)}</tr>"


def _small(text: str) -> str:
    """An interval in brackets, quieter than the number before it."""
    number, bracket, interval = text.partition(" [")
    return e(number) + (f" <small>[{e(interval)}</small>" if bracket else "")


def scrolling(label: str, head: str, lines: Sequence[str]) -> str:
    """A sortable table that scrolls by itself on a narrow screen."""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{e(label)}"><table class="sortable">'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )
