# SPDX-License-Identifier: Apache-2.0
"""Originals of data sets over the network or from the user's disk, checked, converted and kept whole."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping
from pathlib import Path

from idiolect.core.checks import RequestError
from idiolect.data.catalogue import Dataset
from idiolect.data.compressed import existing
from idiolect.data.downloading import Report, download
from idiolect.data.packing import Content, digest, pack
from idiolect.record.errors import FetchError
from idiolect.record.files import make_writable, whole
from idiolect.record.lock import locked
from idiolect.record.sealed import digest_of
from idiolect.record.words import excerpt, first_line


def fetch(dataset: Dataset, folder: Path, report: Report) -> tuple[str, ...]:
    """Download, check and convert a set into `folder`; what to know about it is returned as remarks.

    What is downloaded stays in `folder`/originals until all of it is there: a second call goes on where the first one
    stopped.
    """
    _check_folder(folder)
    store = folder / "originals" / dataset.name
    store.mkdir(parents=True, exist_ok=True)
    with locked(store, "wait until it has ended"):
        originals = {one.name: download(one, store / one.name, dataset.name, report) for one in dataset.originals}
        try:
            remarks = _keep(dataset, originals, folder)
        except RequestError as error:  # not the user's fault: the home has another file now
            _forget(store)
            raise FetchError(str(error)) from error
        _forget(store)
    unknown = [one.name for one in dataset.originals if one.sha256 is None]
    if unknown:
        files = unknown[0] if len(unknown) == 1 else f"{unknown[0]} and {len(unknown) - 1} more"
        remarks = (f"Checksum of the original not known ({files}); the built file is checked.", *remarks)
    return remarks


def build(dataset: Dataset, given: Path, folder: Path) -> tuple[str, ...]:
    """Convert originals that the user has, a file or the folder that holds them, into `folder`; returns remarks."""
    originals = _find_originals(dataset, given)
    _check_folder(folder)
    remarks = _keep(dataset, originals, folder)
    strange = [
        f"{originals[one.name]} is not byte for byte the known original (SHA-256 {one.sha256})."
        for one in dataset.originals
        if one.sha256 is not None and digest_of(originals[one.name]) != one.sha256
    ]
    return (*strange, *remarks)


def _forget(store: Path) -> None:
    """Remove originals that are converted, or that cannot be."""
    shutil.rmtree(store)
    with contextlib.suppress(OSError):  # those of another set are still there
        store.parent.rmdir()


def _check_folder(folder: Path) -> None:
    make_writable(folder, "folder of data sets", "one with the environment variable IDIOLECT_DATASETS")


def _find_originals(dataset: Dataset, given: Path) -> dict[str, Path]:
    names = [one.name for one in dataset.originals]
    if given.is_dir():
        return {name: existing(given / name) for name in names}
    if len(names) > 1:
        raise RequestError(
            f"{dataset.name} is built from {len(names)} files ({', '.join(names[:6])}{', ...' if names[6:] else ''}); "
            "give --from the folder that holds them."
        )
    return {names[0]: existing(given)}


def _keep(dataset: Dataset, originals: Mapping[str, Path], folder: Path) -> tuple[str, ...]:
    """Convert, check and write; nothing is written unless all of it is right."""
    built = _converted(dataset, originals)
    for path, content in built.items():
        wrong = dataset.fault(path, content)
        if wrong is not None:
            raise RequestError(
                f"The content of {path} built from {_some(originals)} has {wrong}; nothing was kept. Get the original "
                f"from {dataset.home}."
            )
    _write_together({folder / path: pack(path, content) for path, content in built.items()})
    if all(digest(content) == dataset.files[path] for path, content in built.items()):
        return ("Content checked: the same as in the runs behind the documented numbers.",)
    return (
        "Known rows checked; the content may differ from that of the runs behind the documented numbers: "
        f"{dataset.remark}.",
    )


def _write_together(contents: Mapping[Path, bytes]) -> None:
    """All files or none: each is written beside its place before the first takes its own."""
    *_, last = contents
    with contextlib.ExitStack() as stack:
        # left in the opposite order: the first of them is in its place last
        for path in (last, *(path for path in contents if path != last)):
            stack.enter_context(whole(path)).write_bytes(contents[path])
        if len(contents) > 1:
            # of an older set: what is killed from here on leaves no set, instead of a mixed one
            last.unlink(missing_ok=True)


def _converted(dataset: Dataset, originals: Mapping[str, Path]) -> dict[str, Content]:
    try:
        return dataset.convert(originals)
    except (RequestError, MemoryError):
        raise
    except Exception as error:  # a file that is not the original shows itself in any of them
        if isinstance(error, OSError) and error.errno is not None:  # the disk's, not the content's
            raise
        said = excerpt(first_line(error).rstrip(":"), 200)
        raise RequestError(
            f"{_some(originals)} is not what {dataset.name} is built from ({type(error).__name__}: {said}); get the "
            f"original from {dataset.home}."
        ) from error


def _some(originals: Mapping[str, Path]) -> str:
    first = next(iter(originals.values()))
    return str(first) if len(originals) == 1 else f"the files in {first.parent}"
