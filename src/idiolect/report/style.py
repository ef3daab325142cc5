# SPDX-License-Identifier: Apache-2.0
"""How every figure looks: colours that colour-blind readers can tell apart, quiet axes, tidy ticks."""

from __future__ import annotations

import dataclasses
import io
import re
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import matplotlib as mpl
import numpy as np
from markupsafe import escape
from matplotlib.artist import Artist
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullFormatter

from idiolect.report.folder import Run

INK, MUTED, LINE, PAPER = "#1c2330", "#67707d", "#d8dde4", "#ffffff"
BLUE, SKY, GREEN, VERMILION = "#0072b2", "#56b4e9", "#009e73", "#d55e00"
DASHED = (0, (4, 2))
Look = dict[str, Any]  # how something is drawn, in the words of matplotlib
# Swapped for the page's own colours when a figure is shown inside it, so that it suits the dark scheme too.
_PAGE_COLOURS = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    LINE: "var(--line)",
    PAPER: "var(--card)",
    BLUE: "var(--blue)",
    SKY: "var(--sky)",
    GREEN: "var(--green)",
    VERMILION: "var(--vermilion)",
    "#7a5195": "var(--purple)",
    "#a6761d": "var(--brown)",
    "#b2476b": "var(--wine)",
}

# Okabe and Ito (2008), without the yellow that vanishes on paper; then darker mates for many methods.
_PALETTE = (
    *(BLUE, "#e69f00", GREEN, "#cc79a7", VERMILION, SKY),
    *("#7a5195", "#a6761d", "#4daf8c", "#b2476b"),
)
_METADATA = {"svg": ("Date", "Creator"), "png": ("Software",), "pdf": ("CreationDate", "Creator", "Producer")}
_DOTS_PER_INCH = 200  # of the PNG, and so of the layout: text is a little wider or narrower at another
VERDICT_COLOURS = {"helped": BLUE, "hurt": VERMILION, "unclear": "#9aa3af", "same": "#9aa3af"}

_FALLBACK_FONTS = ("Noto Sans CJK SC", "WenQuanYi Zen Hei", "PingFang SC", "Microsoft YaHei", "Arial Unicode MS")

_SETTINGS: dict[Any, Any] = {  # as matplotlib takes them
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), INK),
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), MUTED),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    "font.size": 8.5,
    "text.parse_math": False,  # a client may be called $x$
    "axes.linewidth": 0.7,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "svg.fonttype": "none",  # text stays text: searchable, and in the page's own font
}


_ON_PAPER: dict[Any, Any] = {
    "font.size": 7.0,
    "axes.titlesize": 7.5,
    "legend.fontsize": 6.5,
    "pdf.fonttype": 42,  # TrueType, as publishers ask: the letters are in the file, and stay text
    "svg.fonttype": "path",  # a publisher has not our font: the shapes of the letters are in the file
    "savefig.dpi": 600,
}
_LEGEND_INCHES, _LETTERS_PER_INCH = 1.6, 14
_PAPER: ContextVar[float | None] = ContextVar("_PAPER", default=None)  # inches; None: the figure's own width


@contextmanager
def drawing(name: str, paper_inches: float | None = None) -> Iterator[None]:
    """Our settings for the time of drawing one figure; afterwards matplotlib is as it was.

    For a paper, figures have that width and the letters of a printed page, whatever their usual size is.
    """
    # the font that comes with matplotlib, then whatever this machine has for scripts that it lacks
    known = set(fontManager.get_font_names())
    fonts = ["DejaVu Sans", *(name for name in _FALLBACK_FONTS if name in known)]
    before = _PAPER.set(paper_inches)
    try:
        with mpl.rc_context(), warnings.catch_warnings():
            # A user's own style sheet must not change a report. Touching the backend would import pyplot.
            mpl.rcParams.update({name: value for name, value in mpl.rcParamsDefault.items() if name != "backend"})
            mpl.rcParams.update(_SETTINGS | {"svg.hashsalt": name, "font.family": fonts})
            mpl.rcParams.update(_ON_PAPER if paper_inches else {})
            # A name in a script that the font lacks shows boxes in the PNG and is right in the SVG.
            warnings.filterwarnings("ignore", message=r"Glyph \d+")
            yield
    finally:
        _PAPER.reset(before)


def blank(width_inches: float, height_inches: float, on_paper: float | None = None) -> Figure:
    """An empty figure that keeps its labels inside itself; nothing is registered with pyplot.

    `on_paper` is its height for a paper, in inches; without one the sides keep their ratio.
    """
    size, wide = (width_inches, height_inches), _PAPER.get()
    if wide is not None:
        size = wide, on_paper or height_inches * wide / width_inches
    return Figure(figsize=size, dpi=_DOTS_PER_INCH, layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06))


def panels_across(panels: int, least_inches: float = 1.5) -> int:
    """Panels that stand side by side: all of them, in a paper as many as its width holds."""
    wide = _PAPER.get()
    return panels if wide is None else max(1, min(panels, int(wide / least_inches)))


def fold(text: str, part: float = 1.0) -> str:
    """A long label in as many lines as a part of a paper's width asks for."""
    wide = _PAPER.get()
    return text if wide is None else textwrap.fill(text, int(_LETTERS_PER_INCH * wide * part))


def method_colours(run: Run) -> dict[str, str]:
    """A colour per method, the same in every figure; training alone is grey, as the thing compared with."""
    colours = series_colours([entry.method for entry in run.methods if not entry.alone])
    return {entry.method: colours.get(entry.method, MUTED) for entry in run.methods}


def series_colours(names: Sequence[str]) -> dict[str, str]:
    """A colour for each of several things of one kind."""
    return {name: _PALETTE[place % len(_PALETTE)] for place, name in enumerate(names)}


def page_colour(colour: str) -> str:
    """The page's own colour in its place, which suits the dark scheme too."""
    return _PAGE_COLOURS.get(colour, colour)


def reach_of(values: np.ndarray) -> tuple[float, float]:
    """The range of all values but a few far ones of a heavy tail."""
    low, high = np.quantile(values, [0.05, 0.95])
    reach = high - low  # for normal values the frame then ends five standard deviations from the mean
    return max(values.min(), low - reach), min(values.max(), high + reach)


def widen(low: float, high: float, part: float) -> tuple[float, float]:
    """A range with room at both ends."""
    room = part * (high - low) or 0.05 * abs(high) or 1.0
    return low - room, high + room


def label_ticks(axis: Axis, write: Callable[[float], str]) -> None:
    """Numbers along an axis as `write` writes them, and none between the larger ticks."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: write(value)))
    axis.set_minor_formatter(NullFormatter())


def key(label: str, **look: Any) -> Line2D:
    """A line of a legend."""
    return Line2D([], [], label=label, **look)


def add_legend(figure: Figure, entries: Sequence[Artist], **changes: Any) -> None:
    """The legend of a figure, above its panels unless `changes` say otherwise."""
    usual: Look = {"loc": "outside upper left", "ncols": 4, "handlelength": 1.8, "columnspacing": 1.6}
    wide = _PAPER.get()
    narrow = {} if wide is None else {"ncols": max(1, int(wide / _LEGEND_INCHES))}
    figure.legend(handles=list(entries), **(usual | changes | narrow))


@dataclasses.dataclass(frozen=True)
class Drawn:
    """One figure: its file name without ending, a caption, and its two files' bytes."""

    name: str
    title: str
    caption: str
    png: bytes
    svg: bytes

    def for_page(self) -> str:
        """The SVG as HTML: its own ids, the page's colours and font, words for readers who cannot see it.

        We drew it, so that it needs no escaping.
        """
        text = self.svg.decode("utf-8")
        text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)

        def fitted(tag: re.Match[str]) -> str:
            # ids of several figures would meet in one page; colours follow its scheme, light or dark
            inside = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{self.name}-", tag[0])
            for colour, variable in _PAGE_COLOURS.items():
                inside = inside.replace(colour, variable)
            return inside

        text = re.sub(r"<[^>]*>", fitted, text)  # tags only: what a client is called is left alone
        text = re.sub(r' (width|height)="[\d.]+pt"', "", text, count=2)
        about = escape(f"{self.title}. {self.caption}")
        return text.replace("<svg", f'<svg role="img" aria-label="{about}" class="figure"', 1)


def drawn(name: str, title: str, caption: str, draw: Callable[[], Figure | None]) -> list[Drawn]:
    """What `draw` draws, as files; no figure where it draws nothing."""
    with drawing(name):
        figure = draw()
        if figure is None:
            return []
        lay_out(figure)
        return [Drawn(name, title, caption, to_bytes(figure, "png"), to_bytes(figure, "svg"))]


def lay_out(figure: Figure) -> Figure:
    """Find every part its place, once for all formats."""
    layout = figure.get_layout_engine()
    # the layout is found for the resolution of the PNG, and kept for the other formats
    if layout is not None:  # alone: drawing the figure to lay it out would cost as much again
        layout.execute(figure)
    figure.set_layout_engine("none")
    return figure


def to_bytes(figure: Figure, kind: str) -> bytes:
    """The figure as a PNG, SVG or PDF file, the same bytes every time."""
    target = io.BytesIO()
    figure.savefig(target, format=kind, metadata=dict.fromkeys(_METADATA[kind]))
    return target.getvalue()
