# SPDX-License-Identifier: Apache-2.0
"""A run's preprocessing.json, read back and checked: a damaged one is refused before it meets a row."""

from __future__ import annotations

import math
from typing import Any

from idiolect.core.checks import RequestError
from idiolect.data.feature_columns import CategoryColumn
from idiolect.data.preprocessing import Preprocessing
from idiolect.experiments.answering import KEEP_ALL
from idiolect.experiments.finished import Finished
from idiolect.record.manifest import COPY_AGAIN, check_files


def read_recipe(run: Finished) -> Preprocessing:
    """How the run's table became inputs; RequestError where that was not kept or is damaged."""
    check_files(run.folder, ["models/preprocessing.json"])
    path = run.folder / "models" / "preprocessing.json"
    if run.spec.output.models == "none":
        raise RequestError(f"The run in {run.folder} kept no models; {KEEP_ALL}.")
    if not path.is_file() and run.spec.data.source == "table":
        raise RequestError(f"There is no {path}, which says how a table becomes inputs; copy it too, or {KEEP_ALL}.")
    if not path.is_file():
        raise RequestError(
            f"predict needs a run on a table (source = 'table'), and the one in {run.folder} has no fitted "
            "preprocessing; load its model in Python with idiolect.experiments.predict.load_model, as docs/networks.md "
            "shows."
        )
    try:
        recipe = Preprocessing.from_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RequestError(f"{path} is damaged ({error}); {COPY_AGAIN}.") from None
    wrong = _wrong_part(recipe)
    if wrong is not None:
        raise RequestError(f"{path} is damaged ({wrong} has another type); {COPY_AGAIN}.")
    return recipe


def _wrong_part(recipe: Preprocessing) -> str | None:
    """The first part of a recipe that has not the type it is declared with, or None."""
    for column in recipe.columns:
        if not isinstance(column.name, str):
            return "a column's name"
        if isinstance(column, CategoryColumn):
            if not _texts(column.levels):
                return f"levels of {column.name!r}"
            continue
        if not all(map(_number, (column.fill, column.centre, column.scale))) or column.scale <= 0:
            return f"fill, centre or scale of {column.name!r}"
        if not all(bound is None or _number(bound) for bound in (column.lowest, column.highest)):
            return f"lowest or highest of {column.name!r}"
    target = recipe.target
    if not (recipe.columns and _texts(target.names) and target.names and _texts(target.classes)):
        return "columns, target.names or target.classes"
    scaled = [isinstance(part, tuple) and all(map(_number, part)) for part in (target.centres, target.scales)]
    if not target.classes and not (all(scaled) and len(target.centres) == len(target.scales) == len(target.names)):
        return "target.centres or target.scales"
    return None if recipe.client is None or isinstance(recipe.client, str) else "client"


def _texts(values: Any) -> bool:
    return isinstance(values, tuple) and all(isinstance(value, str) for value in values)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
