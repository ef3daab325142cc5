# SPDX-License-Identifier: Apache-2.0
"""A site's table as the rows of one client: the site itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from idiolect.core.checks import RequestError
from idiolect.data.columns import Column
from idiolect.data.federation import Federation
from idiolect.data.from_table import federation_from_table
from idiolect.data.preparation import GIVEN, LOCAL
from idiolect.data.preprocessing import Preprocessing
from idiolect.data.split import Split
from idiolect.data.table_request import TableRequest
from idiolect.data.tables import read
from idiolect.experiments.spec import DataSpec
from idiolect.experiments.strict import refuse_unknown
from idiolect.record.words import counted


def table_request(data: DataSpec, recipe: Preprocessing | None = None) -> TableRequest:
    """What a site's table is read by; `recipe` is the one that the coordinator made."""
    refuse_unknown(data.settings, ("scaling", "target_scaling"), "[data.settings] table")
    assert data.client is not None
    assert data.target is not None
    # a recipe from a file is the coordinator's; until it comes, rows are only read and counted
    way = LOCAL if data.preparation == GIVEN else data.preparation
    return TableRequest(
        client=data.client,
        targets=(data.target,),
        features=None if data.features is None else tuple(data.features),
        drop=tuple(data.drop or ()),
        categorical=tuple(data.categorical or ()),
        weight=data.weight_column,
        task=data.task,
        split=Split(data.train, data.validation, data.test, data.split_column, data.group_column, data.time_column),
        # one client, which is this site: what would divide clients, or compare them, does not apply
        held_out=0,
        seed=data.seed,
        scaling=str(data.settings.get("scaling", "standard")),
        target_scaling=str(data.settings.get("target_scaling", "standard")),
        # with a recipe nothing is left to find out about the rows: it is applied as it was given
        preparation=way if recipe is None else GIVEN,
        recipe=recipe,
        alone=True,
    )


def read_site_table(path: Path, data: DataSpec, site: str) -> pa.Table:
    """The site's table with its client column: every row is the site's own."""
    request = table_request(data)
    table = read(str(path), request.kinds).table
    if request.client in table.column_names:
        others = {text for text in Column(request.client, table.column(request.client)).texts if text is not None}
        if others - {site}:
            raise RequestError(
                f"The table {path} holds rows of {counted(len(others), 'client')} in {request.client!r}, and this site "
                f"is {site!r}; leave the column out, or keep the site's own rows alone."
            )
        table = table.drop_columns([request.client])
    return table.append_column(request.client, pa.array([site] * table.num_rows, pa.string()))


def federation_at_site(table: pa.Table, data: DataSpec, recipe: Preprocessing) -> Federation:
    """The site's rows, prepared by the recipe: a federation of one."""
    return federation_from_table(Federation, table, table_request(data, recipe), np.float32)
