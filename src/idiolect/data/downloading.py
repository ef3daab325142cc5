# SPDX-License-Identifier: Apache-2.0
"""One file over HTTP: continued after an interruption, never joined from two versions of it."""

from __future__ import annotations

import contextlib
import dataclasses
import email.utils
import http.client
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

from idiolect.data.catalogue import Original
from idiolect.record.errors import FetchError
from idiolect.record.files import write_whole
from idiolect.record.sealed import digest_of

Report = Callable[[str, int, int | None], None]  # name of a file, bytes that are there, bytes of all if known

Answer = http.client.HTTPResponse | urllib.error.HTTPError

BLOCK = 2**18
SECONDS = 60  # without a byte
NETWORK = (urllib.error.URLError, ConnectionError, TimeoutError, http.client.HTTPException, ssl.SSLError)


@dataclasses.dataclass(frozen=True)
class _Place:
    """An original on the disk: what is there of it, and which version of it the server said that is."""

    original: Original
    path: Path

    @property
    def partial(self) -> Path:
        return self.path.with_name(f"{self.path.name}.partial")

    @property
    def version_file(self) -> Path:
        return self.path.with_name(f"{self.path.name}.version")

    @property
    def version(self) -> str | None:
        """What the server said; None where it said nothing, or what is there cannot stand in a header."""
        text = self.version_file.read_bytes().decode("ascii", "replace") if self.version_file.is_file() else ""
        return text if text and text.isascii() and text.isprintable() else None

    @property
    def have(self) -> int:
        """Bytes that a download may go on from."""
        if not self.partial.is_file() or (self.version is None and self.original.sha256 is None):
            return 0  # neither the server nor a checksum would tell that the rest is of another file
        return self.partial.stat().st_size

    def begin(self, version: str | None) -> None:
        """Forget an older version before the first byte of this one is kept."""
        self.partial.unlink(missing_ok=True)
        self.version_file.unlink(missing_ok=True)
        if version is not None:
            write_whole(self.version_file, version.encode())


def download(original: Original, path: Path, name: str, report: Report) -> Path:
    """The original at `path`, whole and checked; what an interrupted download left beside it is continued.

    Without a known checksum the server is asked whether a file that is already there is still the one that it has:
    files of one set that come on different days must not be of different versions.
    """
    place = _Place(original, path)
    by_hand = f"or get the file elsewhere and use `idiolect datasets build {name} --from FILE`"
    try:
        if _is_current(place):
            return path
        path.unlink(missing_ok=True)
        _receive(place, report)
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
    found = digest_of(place.partial)
    if original.sha256 not in (None, found):
        place.begin(None)
        raise FetchError(
            f"{original.address} has the SHA-256 {found}, not {original.sha256}; nothing was kept. Try again, "
            f"{by_hand}."
        )
    # only now under its own name, which says that it is whole
    os.replace(place.partial, path)
    return path


def _is_current(place: _Place) -> bool:
    """Whether the whole file is there and still the one at its address."""
    if not place.path.is_file():
        return False
    if place.original.sha256 is not None:
        return place.original.sha256 == digest_of(place.path)
    if place.version is None:
        return False
    condition = "If-None-Match" if place.version.startswith('"') else "If-Modified-Since"
    # what it holds is not read: where the file has changed it is asked for once more
    with _ask(place.original.address, {condition: place.version}, but=HTTPStatus.NOT_MODIFIED) as response:
        return response.status == HTTPStatus.NOT_MODIFIED


def _receive(place: _Place, report: Report) -> None:
    """Append what is missing, if it is of the same version; otherwise begin anew."""
    address, have, version = place.original.address, place.have, place.version
    rest = {"Range": f"bytes={have}-"} if have else {}
    condition = {"If-Range": version} if have and version is not None else {}
    response = _ask(address, rest | condition, but=HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
    # a server may ignore the range, or the condition on it
    ignored = response.status == HTTPStatus.PARTIAL_CONTENT and not _goes_on(response, version, have)
    # nothing is missing, or the file at the address is shorter now: which of the two is not known
    if ignored or response.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        response.close()
        response = _ask(address, {})
    with response:
        continued = response.status == HTTPStatus.PARTIAL_CONTENT
        if not continued:
            place.begin(_version(response))
        _append(response, place.partial, have if continued else 0, report)


def _goes_on(response: Answer, version: str | None, have: int) -> bool:
    """Whether an answer is the rest of the very file whose first `have` bytes are there."""
    follows = response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
    return follows and (version is None or _version(response) == version)


def _version(response: Answer) -> str | None:
    """What tells two versions of a file apart byte for byte: its strong tag, or its date if that is not too fresh."""
    tag = response.headers.get("ETag", "")
    if tag.startswith('"'):
        return tag
    changed, now = response.headers.get("Last-Modified"), response.headers.get("Date")
    if changed and now:
        with contextlib.suppress(ValueError, TypeError):
            # the clock of a server counts seconds: a file that has just changed may change again in the same one
            age = email.utils.parsedate_to_datetime(now) - email.utils.parsedate_to_datetime(changed)
            return changed if age.total_seconds() >= 60 else None
    return None


def _append(response: Answer, partial: Path, done: int, report: Report) -> None:
    length = response.headers.get("Content-Length")
    total = None if length is None else done + int(length)
    with open(partial, "ab") as file:
        while block := response.read(BLOCK):
            file.write(block)
            done += len(block)
            report(partial.name.removesuffix(".partial"), done, total)
    if total is not None and done < total:
        raise ConnectionError(f"the connection ended after {done} of {total} bytes")


def _ask(address: str, conditions: dict[str, str], but: HTTPStatus | None = None) -> Answer:
    """What is at the address; an answer of the status `but` is no error."""
    from idiolect import __version__

    headers = {"User-Agent": f"idiolect/{__version__}"} | conditions
    try:
        return urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=SECONDS)
    except urllib.error.HTTPError as error:
        if error.code != but:
            raise
        return error
