# SPDX-License-Identifier: Apache-2.0
"""The rows that a run was begun with: noted before it trains, compared when it is resumed."""

from __future__ import annotations

from typing import Any

from idiolect.core.checks import RequestError
from idiolect.data.federation import Federation
from idiolect.engines.plan import digests
from idiolect.experiments.run_folder import ROWS, RunFolder

PARTS = ("train", "validation", "test")


def note_rows(folder: RunFolder, federation: Federation) -> None:
    """Keep what the rows are, in few bytes."""
    folder.write_sealed(ROWS, _noted(federation))


def check_rows(folder: RunFolder, federation: Federation) -> None:
    """RequestError where a run that is resumed would go on with other rows than those it was begun with."""
    before = folder.read_sealed(ROWS)
    if before is None:  # it is written before the spec: a folder that can be resumed has one
        raise RequestError(
            f"{folder.path / ROWS} is missing, which tells whether the rows are those that the run was begun with; "
            "copy the whole folder again, or choose another --out."
        )
    now = _noted(federation)
    for part in now:
        if before.get(part) != now[part]:
            raise RequestError(
                f"The {part.replace('_', ' ')} rows are not those that the run in {folder.path} was begun with; bring "
                "the data back as they were, or choose another --out."
            )


def _noted(federation: Federation) -> dict[str, Any]:
    """Part -> shapes and checksums, as JSON has them."""
    noted: dict[str, Any] = {part: digests([getattr(federation, part)]) for part in PARTS}
    if federation.held_out is not None:
        noted["held_out"] = digests([getattr(federation.held_out, part) for part in PARTS])
    return {part: [[list(shape), crc] for shape, crc in found] for part, found in noted.items()}
