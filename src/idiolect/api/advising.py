# SPDX-License-Identifier: Apache-2.0
"""Advice and explanations from Python: what `idiolect advise` and `idiolect explain` print, as objects."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import tomli_w

from idiolect.api.results import Result, Workplace
from idiolect.api.sentences import in_python, warn
from idiolect.api.tables import Setting, Table, check_table, to_frame
from idiolect.record.errors import RequestError
from idiolect.report.advise_table import Advised, advice_text, read_advice
from idiolect.report.explanation import explanation_text
from idiolect.report.notebook import advice_html, text_html
from idiolect.report.text import terminal_width

if TYPE_CHECKING:
    from idiolect.api.tables import Frame
    from idiolect.experiments.work import Progress


class Advice(Result):
    """For every client: train alone, join all, or join which neighbours; prints itself."""

    @cached_property
    def _found(self) -> Advised:
        return read_advice(self.folder)

    @cached_property
    def _rows(self) -> pa.Table:
        return pq.read_table(self.folder / "advise.parquet")

    def frame(self) -> Frame:
        """One row per client: the advice, the gain to expect with its interval, and whom to join."""
        return to_frame(self._rows)

    @in_python()
    def for_client(self, client: str) -> dict[str, object]:
        """The advice for one client: its row of `frame`."""
        from idiolect.core.checks import nearest

        entries = {str(entry["client"]): entry for entry in self._rows.to_pylist()}
        if str(client) not in entries:
            raise RequestError(f"There is no client {str(client)!r} in the advice.{nearest(str(client), entries)}")
        return dict(entries[str(client)])

    def _text(self) -> str:
        return advice_text(self._found, width=terminal_width())

    def _repr_html_(self) -> str:
        return advice_html(self._found)


@in_python()
def advise(
    table: Table,
    *,
    verify: bool = False,
    seeds: Sequence[int] | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Advice:
    """Who should learn with whom? What `idiolect advise` answers; `verify` judges the advice on test rows."""
    from idiolect.experiments.advise import advise_on

    check_table(table)
    place = Workplace(out, f"{table.name}-advise")
    splits = None if seeds is None else [int(seed) for seed in seeds]
    advise_on(
        {"data": dict(table.data)},
        place.folder,
        name=table.name,
        verify=verify,
        seeds=splits,
        progress=progress,
        say=warn,
        rows=table.rows,
    )
    return Advice(place)


class Explanation(dict[str, object]):
    """What a name means, as plain values; prints itself."""

    def __str__(self) -> str:
        return explanation_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return text_html(str(self))


@in_python()
def explain(name: str, objective: str | None = None, **settings: Setting) -> Explanation:
    """Equations, settings, what travels and what it costs, theory and citation of an algorithm or an objective."""
    from idiolect.experiments.explain import explain as look_up

    return Explanation(look_up(name, objective, changes=[tomli_w.dumps(settings)] if settings else []))
