# SPDX-License-Identifier: Apache-2.0
"""The answer of a comparison on several splits of the rows."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import TYPE_CHECKING

from idiolect.api.results import Result
from idiolect.api.sentences import in_python
from idiolect.api.tables import to_frame
from idiolect.record.codec import flat
from idiolect.record.errors import RequestError

if TYPE_CHECKING:
    from idiolect.api.tables import Frame
    from idiolect.report.splits_table import SplitsFound


class SplitsAnswer(Result):
    """What several splits say together: means over splits, with intervals."""

    @cached_property
    def _found(self) -> SplitsFound:
        from idiolect.report.splits_table import read_splits

        return read_splits(self.folder)

    @property
    def best(self) -> str | None:
        """The method that was announced most often; None where none was."""
        announced = self._found.found.announced
        return None if announced is None else announced.most

    @property
    def sentence(self) -> str:
        """The answer in words."""
        from idiolect.report.splits_table import answer

        return answer(self._found)

    def frame(self) -> Frame:
        """One row per method: means over splits with their intervals, and how often it was announced."""
        import pyarrow as pa

        return to_frame(
            pa.Table.from_pylist([flat(dataclasses.asdict(line), "_") for line in self._found.found.methods])
        )

    @property
    def clients(self) -> Frame:
        """One row per method and client: means over splits."""
        import pyarrow as pa

        return to_frame(pa.Table.from_pylist([dataclasses.asdict(row) for row in self._found.rows]))

    @in_python()
    def for_client(self, client: str, method: str | None = None) -> dict[str, float | int | str | None]:
        """What the shown method, or the given one, does for one client: a row of `clients`."""
        label = method or self._found.found.personalized
        rows = [row for row in self._found.rows if row.method == label and row.client == str(client)]
        if not rows:
            raise RequestError(f"There is no client {client!r} of a method {label!r} in the answer; see `clients`.")
        return dataclasses.asdict(rows[0])

    def _text(self) -> str:
        from idiolect.report.splits_table import splits_text
        from idiolect.report.text import terminal_width

        return splits_text(self._found, terminal_width())
