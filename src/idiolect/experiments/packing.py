# SPDX-License-Identifier: Apache-2.0
"""Rows of any source made ready once, on disk: split, encoded, and laid out client by client."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from idiolect.core.checks import RequestError
from idiolect.data.packs import save_pack
from idiolect.experiments.sources import build_data
from idiolect.experiments.spec import Spec


class Packed(NamedTuple):
    """What was packed."""

    folder: str
    clients: int
    rows: int
    notes: list[str]


def pack(spec: Spec, folder: Path, rows: pa.Table | None = None) -> Packed:
    """Write the rows of a spec into a new folder; `rows` is the table itself where it is in memory."""
    federation, problem = build_data(spec.data, spec.training.precision, rows)
    if problem is not None:
        raise RequestError(f"The source {spec.data.source!r} is made anew by every run; name rows of your own to pack.")
    save_pack(folder, federation)
    count = sum(len(part.targets) for part in (federation.train, federation.validation, federation.test))
    warnings = (f"Warning: {text}" for text in federation.warnings)
    return Packed(str(folder), federation.clients, count, [*federation.describe(), *federation.notes, *warnings])
