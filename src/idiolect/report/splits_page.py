# SPDX-License-Identifier: Apache-2.0
"""A folder of repeated splits as one HTML page, in the frame of a run's."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from idiolect.report.page import fill_frame, write_page
from idiolect.report.privacy import EACH_SPLIT, TITLE
from idiolect.report.sections import LIMIT, e, facts_list, method_line, remarks_section, scrolling, table_head
from idiolect.report.splits_table import (
    TITLES,
    SplitsFound,
    answer,
    client_cells,
    legend,
    marked,
    method_cells,
    read_splits,
)
from idiolect.report.wording import NONE, plural


def build_splits_report(folder: str | os.PathLike[str]) -> Path:
    """Write report.html into the folder; return the page's path."""
    splits = read_splits(folder)
    return write_page(splits.path, render(splits), [])


def render(splits: SplitsFound) -> str:
    """The page as text."""
    found = splits.found
    facts = [f"Run {found['name']}", plural(found["splits"], "split"), plural(len(found["methods"]), "method")]
    facts.append(plural(found["all_clients"], "client"))
    return fill_frame(
        title=f"{found['name']}: idiolect, {plural(found['splits'], 'split')}",
        eyebrow=e(" · ".join(facts)),
        answer=e(answer(splits)),
        tiles=_tiles(splits),
        main=_main(splits),
        folder=splits.path.name,
    )


def _tiles(splits: SplitsFound) -> str:
    found, words, announced = splits.found, splits.words, splits.found["announced"]
    if announced is None:
        return ""
    times = next(line["announced"] for line in found["methods"] if line["method"] == announced["most"])
    shown = [("Announced most often", announced["most"], f"in {times} of {found['splits']} splits")]
    for title, key, about in (
        ("Against training alone", "gain", "the announced method"),
        ("Against one model", "gain_over_one", "the announced method"),
    ):
        gain = announced[key]
        if gain is not None:
            shown.append((title, words.signed(gain["mean"]), f"{about} {words.interval(gain['low'], gain['high'])}"))
    right = f"{announced['best_or_tied']} of {found['splits']} splits"
    shown.append(("Announced rightly", right, "best or within noise of it on test rows"))
    return "".join(
        f'<div class="tile"><span>{e(title)}</span><b>{e(value)}</b><span>{e(about)}</span></div>'
        for title, value, about in shown
    )


def _main(splits: SplitsFound) -> str:
    found = splits.found
    about = f'<p class="about">{e(legend(splits))}</p>'
    sections = [
        ("comparison", "Methods over all splits", about + _methods(splits)),
        ("splits", "Split by split", _each(splits)),
    ]
    if found["personalized"] is not None:
        sections.append(("clients", "Client by client", _clients(splits)))
    remarks = remarks_section((("Warnings", found["warnings"]), ("Notes on the data, first split", found["notes"])))
    facts = {key: found[key] for key in ("seeds", "score", "choose_by", "refit", "test_over_train")}
    sent = f"<p>{e(EACH_SPLIT)} <code>idiolect explain {e(splits.path.name)}</code> prints the first.</p>"
    later = [("privacy", TITLE, sent)]
    later += [("settings", "Settings", facts_list(facts) + _spec(splits.path))]
    later.append(("machine", "Machine", facts_list(_json(splits.path / "machine.json"))))
    return "".join(map(_section, sections)) + remarks + "".join(map(_section, later))


def _methods(splits: SplitsFound) -> str:
    head = table_head([("method", "", True), *((title, "", False) for title in TITLES)])
    lines = [method_line(marked(splits, line), method_cells(splits, line)) for line in splits.found["methods"]]
    return scrolling("Methods over all splits", head, lines)


def _each(splits: SplitsFound) -> str:
    """Every split's means on test rows, and whether its announcement was right."""
    found, words = splits.found, splits.words
    labels = [str(line["method"]) for line in found["methods"]]
    titles = [("split", "", True), ("announced", "", True), ("best on test rows", "", True), ("right", "", True)]
    head = table_head([*titles, *((label, words.title, False) for label in labels)])
    lines = []
    for line in found["each"]:
        right = {True: "yes, or within noise", False: "no", None: NONE}[line["best_or_tied"]]
        cells = [(line["means"][label], words.bare(line["means"][label])) for label in labels]
        texts = (line["announced"] or NONE, ", ".join(line["best"]) or NONE, right)
        lines.append(method_line(f"{line['folder']} (seed {line['seed']})", cells, before=texts))
    return scrolling("Split by split", head, lines)


def _clients(splits: SplitsFound) -> str:
    method, words = str(splits.found["personalized"]), splits.words
    rows = splits.of_method(method)
    about = (
        f'<p class="about">{e(method)}, means over splits. Helped, hurt: the interval of the expected gain excludes 0, '
        "and at most 5 % of such calls are false on average.</p>"
    )
    titles = ("splits", "training rows", words.title, "gain over alone [95 %]", "expected gain [95 %]")
    head = table_head([("client", "", True), *((title, "", False) for title in titles), ("verdict", "", True)])
    lines = []
    for row in rows[:LIMIT]:
        *texts, verdict = client_cells(words, row)
        values = (row["splits"], row["train_rows"], row["score"], row["gain"], row["gain_expected"])
        lines.append(method_line(str(row["client"]), zip(values, texts), (verdict,)))
    more = f"<p>{plural(len(rows) - LIMIT, 'more client')} in splits.parquet.</p>" if len(rows) > LIMIT else ""
    return about + scrolling("Client by client", head, lines) + more


def _section(part: tuple[str, str, str]) -> str:
    name, title, body = part
    return f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{e(title)}</h2>{body}</section>'


def _spec(folder: Path) -> str:
    path = folder / "spec.toml"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return f"<details><summary><b>spec.toml</b></summary><pre>{e(text)}</pre></details>" if text else ""


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
