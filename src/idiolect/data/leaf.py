# SPDX-License-Identifier: Apache-2.0
"""The LEAF benchmark's JSON (users, num_samples, user_data with x and y): one file or a folder of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from idiolect.core.checks import RequestError
from idiolect.core.data import Rows
from idiolect.data.compressed import read_bytes


class LeafData(NamedTuple):
    """Every user's rows. Texts become character numbers; `alphabet` lists the characters in that order."""

    rows: Rows
    names: tuple[str, ...]
    alphabet: str  # "" where the inputs are numbers


def read_leaf_json(path: str | Path) -> LeafData:
    """Rows by user, in the order of file names and of their user lists; for `Federation.from_rows`."""
    path = Path(path)
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise RequestError(f"The folder {path} holds no .json file; name a folder of LEAF files.")
    inputs: list[Any] = []
    targets: list[Any] = []
    names: list[str] = []
    known: set[str] = set()
    counts: list[int] = []
    for file in files:
        for user, rows in _users(file):
            if user in known:
                raise RequestError(f"{file} repeats the user {user!r}; each user may appear once.")
            known.add(user)
            names.append(user)
            counts.append(len(rows["y"]))
            inputs += rows["x"]
            targets += rows["y"]
    alphabet = _alphabet(inputs, targets)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return LeafData(
        Rows(_array(path, inputs, alphabet, "x"), _array(path, targets, alphabet, "y"), offsets),
        tuple(names),
        alphabet,
    )


def _users(file: Path) -> list[tuple[str, dict[str, list[Any]]]]:
    """(user, {'x': [...], 'y': [...]}) of one file, checked."""
    try:
        content = json.loads(read_bytes(file))
    except UnicodeDecodeError as error:
        raise RequestError(f"{file} is not UTF-8 text: byte {error.start} cannot be read.") from error
    except json.JSONDecodeError as error:
        raise RequestError(
            f"{file} is not whole JSON: {error.msg} at line {error.lineno}, column {error.colno}, byte {error.pos}."
        ) from error
    for key in ("users", "num_samples", "user_data"):
        if not isinstance(content, dict) or key not in content:
            raise RequestError(f"{file} is not a LEAF file: it has no {key!r}; LEAF has users, num_samples, user_data.")
    if len(content["users"]) != len(content["num_samples"]):
        raise RequestError(
            f"{file} names {len(content['users'])} users but {len(content['num_samples'])} sample counts."
        )
    found = []
    for user, samples in zip(content["users"], content["num_samples"]):
        rows = content["user_data"].get(user)
        if rows is None or "x" not in rows or "y" not in rows:
            raise RequestError(f"{file} names the user {user!r} but has no x and y for it in user_data.")
        if not len(rows["x"]) == len(rows["y"]) == samples:
            raise RequestError(
                f"{file}: user {user!r} has {len(rows['x'])} x, {len(rows['y'])} y and num_samples "
                f"{samples}; "
                "they must agree."
            )
        found.append((str(user), rows))
    return found


def _alphabet(inputs: list[Any], targets: list[Any]) -> str:
    texts = [entry for entry in (*inputs, *targets) if isinstance(entry, str)]
    return "".join(sorted(set().union(*texts))) if texts else ""


def _array(path: Path, entries: list[Any], alphabet: str, word: str) -> np.ndarray:
    """Numbers as they are; texts of one length as character numbers (a single character as one number)."""
    try:
        if entries and isinstance(entries[0], str):
            place = {character: number for number, character in enumerate(alphabet)}
            codes = np.array([[place[character] for character in text] for text in entries], np.int32)
            return codes[:, 0] if word == "y" and codes.shape[1] == 1 else codes
        values = np.array(entries)
        if values.dtype.kind not in "biuf":
            raise ValueError(f"the type {values.dtype}")
    except (ValueError, TypeError, KeyError) as error:
        sizes = sorted({len(entry) for entry in entries if isinstance(entry, (list, str))})
        found = f"entries of {sizes[0]} and of {sizes[1]}" if len(sizes) > 1 else error
        raise RequestError(
            f"{path}: the {word} entries must all be numbers, or texts, of one shape, got {found}; "
            "crop, pad or resize them alike."
        ) from error
    return values.astype(np.float32) if values.dtype.kind == "f" else values
