# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
import sys
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from idiolect.report import read
from idiolect.report.cost_figure import score_against_cost, suboptimality_against_cost
from idiolect.report.distribution_figure import distribution_over_clients
from idiolect.report.figures import FIGURES, draw_all
from idiolect.report.gain_figure import gain_by_client
from idiolect.report.style import Drawn, drawing, lay_out, to_bytes

SVG = "{http://www.w3.org/2000/svg}"
NAMES = ("$x_1$", '--><script>id="#0072b2"</script>', "Ålesund", "an extraordinarily long name of a hospital")


def _many(methods):
    kind = type(methods["fedavg"])
    extra = tuple(kind(f"another method with a long name {place}", "ditto", lift=-0.02) for place in range(3))
    return (*methods.values(), *extra)


def test_three_figures_in_two_formats_and_the_same_bytes_each_time(folder):
    drawn, missing = draw_all(read(folder))
    assert (drawn, missing) == draw_all(read(folder))
    assert [one.name for one in drawn] == ["score-against-cost", "gain-by-client", "distribution"]
    assert missing == []
    for one in drawn:
        assert one.png.startswith(b"\x89PNG")
        assert ElementTree.fromstring(one.svg).tag == f"{SVG}svg"


def test_matplotlib_does_not_report_where_its_caches_stand():
    nowhere = os.environ | {"MPLCONFIGDIR": "/dev/null/caches"}
    command = [sys.executable, "-c", "import idiolect.report.style"]
    ended = subprocess.run(command, env=nowhere, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_caption_of_score_against_cost_names_every_panel(folder):
    run = read(folder)
    with drawing("cost"):
        panels = [axes.get_xlabel().removesuffix(" (log scale)") for axes in score_against_cost(run).axes]
    caption = next(caption for name, _, caption, _, _ in FIGURES if name == "score-against-cost")
    for panel in panels:
        assert panel.replace("communicated, MB", "bytes both ways") in caption


def test_the_spread_over_clients_leaves_out_new_ones(folder, hold_out):
    """Its diamonds are the table's mean and worst tenth, which are of the clients that trained."""

    def dots(run):
        with drawing("distribution"):
            return max(len(part.get_offsets()) for part in distribution_over_clients(run).axes[0].collections)

    assert dots(read(folder)) == 19  # one has no test rows
    hold_out(folder, 4)
    assert dots(read(folder)) == 15


@pytest.mark.parametrize(("worst", "inside"), [(0.0, True), (-40.0, False)])
def test_a_worst_tenth_is_in_the_frame_or_at_its_edge(folder, edit_summary, worst, inside):
    edit_summary(folder, lambda summary: summary["methods"][0]["score"].update(worst_decile=worst))
    with drawing("distribution"):
        axes = distribution_over_clients(read(folder)).axes[0]
    low, high = axes.get_xlim()
    edges = [part for part in axes.collections if part.get_label() == "farther out"]
    assert bool(low < worst < high) is inside
    assert [part.get_offsets()[0][0] for part in edges] == ([] if inside else [low])


def test_drawing_leaves_matplotlib_as_it_was(folder):
    with mpl.rc_context({"axes.facecolor": "#123456"}):
        before = dict(mpl.rcParams)
        with drawing("cost"):
            figure = score_against_cost(read(folder))
        assert dict(mpl.rcParams) == before
    assert mpl.colors.to_hex(figure.axes[0].get_facecolor()) == "#ffffff"  # a user's style does not leak in


def test_the_distance_from_a_solved_optimum_is_drawn_by_both_sides_of_the_ledger(make_run):
    run = read(make_run(solved=True))
    with drawing("optimum"):
        figure = suboptimality_against_cost(run)
    rounds, _, shared, personal = figure.axes
    assert rounds.get_yscale() == "log"
    lines = {axes: {tuple(line.get_xdata()) for line in axes.get_lines()} for axes in (shared, personal)}
    work = tuple(640.0 * 20 * np.unique(run.history["rounds"])[1:])  # the axis is logarithmic
    assert work in lines[shared]  # fedavg: the shared block alone
    assert work in lines[personal]  # local: the personal block alone; personal heads: both, in both panels
    assert () in lines[shared]  # and who spends nothing of a kind has no curve there
    assert () in lines[personal]


def test_what_cannot_be_drawn_is_said(folder_without_alone):
    drawn, missing = draw_all(read(folder_without_alone))
    assert [one.name for one in drawn] == ["score-against-cost", "distribution"]
    assert len(missing) == 1
    assert "no gain against training alone" in missing[0]


@pytest.mark.parametrize("clients", [2, 25, 26, 400])  # both layouts of the gains, at their smallest and largest
@pytest.mark.parametrize("name", [name for name, *_ in FIGURES])
def test_nothing_is_clipped_or_overlaps(make_run, methods, clients, name):
    names, solved = (lambda m: f"{NAMES[m % 4]} {m}"), name == "suboptimality-against-cost"
    run = read(make_run(methods=_many(methods), clients=clients, seeds=1, names=names, solved=solved))
    draw = next(draw for known, _, _, draw, _ in FIGURES if known == name)
    with drawing(name):
        figure = lay_out(draw(run))
        figure.draw_without_rendering()  # texts of legends find their places when they are drawn
        box, edge = figure.get_tightbbox(), figure.get_size_inches()
        assert box.x0 >= -0.01
        assert box.y0 >= -0.01
        assert box.x1 <= edge[0] + 0.01
        assert box.y1 <= edge[1] + 0.01
        assert _overlaps(figure) == []


def _overlaps(figure):
    """Pairs of texts that lie over each other: ticks, titles, annotations, legends."""
    texts = [text for legend in figure.legends for text in legend.get_texts()]
    texts += [text for text in figure.texts if text.get_text()]
    for axes in figure.axes:
        if not axes.get_visible():
            continue
        texts += [axes.title, axes._left_title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
        for axis, limits in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            ticks = [tick for tick in axis.get_major_ticks() if min(limits) <= tick.get_loc() <= max(limits)]
            texts += [tick.label1 for tick in ticks if tick.label1.get_visible()]
    texts = [text for text in texts if text.get_visible() and text.get_text()]
    boxes = [text.get_window_extent() for text in texts]
    return [
        (texts[i].get_text(), texts[j].get_text())
        for i in range(len(texts))
        for j in range(i)
        if boxes[i].x0 < boxes[j].x1
        and boxes[j].x0 < boxes[i].x1
        and boxes[i].y0 < boxes[j].y1
        and boxes[j].y0 < boxes[i].y1
    ]


def test_a_thousand_clients_stay_small(make_run):
    with drawing("gain"):
        svg = to_bytes(gain_by_client(read(make_run(clients=1000, seeds=1))), "svg")
    assert len(svg) < 1_000_000


def test_names_are_text_never_markup(make_run):
    run = read(make_run(clients=4, seeds=1, names=lambda m: ("", "$x_1$", '<b id="#0072b2">', "Ålesund")[m]))
    with drawing("gain"):
        svg = to_bytes(gain_by_client(run), "svg")
    shown = {text.text for text in ElementTree.fromstring(svg).iter(f"{SVG}text")}
    assert {"$x_1$", "Ålesund", '<b id="#0072b2">'} <= shown
    inline = Drawn("gain", "Gain", "about", b"", svg).for_page()
    assert "<b" not in inline
    # The page's ids and colours replace those of tags, not those in a client's name.
    assert '&lt;b id="#0072b2"&gt;' in inline.replace("&quot;", '"')
    assert 'id="gain-figure_1"' in inline
    assert "var(--ink)" in inline


def test_a_method_that_sends_nothing_is_a_level_line_and_costs_are_logarithmic(folder):
    with drawing("cost"):
        figure = score_against_cost(read(folder))
        bytes_panel, gradients_panel, _, rounds_panel = figure.axes
        level = [line for line in bytes_panel.lines if len(line.get_xdata()) == 2 and np.ptp(line.get_ydata()) == 0]
        assert len(level) == 2  # mean and worst tenth of `local`
        # 20 clients, 31 kB each way: round 1 has sent 1.24 MB and round 50 62 MB, a factor of 50
        assert [panel.get_xscale() for panel in (bytes_panel, gradients_panel, rounds_panel)] == ["log"] * 3
        assert bytes_panel.get_ylabel() == "validation accuracy (%)"


def test_a_narrow_range_of_costs_is_linear(folder):
    history = pq.read_table(folder / "history.parquet")
    late = history.filter(pa.compute.greater_equal(history["round"], 10))
    pq.write_table(late, folder / "history.parquet")
    with drawing("cost"):
        assert score_against_cost(read(folder)).axes[0].get_xscale() == "linear"


def _texts(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_a_cost_that_was_not_recorded_is_not_called_free(folder):
    history = pq.read_table(folder / "history.parquet")
    pq.write_table(history.drop_columns(["download_bytes"]), folder / "history.parquet")
    with drawing("cost"):
        figure = score_against_cost(read(folder))
    assert [text.get_text() for text in figure.axes[0].texts] == ["not recorded"]
    assert not figure.axes[0].lines
    assert not any("sends nothing" in text.get_text() for text in figure.legends[0].get_texts())


def test_far_clients_are_told_and_do_not_flatten_the_rest(folder):
    rows = pq.read_table(folder / "clients.parquet").to_pylist()
    for row in rows:
        if row["method"] == "fedavg" and row["client"] == "hospital-05":
            row |= {"score": 1000.0, "gain": 1000.0, "gain_low": 900.0, "gain_high": 1100.0}
    pq.write_table(pa.Table.from_pylist(rows), folder / "clients.parquet")
    run = read(folder)
    with drawing("far"):
        spread, gains = distribution_over_clients(run), gain_by_client(run)
    assert "1 more to the right" in _texts(spread)
    assert spread.axes[0].get_xlim()[1] < 200  # of 100,000 %
    assert gains.axes[0].get_xlim()[1] < 200
