# SPDX-License-Identifier: Apache-2.0
"""Refusals and remarks in the words of a Python caller: `out=` where the command line says --out."""

from __future__ import annotations

import contextlib
import csv
import re
import shlex
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

from idiolect.record.errors import RequestError

# Values are taken along only where they cannot be mistaken for the next word of the sentence.
_WORDS = re.compile(
    r"""(?P<command>`idiolect[^`]*`)                                   # stays: it is for a terminal
    | --set\ (?P<quote>['"])(?P<key>[\w.]+)\ =\ (?P<value>.+?)(?P=quote)
    | --(?P<choice>model|task)\ (?P<chosen>personal|shared|auto|classification|regression|counts)\b
    | --(?P<column>drop|time|split-column)\ (?:(?P<quoted>'[^']*'(?:"'"'[^']*')*)    # as `words.option` writes it
        |(?P<name>(?!with\b|fewer\b|or\b|if\b)\w[\w.-]*\b))
    | (?<![\w-])--(?P<option>[a-z](?:[a-z0-9-]*[a-z0-9])?)""",
    re.VERBOSE,
)
_NAMES = {"set": "spec", "over": "sweep", "data": "data_set"}
WARNING = "Warning: "  # how a remark begins that is one
# A decorator made of a context manager puts a frame of contextlib between the caller and the package.
_OURS = (str(Path(__file__).parents[1]), contextlib.__file__)


@contextlib.contextmanager
def in_python() -> Iterator[None]:
    """A RequestError names arguments in the place of command-line options."""
    try:
        yield
    except RequestError as error:
        error.args = (with_arguments(str(error)), *error.args[1:])
        raise


def with_arguments(sentence: str) -> str:
    """The sentence with `held_out=` for --held-out, and with a Python value where the command line has one."""
    return _WORDS.sub(_argument, sentence)


def _argument(found: re.Match[str]) -> str:
    if found["command"]:
        return found["command"]
    if found["key"]:
        return f'spec={{"{found["key"]}": {found["value"]}}}'
    if found["choice"]:
        return f"{found['choice']}={found['chosen']!r}"
    if found["column"]:
        name = found["name"] or shlex.split(found["quoted"])[0]
        named = next(csv.reader([name])) if found["column"] == "drop" else name
        return f"{found['column'].replace('-', '_')}={named!r}"
    return f"{_NAMES.get(found['option'], found['option'].replace('-', '_'))}="


def warn(text: str) -> None:
    """A remark that is a warning becomes one of Python's; the others are in the notes of the result."""
    if text.startswith(WARNING):
        warn_caller(with_arguments(text.removeprefix(WARNING)))


def warn_caller(text: str) -> None:
    """A warning that points at the caller's own line (`skip_file_prefixes` would, but Python 3.11 has it not)."""
    frame, level = sys._getframe(), 1
    while frame.f_code.co_filename.startswith(_OURS) and frame.f_back is not None:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)
