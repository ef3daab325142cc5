# SPDX-License-Identifier: Apache-2.0
"""Where the files of data sets are: the user's folder first, then what comes with the package."""

from __future__ import annotations

import os
from pathlib import Path

from idiolect.core.checks import AbsentDataError
from idiolect.data.catalogue import DATASETS, Dataset

VARIABLE = "IDIOLECT_DATASETS"
BUNDLED = Path(__file__).parent / "bundled_files"


def datasets_folder() -> Path:
    """The folder that IDIOLECT_DATASETS names, or else one in the user's cache; it need not exist."""
    given = os.environ.get(VARIABLE)
    if given:
        return Path(given)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "idiolect" / "datasets"


def find_file(relative: str) -> Path | None:
    """The path of one file, in the user's folder or bundled; None where its set is whole in neither."""
    owner = _owner(relative)
    # the set's other files from the same place: two places may hold two versions of it
    needed = (relative,) if owner is None else tuple(owner.files)
    places = (datasets_folder(), BUNDLED)
    return next((place / relative for place in places if all((place / one).is_file() for one in needed)), None)


def _owner(relative: str) -> Dataset | None:
    return next((one for one in DATASETS.values() if relative in one.files), None)


def dataset_file(relative: str) -> Path:
    """The path of one file; where it is absent the error names the set and the command that gets it."""
    path = find_file(relative)
    if path is not None:
        return path
    owner = _owner(relative)
    folder = datasets_folder()
    lacking = next((one for one in (owner.files if owner else ()) if not (folder / one).is_file()), relative)
    way_out = f"get it with `idiolect datasets fetch {owner.name}`" if owner else "add it"
    subject = f"The data set {owner.name} is not here: its" if owner else "The"
    raise AbsentDataError(
        f"{subject} file {lacking} is not in the folder {folder}; {way_out}, or set the environment "
        f"variable {VARIABLE} to a folder that holds it."
    )


def whereabouts(dataset: Dataset) -> str:
    """'bundled', 'in FOLDER' or 'not here', for a list."""
    found = [find_file(relative) for relative in dataset.files]
    if None in found:
        return "not here"
    return "bundled" if all(path and path.is_relative_to(BUNDLED) for path in found) else f"in {datasets_folder()}"
