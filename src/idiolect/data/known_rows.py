# SPDX-License-Identifier: Apache-2.0
"""What stands in a built file even where another copy of its original differs in order or in rounding."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from idiolect.data.packing import Content, digest

CLOSE = 0.01  # by so much may the mean of values differ that were read from another copy


@dataclasses.dataclass(frozen=True)
class Known:
    """`sha256`: of the rows of a text in any order, or of `arrays`; `means`: of other arrays, whose values may differ
    in their last digits."""

    sha256: str
    arrays: Sequence[str] = ()
    means: Mapping[str, float] = dataclasses.field(default_factory=dict)


def difference(known: Known, content: Content) -> str | None:
    """In what a built file is not the known one, as the end of a sentence; None where it is."""
    if isinstance(content, bytes):
        found, what = digest(sorted_rows(content)), "rows"
    else:
        found, what = digest({name: content[name] for name in known.arrays}), ", ".join(known.arrays)
    if found != known.sha256:
        return f"other {what} than the known ones"
    if not isinstance(content, bytes):
        for name, mean in known.means.items():
            if not abs(float(np.mean(content[name])) - mean) <= CLOSE * abs(mean):
                return f"the mean {np.mean(content[name]):.6g} in {name}, not {mean:.6g}"
    return None


def sorted_rows(text: bytes) -> bytes:
    """LIBSVM rows, each written in one way, in one order."""
    return b"\n".join(sorted(_written_anew(row) for row in text.split(b"\n") if row.strip()))


def _written_anew(row: bytes) -> bytes:
    label, *entries = row.split()
    pairs = sorted((int(place), float(value)) for place, _, value in (entry.partition(b":") for entry in entries))
    return f"{float(label):g} {' '.join(f'{place}:{value:g}' for place, value in pairs)}".encode()
