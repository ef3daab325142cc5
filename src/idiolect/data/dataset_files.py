# SPDX-License-Identifier: Apache-2.0
"""Where the files of data sets are: the user's folder first, then what comes with the package."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from idiolect.core.checks import AbsentDataError, RequestError
from idiolect.data.catalogue import DATASETS, Dataset
from idiolect.data.packing import unpack
from idiolect.record.words import first_line

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
    """The path of one file; where it is absent or of other content the error names the command that gets it."""
    path, owner = find_file(relative), _owner(relative)
    if path is not None:
        if owner is not None:
            _check(owner, relative, path)
        return path
    folder = datasets_folder()
    lacking = next((one for one in (owner.files if owner else ()) if not (folder / one).is_file()), relative)
    way_out = f"get it with `idiolect datasets fetch {owner.name}`" if owner else "add it"
    subject = f"The data set {owner.name} is not here: its" if owner else "The"
    raise AbsentDataError(
        f"{subject} file {lacking} is not in the folder {folder}; {way_out}, or set the environment "
        f"variable {VARIABLE} to a folder that holds it."
    )


def check_files(dataset: Dataset) -> None:
    """RequestError where a file of the set is there, but with other content."""
    for place in (datasets_folder(), BUNDLED):
        for relative in dataset.files:
            if (place / relative).is_file():
                _check(dataset, relative, place / relative)


def _check(dataset: Dataset, relative: str, path: Path) -> None:
    found = path.stat()
    wrong = _fault(dataset.name, relative, path, found.st_size, found.st_mtime_ns)
    if wrong is not None:
        raise RequestError(
            f"{path} is not the file of the data set {dataset.name}: it {wrong}; delete it, or keep it elsewhere if it "
            f"is your own, and get the right one with `idiolect datasets fetch {dataset.name}`."
        )


@functools.cache  # unpacking may take two seconds: once for a file that stays as it is
def _fault(name: str, relative: str, path: Path, size: int, written: int) -> str | None:
    """In what a file is not the one of the set, as the end of a sentence; None where it is."""
    try:
        wrong = DATASETS[name].fault(relative, unpack(path))
    except RequestError as error:
        if error.__cause__ is None:  # nothing that the file is to blame for, such as too little memory
            raise
        return f"cannot be read ({first_line(error.__cause__)})"
    except (TypeError, ValueError) as error:
        return f"holds what no data set does ({first_line(error)})"
    return None if wrong is None else f"has {wrong}"


def whereabouts(dataset: Dataset) -> str:
    """'bundled', 'in FOLDER' or 'not here', for a list."""
    found = [find_file(relative) for relative in dataset.files]
    if None in found:
        return "not here"
    return "bundled" if all(path and path.is_relative_to(BUNDLED) for path in found) else f"in {datasets_folder()}"
