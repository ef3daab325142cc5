# SPDX-License-Identifier: Apache-2.0
"""Tables for the Python interface: a file, a frame or arrays, and the roles of its columns."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from idiolect.api.asked import checked, plain
from idiolect.api.sentences import in_python
from idiolect.record.errors import RequestError

if TYPE_CHECKING:
    import pandas as pd

    Frame: TypeAlias = pd.DataFrame
    Source: TypeAlias = str | os.PathLike[str] | pa.Table | pd.DataFrame | Mapping[str, Sequence[object]] | np.ndarray
    Column: TypeAlias = str | np.ndarray | Sequence[object] | pd.Series

Setting: TypeAlias = "bool | int | float | str | Sequence[int] | Sequence[float] | Sequence[str]"


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows with a client each, and what they are for; made by `read_table`, `data_set` or `open_pack`."""

    name: str
    data: Mapping[str, Setting]  # [data] of a spec
    rows: pa.Table | None = dataclasses.field(default=None, repr=False)  # in memory; None: where `data` says


@in_python()
def read_table(
    source: Source,
    client: Column,
    target: Column,
    *,
    features: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    categorical: Sequence[str] | None = None,
    split_column: str | None = None,
    group: str | None = None,
    time: str | None = None,
    weight: str | None = None,
    task: str | None = None,
    name: str | None = None,
    **settings: Setting,
) -> Table:
    """A table: a path (CSV, Parquet, Feather), a pandas, polars or Arrow frame, a mapping of columns, or an array.

    `client` and `target` name columns, or hold one value per row. The other options are those of `idiolect compare`;
    `settings` are further keys of [data] in a spec, such as `test=0.3`. Columns are checked now, rows are split later.
    """
    from idiolect.data.tables import check_roles, read
    from idiolect.experiments.spec import DataSpec
    from idiolect.experiments.strict import fill

    in_file = isinstance(source, (str, os.PathLike)) and isinstance(client, str) and isinstance(target, str)
    rows = None if in_file else to_arrow(source, client=client, target=target)
    owner, wanted = column_name(client, "client"), column_name(target, "target")
    given = {
        "source": "table",
        "path": os.fspath(source) if in_file else None,  # type: ignore[arg-type]
        "client": owner,
        "target": wanted,
        "features": features,
        "drop": drop,
        "categorical": categorical,
        "split_column": split_column,
        "group_column": group,
        "time_column": time,
        "weight_column": weight,
        "task": task,
        **settings,
    }
    data = {key: plain(value) for key, value in given.items() if value is not None}
    fill(DataSpec, data, "data")
    others = {role: data.get(f"{role}_column") for role in ("split", "group", "time", "weight")}
    check_roles(read(data["path"] if rows is None else rows).table, owner, [wanted], others)  # type: ignore[arg-type]
    return Table(name or (Path(str(data["path"])).stem if in_file else "table"), data, rows)


@checked()
def data_set(name: str, **settings: Setting) -> Table:
    """A known data set (`idiolect list data`) with its own clients, such as `data_set("digits", clients=20)`."""
    from idiolect.core.checks import nearest
    from idiolect.experiments.sources import SOURCES

    if name not in SOURCES:
        raise RequestError(f"There is no data set {name!r}.{nearest(name, SOURCES)} Your own file: read_table.")
    return Table(name, {"source": name, **({"settings": settings} if settings else {})})  # type: ignore[dict-item]


@checked()
def open_pack(folder: str | os.PathLike[str]) -> Table:
    """The rows that `pack` or `idiolect pack` made ready; they stay on disk until they are needed."""
    from idiolect.data import packs

    packs.open_pack(Path(folder))  # refuses what is none
    return Table(Path(folder).name, {"source": "pack", "path": os.fspath(folder)})


def column_name(given: Column, role: str) -> str:
    """The name of a column that is named, or that is given by its values."""
    return given if isinstance(given, str) else str(getattr(given, "name", None) or role)


def to_arrow(source: Source, **beside: Column) -> pa.Table:
    """The rows as an Arrow table; columns that are given by their values are added under their role's name."""
    from idiolect.data.tables import read

    # a text file is read as texts first; what was typed already, a frame or Parquet, keeps its types
    reading = read(_columns_of(source) if _is_array(source) else source)
    table = reading.table if reading.of_text else reading.written.drop_columns(list(reading.unnamed))
    for role, values in beside.items():
        if isinstance(values, str):
            continue
        name, column = column_name(values, role), _arrow_column(values, role)
        if len(column) != table.num_rows:
            raise RequestError(f"{role} must have a value for each of the {table.num_rows} rows, got {len(column)}.")
        if name in table.column_names:
            raise RequestError(f"The rows already have a column {name!r}; leave it out of them, or name it as {role}.")
        table = table.append_column(name, column)
    return table


def _is_array(source: Source) -> bool:
    # pandas and Arrow by the name of their module: to ask for their classes would import them
    framed = hasattr(source, "__arrow_c_stream__") or isinstance(source, (str, os.PathLike, Mapping))
    return not framed and type(source).__module__.partition(".")[0] not in ("pandas", "pyarrow")


def _columns_of(source: Source) -> dict[str, np.ndarray]:
    """Columns x1, x2, ... of an array of rows."""
    values = np.asarray(source)
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2:
        raise RequestError(
            f"An array of rows must have two dimensions, rows and columns, got the shape {values.shape}; for images "
            "and texts use Federation.from_arrays and simulate."
        )
    return {f"x{place + 1}": values[:, place] for place in range(values.shape[1])}


def _arrow_column(values: Column, role: str) -> pa.Array | pa.ChunkedArray:
    try:
        if hasattr(values, "__arrow_c_stream__") and not hasattr(values, "__array__"):
            return pa.chunked_array(values)
        return pa.array(np.asarray(values))
    except (pa.ArrowException, TypeError, ValueError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise RequestError(f"{role} cannot become a column: {first}; give numbers or texts, one per row.") from error


def to_frame(table: pa.Table) -> Frame:
    """A pandas frame; RequestError with the way out where pandas is not installed."""
    try:
        import pandas  # noqa: F401
    except ImportError:
        raise RequestError(
            "A frame needs pandas, which is not installed; `pip install idiolect[pandas]`, or read the Parquet files "
            "of the run's folder."
        ) from None
    return table.to_pandas()
