# SPDX-License-Identifier: Apache-2.0
"""Shakespeare's speaking roles as clients that learn to guess the next character."""

from __future__ import annotations

import json
from collections import defaultdict

import numpy as np

from idiolect.core.checks import RequestError
from idiolect.data.compressed import read_bytes
from idiolect.data.dataset_files import dataset_file
from idiolect.data.federation import Federation
from idiolect.data.leaf import NO_TARGET
from idiolect.data.split import PARTS, HeldOut, Split, part_sizes


def shakespeare(
    roles: int | None = None, *, length: int = 80, split: Split = Split(), held_out: HeldOut = 0, seed: int = 0
) -> Federation:
    """Shakespeare's 1138 roles (play, role) with at least two speeches: the next character after each of `length`.

    A row is `length` characters (as numbers into the 72 of all plays, sorted) and the character after each. A role's
    rows follow each other, the first ones train, the last ones test; the last row ends with targets -1, which count for
    nothing. `roles` keeps those with most text.
    """
    if length < 1:
        raise RequestError(f"[data.settings] shakespeare: length must be at least 1, got {length}.")
    texts: dict[str, list[str]] = defaultdict(list)
    for line in read_bytes(dataset_file("text/shakespeare_speeches.jsonl.xz")).decode("utf-8").splitlines():
        speech = json.loads(line)
        texts[f"{speech['play']} / {speech['role']}"].append(speech["text"])
    # of all plays, those of roles that are left out too: numbers do not depend on `roles`
    alphabet = "".join(sorted(set("\n").union(*(text for speeches in texts.values() for text in speeches))))
    joined = {role: "\n".join(speeches) for role, speeches in texts.items() if len(speeches) > 1}
    inputs, targets, ids, parts = [], [], [], []
    for role in sorted(joined, key=lambda role: (-len(joined[role]), role))[:roles]:
        # one role after another: no row reaches from one role into the next
        known, wanted = sequences(encode(joined[role], alphabet), length)
        sizes = part_sizes(len(known), split.fractions)
        used = sum(sizes[:3])
        inputs.append(known[:used])
        targets.append(wanted[:used])
        ids += [role] * used
        parts += np.repeat(PARTS, sizes[:3]).tolist()
    return Federation.from_arrays(
        np.concatenate(inputs),
        np.concatenate(targets),
        ids,
        classes=tuple(alphabet),
        parts=np.array(parts),
        held_out=held_out,
        seed=seed,
        tokens=True,
    )


def encode(text: str, alphabet: str) -> np.ndarray:
    """Every character's place in `alphabet`; one that is not there is refused."""
    number = {character: place for place, character in enumerate(alphabet)}
    strange = sorted(set(text) - set(number))
    if strange:
        raise RequestError(f"The text holds the character {strange[0]!r}, which is not in the vocabulary; add it.")
    return np.array([number[character] for character in text], np.int32)


def sequences(tokens: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets, (rows, length) each: the token after every token but the last. Padded with 0 and -1."""
    amount = len(tokens) - 1
    rows = -(-amount // length)
    inputs, targets = np.zeros(rows * length, np.int32), np.full(rows * length, NO_TARGET, np.int32)
    inputs[:amount], targets[:amount] = tokens[:-1], tokens[1:]
    return inputs.reshape(rows, length), targets.reshape(rows, length)
