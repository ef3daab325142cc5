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
Place = tuple[float | None, ...]  # x, y, x_end, y_end, value


def numbers_of(figure: Figure) -> list[Row]:
    """One row per point, interval, bar, corner of an area and shade of the figure, panel by panel."""
    return [row for number, axes in enumerate(figure.axes, 1) if axes.get_visible() for row in _panel(axes, number)]


def _panel(axes: Axes, number: int) -> Iterator[Row]:
    said = [axes.get_title(loc="left"), axes.get_xlabel(), axes.get_ylabel()]
    title = next((text.replace("\n", " ") for text in said if text), f"panel {number}")
    names = [_names(axis) for axis in (axes.xaxis, axes.yaxis)]
    for artist in (*axes.lines, *axes.collections, *axes.patches, *axes.images):
        label = str(artist.get_label())
        if artist.get_label() is None or label.startswith("_"):
            continue  # decoration: what stands for a number has a label
        for mark, (x, y, *more) in _marks(artist):
            if x is None or y is None or not np.isfinite([x, y]).all():
                continue
            name = next((found[round(at)] for found, at in zip(names, (x, y)) if round(at) in found), "")
            yield (title, label, mark, name, *(("" if one is None else float(one)) for one in (x, y, *more)))


def _names(axis: Axis) -> dict[int, str]:
    """What stands at whole numbers of an axis of names; nothing for an axis of numbers."""
    if not isinstance(axis.get_major_locator(), FixedLocator):
        return {}
    places = axis.get_majorticklocs()
    texts = axis.get_major_formatter().format_ticks(list(places))
    return {round(place): text.replace("\n", " ") for place, text in zip(places, texts)}


def _marks(artist: Artist) -> Iterator[tuple[str, Place]]:
    """Everything that one artist shows, as a kind of mark and where it is."""
    if isinstance(artist, Line2D):
        for x, y in np.asarray(artist.get_xydata(), float):
            yield "line", (x, y, None, None, None)
    elif isinstance(artist, LineCollection):
        for (x, y), (x_end, y_end) in (segment[:2] for segment in artist.get_segments()):
            yield "interval", (x, y, x_end, y_end, None)
    elif isinstance(artist, PathCollection):
        for x, y in np.ma.filled(np.ma.asarray(artist.get_offsets(), float), np.nan):
            yield "point", (x, y, None, None, None)
    elif isinstance(artist, PolyCollection):
        for path in artist.get_paths():
            for x, y in np.asarray(path.vertices, float):
                yield "area", (x, y, None, None, None)
    elif isinstance(artist, Rectangle):
        x, y = artist.get_xy()
        yield "box", (x, y, x + artist.get_width(), y + artist.get_height(), None)
    elif isinstance(artist, AxesImage):
        for (y, x), shade in np.ndenumerate(np.asarray(artist.get_array(), float)):
            yield "shade", (x, y, None, None, shade)
