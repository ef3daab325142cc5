# SPDX-License-Identifier: Apache-2.0
"""Text files in UTF-8: a byte-order mark is stripped, every other encoding is refused by its name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from idiolect.core.checks import RequestError

T = TypeVar("T")
UTF8_MARK = b"\xef\xbb\xbf"
MARKS = {  # the longer ones first: UTF-32 starts like UTF-16
    b"\xff\xfe\x00\x00": ("UTF-32", "UTF-32LE"),
    b"\x00\x00\xfe\xff": ("UTF-32", "UTF-32BE"),
    b"\xff\xfe": ("UTF-16", "UTF-16"),
    b"\xfe\xff": ("UTF-16", "UTF-16"),
}
OTHER_FORMATS = {
    b"PK\x03\x04": "a zip file, as Excel workbooks are; save the sheet as CSV UTF-8",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook; save the sheet as CSV UTF-8",
    b"PAR1": "a Parquet file; give its name the ending .parquet",
    b"ARROW1": "a Feather file; give its name the ending .feather",
    b"FEA1": "a Feather file; give its name the ending .feather",
    b"\x1f\x8b": "packed with gzip; add .gz to its name",
    b"BZh": "packed with bzip2; add .bz2 to its name",
    b"\xfd7zXZ": "packed with xz; add .xz to its name",
}
SEEN = 4096  # bytes that show an encoding without a mark


def utf8_bytes(content: bytes, path: str | Path) -> bytes:
    """The content without a byte-order mark; RequestError names the encoding or format of anything but UTF-8."""
    # 'PK...' may begin a text as well: only what is no text besides is refused for its first bytes
    other = _by_start(OTHER_FORMATS, content)
    if other is not None and _fault(content) is not None:
        raise RequestError(f"{path} is not a text table but {other}.")
    content = content.removeprefix(UTF8_MARK)
    place = _fault(content)
    if place is None:
        return content
    known = _by_start(MARKS, content) or _unmarked(content)
    if known is None and content[place] == 0:
        raise RequestError(
            f"{path} is not a well-formed table: byte {place} is zero, which no text has; save it as CSV UTF-8."
        )
    (name, tool_name), place = (_western(content), place) if known is None else (known, 0)
    raise RequestError(
        f"{path} is not UTF-8 text but looks like {name} (byte {place}); save it as CSV UTF-8, or convert it: "
        f"iconv -f {tool_name} -t UTF-8 OLD > NEW."
    )


def _by_start(table: Mapping[bytes, T], content: bytes) -> T | None:
    return next((found for start, found in table.items() if content.startswith(start)), None)


def _fault(content: bytes) -> int | None:
    """The first byte that no text in UTF-8 has: zero, or one that cannot be decoded."""
    if b"\0" in content:
        return content.index(0)
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start
    return None


def _unmarked(content: bytes) -> tuple[str, str] | None:
    """UTF-16 without its mark: in Western text every other byte is zero."""
    sample = content[:SEEN]
    for start, name in ((1, "UTF-16LE"), (0, "UTF-16BE")):
        zeros, others = sample[start::2].count(0), sample[1 - start :: 2].count(0)
        if len(sample) >= 4 and zeros > 0.8 * (len(sample) // 2) and not others:
            return "UTF-16", name
    return None


def _western(content: bytes) -> tuple[str, str]:
    """One byte per letter: Windows-1252 has letters and quotes where Latin-1 has control characters."""
    controls = any(0x80 <= byte < 0xA0 for byte in set(content))
    return ("Windows-1252", "WINDOWS-1252") if controls else ("Latin-1 or Windows-1252", "WINDOWS-1252")
