# SPDX-License-Identifier: Apache-2.0
"""Figures for papers: their size, their fonts, and the numbers beside them."""

from __future__ import annotations

import csv
import re
import zlib
from collections import defaultdict

import numpy as np
import pyarrow.parquet as pq
import pytest

from idiolect.record.errors import RequestError
from idiolect.record.manifest import find_problems, write_manifest
from idiolect.report import build_report, read
from idiolect.report.clients import client_table
from idiolect.report.figures import FIGURES
from idiolect.report.paper_figures import INCH, MILLIMETRES, parse_kinds, parse_width, write_paper_figures
from idiolect.report.style import drawing, lay_out

NAMES = {"score-against-cost", "gain-by-client", "distribution"}


@pytest.fixture
def paper(folder):
    """A run folder with its figures for a column of a paper."""
    files = write_paper_figures(folder, ("pdf", "svg", "png"), parse_width("column"))
    assert {path.name for path in files} == {
        f"{name}.{kind}" for name in NAMES for kind in ("pdf", "svg", "png", "csv")
    }
    return folder / "figures" / "paper"


def _numbers(path):
    """{(panel, series): [(name, x, y, x_end, y_end)]}, empty cells as None."""
    found = defaultdict(list)
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            places = [float(row[key]) if row[key] else None for key in ("x", "y", "x_end", "y_end")]
            found[row["panel"], row["series"]].append((row["name"], *places))
    return found


def test_a_pdf_has_its_fonts_inside_and_the_width_asked_for(paper):
    for name in NAMES:
        content = (paper / f"{name}.pdf").read_bytes()
        assert content.startswith(b"%PDF")
        assert b"/FontFile2" in content  # TrueType, embedded
        assert b"/Type3" not in content
        points = float(re.search(rb"/MediaBox \[ 0 0 ([\d.]+)", content)[1])
        assert points / 72 * INCH == pytest.approx(MILLIMETRES["column"], abs=0.1)
        texts = b"".join(_streams(content))
        assert b" Tf" in texts  # text that can be searched, not shapes
        svg = (paper / f"{name}.svg").read_text()
        assert "<text" not in svg
        assert f'width="{84 / INCH * 72:.4f}' in svg


def _streams(content):
    for found in re.finditer(rb"stream\r?\n(.*?)endstream", content, re.DOTALL):
        try:
            yield zlib.decompress(found[1])
        except zlib.error:
            continue


def test_the_csv_of_score_against_cost_is_the_history(paper, folder):
    found = _numbers(paper / "score-against-cost.csv")
    rows = pq.read_table(folder / "history.parquet").to_pylist()
    rounds = [row for row in rows if row["method"] == "fedavg" and row["rounds"] > 0]
    by_round = defaultdict(list)
    for row in rounds:
        by_round[row["rounds"]].append(100 * row["validation_personal_accuracy_mean"])
    panel = next(panel for panel, _ in found if panel.startswith("rounds"))
    drawn = {x: y for _, x, y, *_ in found[panel, "fedavg: mean"]}
    for number, scores in by_round.items():
        assert drawn[float(number)] == pytest.approx(np.mean(scores), rel=1e-6)
    assert len(found[panel, "fedavg: a seed"]) >= len(rounds)


def test_the_csv_of_gains_is_the_table_of_clients(paper, folder):
    found, clients = _numbers(paper / "gain-by-client.csv"), client_table(read(folder), "fedavg")
    dots = {name: x for name, x, *_ in found["fedavg", "expected gain"]}
    ends = {name: (low, high) for name, low, _, high, _ in found["fedavg", "95 % interval"]}
    known = np.isfinite(clients.expected)
    inside = [place for place in np.flatnonzero(known) if clients.client[place] in dots]
    assert len(inside) >= 0.8 * known.sum()  # the others are arrows at the frame
    for place in inside:
        name = clients.client[place]
        assert dots[name] == pytest.approx(100 * clients.expected[place])
        assert ends[name] == pytest.approx((100 * clients.expected_low[place], 100 * clients.expected_high[place]))


def test_the_csv_of_the_spread_has_the_means_of_the_table(paper, folder):
    found, summary = _numbers(paper / "distribution.csv"), read(folder).summary
    (panel,) = {panel for panel, _ in found}
    for series, statistic in (("mean", "mean"), ("worst tenth", "worst_decile")):
        drawn = {name: x for name, x, *_ in found[panel, series]}
        for entry in summary.methods:
            if entry.diverged is None:
                assert drawn[entry.method] == pytest.approx(100 * getattr(entry.score, statistic), rel=1e-3)


@pytest.mark.parametrize("width", ["column", "page"])
def test_nothing_is_cut_off(make_run, methods, width):
    run = read(make_run(methods=tuple(methods.values()), clients=9))
    for name, _, _, draw, _ in FIGURES:
        with drawing(name, parse_width(width)):
            figure = draw(run)
            if figure is None:
                continue
            lay_out(figure)
            figure.canvas.draw()
            frame = figure.bbox
            labels = [part for axes in figure.axes for part in (axes.xaxis.label, axes.yaxis.label, axes._left_title)]
            for label in [*labels, *figure.legends[0].get_texts(), *figure.texts]:
                if label.get_text():
                    box = label.get_window_extent()
                    assert box.x0 >= frame.x0 - 1, (name, label.get_text())
                    assert box.x1 <= frame.x1 + 1, (name, label.get_text())


def test_the_folder_stays_sound(paper, folder):
    build_report(folder)
    write_manifest(folder)
    assert find_problems(folder) == []
    assert (paper / "distribution.pdf").is_file()


@pytest.mark.parametrize("text", ["", "gif", "pdf;svg"])
def test_other_kinds_are_refused(text):
    with pytest.raises(RequestError, match="--figures must be of pdf, svg, png"):
        parse_kinds(text)


def test_widths():
    assert parse_width("page") == pytest.approx(174 / 25.4)
    assert parse_width("120mm") == pytest.approx(120 / 25.4)
    assert parse_width("4.5in") == pytest.approx(4.5)
    for text in ("wide", "120", "10mm", "-3in", "900mm"):
        with pytest.raises(RequestError, match="--width must be column, page, or a width from 40mm to 400mm"):
            parse_width(text)
