# SPDX-License-Identifier: Apache-2.0
"""Originals of data sets over the network or from the user's disk, checked, converted and kept whole."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import ssl
import tarfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from xml.etree.ElementTree import ParseError

from idiolect.core.checks import RequestError
from idiolect.data.catalogue import Dataset, Original
from idiolect.data.compressed import existing
from idiolect.data.packing import Content, digest, pack
from idiolect.record.errors import FetchError
from idiolect.record.files import make_writable, write_whole
from idiolect.record.lock import locked
from idiolect.record.sealed import digest_of

Report = Callable[[str, int, int | None], None]  # name of a file, bytes that are there, bytes of all if known

BLOCK = 2**18
SECONDS = 60  # without a byte
NETWORK = (urllib.error.URLError, ConnectionError, TimeoutError, http.client.HTTPException, ssl.SSLError)
# how a file that is not the original shows itself in its conversion
MALFORMED = (
    *(KeyError, ValueError, TypeError, EOFError, IndexError, OSError),
    *(zipfile.BadZipFile, tarfile.TarError, ParseError),
)


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
            raise FetchError(str(error)) from error
        finally:
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
    # all of it before the first file is written: a set is there whole or not at all
    built = _converted(dataset, originals)
    others = [path for path in dataset.files if digest(built[path]) != dataset.files[path]]
    if others and dataset.exact:
        raise RequestError(
            f"The content of {others[0]} built from {_some(originals)} has the SHA-256 {digest(built[others[0]])}, not "
            f"{dataset.files[others[0]]}; nothing was kept. Get the original from {dataset.home}."
        )
    for path, content in built.items():
        write_whole(folder / path, pack(path, content))
    if not others:
        return ("Content checked: the same as in the runs behind the documented numbers.",)
    return (f"The content differs from that of the runs behind the documented numbers: {dataset.remark}.",)


def _converted(dataset: Dataset, originals: Mapping[str, Path]) -> dict[str, Content]:
    try:
        return dataset.convert(originals)
    except RequestError:
        raise
    except MALFORMED as error:
        if isinstance(error, OSError) and error.errno is not None:  # the disk's, not the content's
            raise
        raise RequestError(
            f"{_some(originals)} is not what {dataset.name} is built from ({type(error).__name__}: {error}); get the "
            f"original from {dataset.home}."
        ) from error


def _some(originals: Mapping[str, Path]) -> str:
    first = next(iter(originals.values()))
    return str(first) if len(originals) == 1 else f"the files in {first.parent}"


def download(original: Original, path: Path, name: str, report: Report) -> Path:
    """The original at `path`, whole and checked; what an interrupted download left beside it is continued."""
    if path.is_file() and original.sha256 in (None, digest_of(path)):
        return path
    partial = path.with_name(f"{path.name}.partial")
    by_hand = f"or get the file elsewhere and use `idiolect datasets build {name} --from FILE`"
    try:
        _receive(original.address, partial, report)
    except urllib.error.HTTPError as error:
        raise FetchError(
            f"{original.address} answered {error.code} {error.reason}; try again later, {by_hand}."
        ) from None
    except NETWORK as error:
        reason = getattr(error, "reason", None) or error
        raise FetchError(
            f"{original.address} could not be read ({reason}); connect to the network and run the command again, which "
            f"goes on where it stopped, {by_hand}."
        ) from None
    found = digest_of(partial)
    if original.sha256 not in (None, found):
        partial.unlink()
        raise FetchError(
            f"{original.address} has the SHA-256 {found}, not {original.sha256}; nothing was kept. Try again, "
            f"{by_hand}."
        )
    # only now under its own name, which says that it is whole
    os.replace(partial, path)
    return path


def _receive(address: str, partial: Path, report: Report) -> None:
    """Append what is missing of `partial`; a server that cannot continue sends all of it again."""
    have = partial.stat().st_size if partial.is_file() else 0
    try:
        response = _ask(address, have)
    except urllib.error.HTTPError as error:
        if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or not have:
            raise
        # nothing is missing, or the file at the address is shorter now
        if error.headers.get("Content-Range", "").rpartition("/")[2] == str(have):
            return
        response = _ask(address, 0)
    _save(response, partial, have, report)


def _save(response: http.client.HTTPResponse, partial: Path, have: int, report: Report) -> None:
    with response:
        # a server may ignore the range and send everything: then the file begins anew
        continued = response.status == http.HTTPStatus.PARTIAL_CONTENT
        done = have if continued else 0
        length = response.headers.get("Content-Length")
        total = None if length is None else done + int(length)
        with open(partial, "ab" if continued else "wb") as file:
            while block := response.read(BLOCK):
                file.write(block)
                done += len(block)
                report(partial.name.removesuffix(".partial"), done, total)
    if total is not None and done < total:
        raise ConnectionError(f"the connection ended after {done} of {total} bytes")


def _ask(address: str, have: int) -> http.client.HTTPResponse:
    """The answer with what follows the first `have` bytes."""
    from idiolect import __version__

    headers = {"User-Agent": f"idiolect/{__version__}"} | ({"Range": f"bytes={have}-"} if have else {})
    return urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=SECONDS)
