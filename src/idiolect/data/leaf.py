# SPDX-License-Identifier: Apache-2.0
"""The LEAF benchmark's JSON (users, num_samples, user_data with x and y): one file or a folder of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from idiolect.core.checks import RequestError
from idiolect.core.data import Rows
from idiolect.data.compressed import read_bytes
from idiolect.data.encoding import utf8_bytes

KEYS = ("users", "num_samples", "user_data")
MOST_BYTE = 255  # whole numbers up to it may be pixels; larger ones name tokens
NO_TARGET = -1  # of a position that has none
Entry: TypeAlias = "str | float | list[Entry]"  # what JSON may hold, when all is well
UserRows: TypeAlias = dict[str, list[Entry]]  # x and y


class LeafData(NamedTuple):
    """Every user's rows. Texts in x become character numbers; `alphabet` lists the characters in that order.

    Texts in y beside texts in x are the characters to guess, beside numbers they are labels.
    """

    rows: Rows
    names: tuple[str, ...]
    alphabet: str  # "" where the inputs are numbers


def read_leaf_json(path: str | Path) -> LeafData:
    """Rows by user, in the order of file names and of their user lists; for `Federation.from_rows`."""
    path = Path(path)
    users = _read_users(_files(path))
    inputs, targets = ([entry for rows in users.values() for entry in rows[key]] for key in ("x", "y"))
    alphabet = _alphabet([*inputs, *targets]) if any(map(_is_text, inputs)) else ""
    offsets = np.cumsum([0, *(len(rows["y"]) for rows in users.values())]).astype(np.int64)
    # texts beside texts are characters to guess, beside numbers they are names of classes
    labels = not alphabet and bool(targets) and all(map(_is_text, targets))
    answers = np.array(targets, dtype=str) if labels else _array(path, targets, alphabet, "y")
    return LeafData(Rows(_array(path, inputs, alphabet, "x"), answers, offsets), tuple(users), alphabet)


def _files(path: Path) -> list[Path]:
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise RequestError(f"The folder {path} holds no .json file; name a folder of LEAF files.")
    return files


def _read_users(files: Sequence[Path]) -> dict[str, UserRows]:
    users: dict[str, UserRows] = {}
    for file in files:
        content = _content(file)
        names, samples, data = (content[key] for key in KEYS)
        if not (isinstance(names, list) and isinstance(samples, list) and isinstance(data, dict)):
            raise RequestError(f"{file} is not a LEAF file: users and num_samples must be lists, user_data an object.")
        if len(names) != len(samples):
            raise RequestError(f"{file} names {len(names)} users but {len(samples)} sample counts.")
        for user, amount in zip(names, samples):
            rows = _rows_of(file, user, amount, data)
            if user in users:
                raise RequestError(f"{file} repeats the user {user!r}; each user may appear once.")
            users[user] = rows
    return users


def _is_text(entry: Entry) -> bool:
    return isinstance(entry, str)


def _alphabet(entries: list[Entry]) -> str:
    return "".join(sorted(set().union(*(entry for entry in entries if isinstance(entry, str)))))


def refuse_token_numbers(path: str | Path, inputs: np.ndarray) -> list[str]:
    """RequestError for whole numbers in x that cannot be pixels; those that can earn the warning given back."""
    if inputs.dtype.kind not in "iu" or inputs.ndim < 2 or inputs.size == 0:
        return []
    largest = int(inputs.max())
    way_out = (
        "set data.settings.vocabulary to the number of tokens if they are tokens, or write them as decimals "
        "(12.0) if they are magnitudes"
    )
    if largest > MOST_BYTE:
        raise RequestError(f"{path}: the x entries are whole numbers up to {largest}, as tokens are; {way_out}.")
    return [f"The x entries are whole numbers up to {largest} and were read as magnitudes; {way_out}."]


def next_token_targets(path: str | Path, inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """A target for every position of a sequence: where y has one token it belongs to the last position."""
    if targets.dtype.kind not in "iu" or targets.shape not in (inputs.shape, inputs.shape[:1]) or inputs.ndim != 2:
        raise RequestError(
            f"{path}: beside texts in x, y must hold the next character, or the character after each of x, got "
            f"shapes {inputs.shape} and {targets.shape} of {targets.dtype}; turn texts with labels into numbers first."
        )
    if targets.ndim == 2 or inputs.shape[1] == 0:
        return targets
    sequences = np.full(inputs.shape, NO_TARGET, np.int32)
    sequences[:, -1] = targets
    return sequences


def _rows_of(file: Path, user: object, amount: object, data: Mapping[str, object]) -> UserRows:
    rows = data.get(user) if isinstance(user, str) else None
    if not (isinstance(rows, dict) and isinstance(rows.get("x"), list) and isinstance(rows.get("y"), list)):
        raise RequestError(f"{file} names the user {user!r} but has no x and y for it in user_data.")
    if not len(rows["x"]) == len(rows["y"]) == amount:
        raise RequestError(
            f"{file}: user {user!r} has {len(rows['x'])} x, {len(rows['y'])} y and num_samples {amount}; "
            "they must agree."
        )
    return rows


def _content(file: Path) -> dict[str, object]:
    try:
        content = json.loads(utf8_bytes(read_bytes(file), file))
    except json.JSONDecodeError as error:
        raise RequestError(
            f"{file} is not whole JSON: {error.msg} at line {error.lineno}, column {error.colno}, byte {error.pos}."
        ) from error
    except RequestError:
        raise
    except (RecursionError, ValueError) as error:
        raise RequestError(f"{file} is not a LEAF file: its JSON cannot be read ({error}).") from None
    lacking = next((key for key in KEYS if not isinstance(content, dict) or key not in content), None)
    if lacking is not None:
        raise RequestError(f"{file} is not a LEAF file: it has no {lacking!r}; LEAF has users, num_samples, user_data.")
    return content


def _misfit(entries: list[Entry]) -> str:
    """Two sizes where entries differ in size."""
    sizes = sorted({len(entry) for entry in entries if isinstance(entry, (list, str))})
    return f"entries of {sizes[0]} and of {sizes[1]}" if len(sizes) > 1 else ""


def _array(path: Path, entries: list[Entry], alphabet: str, word: str) -> np.ndarray:
    """Numbers as they are; texts of one length as character numbers (a single character as one number)."""
    try:
        if alphabet and any(map(_is_text, entries)):
            codes = _characters(entries, alphabet)
            # one character after each text: a number per row, as other labels are
            return codes[:, 0] if word == "y" and codes.shape[1] == 1 else codes
        values = np.array(entries)
        if values.dtype.kind not in "biuf":
            raise ValueError(f"the type {values.dtype}")
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise RequestError(
            f"{path}: the {word} entries must all be numbers, or texts, of one shape, got {_misfit(entries) or error}; "
            "crop, pad or resize them alike."
        ) from error
    with np.errstate(over="ignore"):  # what becomes infinite is refused with its client and row
        return values.astype(np.float32) if values.dtype.kind == "f" else values


def _characters(texts: list[Entry], alphabet: str) -> np.ndarray:
    place = {character: number for number, character in enumerate(alphabet)}
    codes = np.array([[place[character] for character in text] for text in texts], np.int32)  # type: ignore[union-attr, index]
    if codes.ndim != 2:
        raise ValueError("entries of other kinds")
    return codes
