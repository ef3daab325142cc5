# SPDX-License-Identifier: Apache-2.0
"""A folder of `idiolect advise` as one HTML page: the answer, the clients, the map, what test rows say."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from idiolect.report.advise_figure import drawn_map
from idiolect.report.advise_table import (
    WORDS,
    Advised,
    advice_words,
    answer,
    gain_words,
    read_advice,
    technical,
    tested_words,
    upper,
    verification,
    with_whom,
)
from idiolect.report.figures import Drawn
from idiolect.report.page import fill_frame, write_page
from idiolect.report.privacy import privacy_section, read_statement
from idiolect.report.sections import LIMIT, e, facts_list, figures, scrolling, table_head
from idiolect.report.wording import count, plural, size

_NAMED = 8  # neighbours in a line of the page


def build_advice_report(folder: str | os.PathLike[str]) -> Path:
    """Write figures/map.png, map.svg and report.html into a folder of advice; return the page's path."""
    advised = read_advice(folder)
    drawn = drawn_map(advised)
    return write_page(advised.path, render(advised, drawn), [drawn])


def render(advised: Advised, drawn: Drawn) -> str:
    """The page as text."""
    found = advised.found
    facts = [f"Advice on {found['name']}", plural(found["all_clients"], "client"), f"split {found['seed']}"]
    return fill_frame(
        title=f"{found['name']}: idiolect advise",
        eyebrow=e(" · ".join(facts)),
        answer=e(answer(advised)[0]),
        tiles=_tiles(advised),
        main=_main(advised, drawn),
        folder=advised.path.name,
    )


def _tiles(advised: Advised) -> str:
    found, words = advised.found, advised.words
    alone, gain = found["mean_loss"]["alone"], found["mean_gain"]
    shown = [(WORDS[way], f"{found['picks'][way]:,}", "clients") for way in ("neighbours", "everybody", "alone")]
    shown.append(
        ("expected gain", words.signed(gain), f"{100 * gain / max(alone, 1e-300):.2g} % of {advised.score} alone")
    )
    if found["verify"] is not None:
        saved = found["verify"]["saved_against"]["always alone"]
        shown.append(("on test rows", words.signed(saved["mean"]), "saved against training alone"))
    return "".join(
        f'<div class="tile"><span>{e(upper(title))}</span><b>{e(value)}</b><span>{e(about)}</span></div>'
        for title, value, about in shown
    )


def _main(advised: Advised, drawn: Drawn) -> str:
    found = advised.found
    unsure = "".join(f'<p class="about">{e(line)}</p>' for line in answer(advised)[1:])
    sections = [("clients", "Client by client", unsure + _clients(advised)), ("figures", "The map", figures([drawn]))]
    if found["verify"] is not None:
        sections.append(("verification", "On test rows", _verification(advised)))
    doubts = [text.removeprefix("Warning: ") for text in found["notes"] if text.startswith("Warning: ")]
    notes = [text for text in found["notes"] if not text.startswith("Warning: ")]
    folds = [("Warnings", _lines(doubts), True), ("Notes on the data", _lines(notes), False)]
    folds += [("Details for specialists", _lines(technical(advised)), False), ("spec.toml", _spec(advised.path), False)]
    body = "".join(_fold(title, inside, shown) for title, inside, shown in folds if inside)
    later = (
        ("remarks", "To keep in mind", body),
        ("machine", "Machine", facts_list(_json(advised.path / "machine.json"))),
    )
    sent = privacy_section(read_statement(advised.path))
    return "".join(map(_section, sections)) + sent + "".join(map(_section, later))


def _clients(advised: Advised) -> str:
    found, words = advised.found, advised.words
    verified = found["verify"] is not None
    titles = [("client", True), ("training rows", False), (f"{advised.score} alone", False), ("advice", True)]
    titles += [("expected gain [95 %]", False), ("everybody [95 %]", False), ("bytes a round", False)]
    titles += [("on test rows", True)] if verified else []
    head = table_head([(title, "", is_words) for title, is_words in [*titles, ("with whom (weight)", True)]])
    lines = []
    for place in advised.order[:LIMIT]:
        entry = found["clients"][place]
        every = entry["gain"]["everybody"]
        paid = entry["round_bytes"][entry["advice"]]
        cells = [
            _number(entry["rows"], count(entry["rows"])),
            _number(entry["loss"]["alone"], words.bare(entry["loss"]["alone"])),
            _text(advice_words(found, entry)),
            _number(entry["gain"][entry["advice"]]["expected"], gain_words(words, entry)),
            _number(
                every["expected"], f"{words.signed(every['expected'])} {words.interval(every['low'], every['high'])}"
            ),
            _number(paid, size(paid)),
        ]
        cells += [_text(tested_words(found["verify"]["clients"][place]))] if verified else []
        cells.append(_text(with_whom(entry, _NAMED)))
        name = entry["client"]
        lines.append(f'<tr><th scope="row" data-value="{e(name)}">{e(name)}</th>{"".join(cells)}</tr>')
    left = found["all_clients"] - len(lines)
    more = f"<p>{plural(left, 'more client')} in advise.parquet.</p>" if left > 0 else ""
    return scrolling("Advice client by client", head, lines) + more


def _number(value: float, text: str) -> str:
    return f'<td data-value="{e(value)}">{e(text)}</td>'


def _text(text: str) -> str:
    return f'<td class="words" data-value="{e(text)}">{e(text)}</td>'


def _verification(advised: Advised) -> str:
    verdict, words = advised.found["verify"], advised.words
    said = "".join(f"<p>{e(line)}</p>" for line in verification(advised))
    titles = (f"mean {advised.score}", "the advice saves [95 %]", "times advised", "of these best, or within noise")
    head = table_head([("way", "", True), *((title, "", False) for title in titles)])
    lines = []
    for way in WORDS:
        mean, saved, times = (
            verdict["test_loss"][way],
            verdict["saved_against"][f"always {way}"],
            verdict["advised"][way],
        )
        text = f"{words.signed(saved['mean'])} {words.interval(saved['low'], saved['high'])}"
        cells = [_number(mean, words.bare(mean)), _number(saved["mean"], text)]
        cells += [_number(times["times"], str(times["times"])), _number(times["right"], str(times["right"]))]
        lines.append(f'<tr><th scope="row" data-value="{e(way)}">always {e(way)}</th>{"".join(cells)}</tr>')
    return said + scrolling("All three ways on test rows", head, lines)


def _lines(sentences: list[str]) -> str:
    return f"<ul>{''.join(f'<li>{e(line)}</li>' for line in sentences)}</ul>" if sentences else ""


def _fold(title: str, body: str, shown: bool) -> str:
    return f"<details{' open' if shown else ''}><summary><b>{e(title)}</b></summary>{body}</details>"


def _section(part: tuple[str, str, str]) -> str:
    name, title, body = part
    return f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{e(title)}</h2>{body}</section>'


def _spec(folder: Path) -> str:
    path = folder / "spec.toml"
    return f"<pre>{e(path.read_text(encoding='utf-8'))}</pre>" if path.is_file() else ""


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
