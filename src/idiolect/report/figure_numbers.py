# SPDX-License-Identifier: Apache-2.0
"""The numbers that a figure shows, read off what is drawn, so that they cannot differ from it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import LineCollection, PathCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator

# x and y in the units of the axes; a line, bar or box goes on to x_end and y_end; value is that of a shade
HEADS = ("panel", "series", "mark", "name", "x", "y", "x_end", "y_end", "value")
Row = tuple[object, ...]
Mark = tuple[str, tuple[float, float], tuple[float | None, ...]]  # its kind; x, y; x_end, y_end, value


def numbers_of(figure: Figure) -> list[Row]:
    """One row per point, interval, bar, corner of an area and shade of the figure, panel by panel."""
    return [row for number, axes in enumerate(figure.axes, 1) if axes.get_visible() for row in _panel(axes, number)]


def _panel(axes: Axes, number: int) -> Iterator[Row]:
    said = [axes.get_title(loc="left"), axes.get_xlabel(), axes.get_ylabel()]
    title = next((text.replace("\n", " ") for text in said if text), f"panel {number}")
    along_x, along_y = _names(axes.xaxis), _names(axes.yaxis)
    for artist in (*axes.lines, *axes.collections, *axes.patches, *axes.images):
        label = str(artist.get_label() or "_")
        # matplotlib gives what has no label of its own one that begins so
        if label.startswith("_"):
            continue  # decoration: what stands for a number has a label
        for mark, at, more in _marks(artist):
            x, y = map(float, at)
            if np.isfinite([x, y]).all():  # a gap in a line is not-a-number
                name = along_x.get(round(x), along_y.get(round(y), ""))
                yield (title, label, mark, name, x, y, *("" if one is None else float(one) for one in more))


def _names(axis: Axis) -> dict[int, str]:
    """What stands at whole numbers of an axis of names; nothing for an axis of numbers."""
    if not isinstance(axis.get_major_locator(), FixedLocator):
        return {}
    places = axis.get_majorticklocs()
    texts = axis.get_major_formatter().format_ticks(list(places))
    return {round(place): text.replace("\n", " ") for place, text in zip(places, texts)}


def _marks(artist: Artist) -> Iterator[Mark]:
    """Everything that one artist shows, as a kind of mark and where it is."""
    match artist:
        case LineCollection():
            for (x, y), (x_end, y_end) in (segment[:2] for segment in artist.get_segments()):
                yield "interval", (x, y), (x_end, y_end, None)
        case Rectangle():
            x, y = artist.get_xy()
            yield "box", (x, y), (x + artist.get_width(), y + artist.get_height(), None)
        case AxesImage():
            for (y, x), shade in np.ndenumerate(np.asarray(artist.get_array(), float)):
                yield "shade", (x, y), (None, None, shade)
        case _:
            kind, points = _points(artist)
            yield from ((kind, (x, y), (None, None, None)) for x, y in points)


def _points(artist: Artist) -> tuple[str, np.ndarray]:
    """What an artist shows as points (number, 2) alone; none of one that shows no numbers."""
    nothing = np.empty((0, 2))
    match artist:
        case Line2D():
            return "line", np.asarray(artist.get_xydata(), float)
        case PathCollection():
            return "point", np.ma.filled(np.ma.asarray(artist.get_offsets(), float), np.nan)
        case PolyCollection():
            return "area", np.concatenate([nothing, *(path.vertices for path in artist.get_paths())])
        case _:
            return "", nothing
