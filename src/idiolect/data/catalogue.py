# SPDX-License-Identifier: Apache-2.0
"""The data sets that need files: what they are, where they come from, under which licence, and their checksums."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

from idiolect.core.checks import RequestError, nearest
from idiolect.data import conversions
from idiolect.data.packing import Content, Known, difference, digest

CATALOGUE = Path(__file__).with_name("catalogue.toml")


@dataclasses.dataclass(frozen=True)
class Original:
    """One file as a set's home publishes it; `sha256` is None where no trustworthy checksum is known."""

    address: str
    sha256: str | None = None

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.address.rpartition("/")[2]


@dataclasses.dataclass(frozen=True)
class Dataset:
    """One data set: `files` are ours, each with the checksum of what it holds, whatever packs it (`packing.digest`).

    Where a conversion may have other content, `known` is what stands in it all the same, and `remark` says how it
    may differ.
    """

    name: str
    title: str
    clients: str
    rows: int
    predicted: str
    licence: str
    citation: str
    home: str
    originals: tuple[Original, ...]
    convert: conversions.Convert
    files: dict[str, str]
    size: int  # bytes of our files
    remark: str = ""
    known: dict[str, Known] = dataclasses.field(default_factory=dict)

    @property
    def exact(self) -> bool:
        """Whether what is built has exactly the content of `files`."""
        return not self.known

    def fault(self, path: str, content: Content) -> str | None:
        """In what the content of one of `files` is not as known, as the end of a sentence; None where it is."""
        found, known = digest(content), self.known.get(path)
        if found == self.files[path]:
            return None
        # not the known file: it may differ only as another copy of it may
        return f"the SHA-256 {found}, not {self.files[path]}" if known is None else difference(known, content)

    @property
    def shown_size(self) -> str:
        """Bytes for a reader."""
        return f"{self.size / 1e6:.1f} MB" if self.size >= 1e6 else f"{self.size / 1e3:.0f} kB"


def _read(name: str, row: dict[str, Any]) -> Dataset:
    originals = tuple(Original(address, checksum or None) for address, checksum in row.pop("originals").items())
    convert = getattr(conversions, row.pop("convert", name))
    known = {path: Known(**fields) for path, fields in row.pop("known", {}).items()}
    return Dataset(name=name, originals=originals, convert=convert, known=known, **row)


DATASETS = {name: _read(name, row) for name, row in tomllib.loads(CATALOGUE.read_text(encoding="utf-8")).items()}


def find_dataset(name: str) -> Dataset:
    """The row of that name; an unknown one is refused with the nearest."""
    if name not in DATASETS:
        raise RequestError(
            f"There is no data set {name!r} that needs files.{nearest(name, DATASETS)} `idiolect datasets list` "
            "shows all."
        )
    return DATASETS[name]
