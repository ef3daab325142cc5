# SPDX-License-Identifier: Apache-2.0
"""Which rows of each client train, validate and test, and which clients are held out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from idiolect.core.checks import RequestError, nearest
from idiolect.data.draws import generator, rank
from idiolect.record.words import counted

TRAIN, VALIDATION, TEST, UNUSED = 0, 1, 2, 3
PARTS = ("train", "validation", "test")  # by these numbers
SPELLINGS = {
    "train": TRAIN,
    "training": TRAIN,
    "validation": VALIDATION,
    "valid": VALIDATION,
    "val": VALIDATION,
    "test": TEST,
    "testing": TEST,
}
HeldOut = int | float | Sequence[str]


@dataclasses.dataclass(frozen=True)
class Split:
    """Fractions of each client's rows; what they leave of 1 is not used.

    `split_column` names a column that says train, validation or test and replaces the fractions;
    `group_column` names one whose equal values must stay together (overlapping windows, repeated visits);
    `time_column` names one with numbers or dates: each client's oldest rows train, then validate, the newest test.
    """

    train: float = 0.6
    validation: float = 0.2
    test: float = 0.2
    split_column: str | None = None
    group_column: str | None = None
    time_column: str | None = None

    @property
    def fractions(self) -> tuple[float, float, float]:
        """Train, validation, test."""
        return self.train, self.validation, self.test

    def check(self) -> None:
        """Raise RequestError unless the fractions make sense."""
        if min(self.fractions) < 0 or self.train <= 0 or not sum(self.fractions) <= 1 + 1e-9:
            raise RequestError(
                "Split fractions must be at least 0, train above 0, and together at most 1, "
                f"got {self.train:g} + {self.validation:g} + {self.test:g} = {sum(self.fractions):g}."
            )
        others = {"split": self.split_column, "group": self.group_column}
        other = next((word for word, name in others.items() if name is not None), None)
        if self.time_column is not None and other is not None:
            raise RequestError(f"A split takes a time column or a {other} column, got both; leave one of them out.")


@dataclasses.dataclass(frozen=True)
class Plan:
    """The part (TRAIN, VALIDATION, TEST, UNUSED) of every row and whether every client is held out."""

    parts: np.ndarray  # (rows,), int8
    held_out: np.ndarray  # (clients,), bool
    notes: tuple[str, ...]
    drawn: bool = (
        True  # validation rows were drawn and could have been others: they were not named, and no time orders them
    )


def plan(
    owner: np.ndarray,
    names: tuple[str, ...],
    split: Split,
    seed: int,
    held_out: HeldOut = 0,
    groups: np.ndarray | None = None,
    given: np.ndarray | None = None,
    times: np.ndarray | None = None,
    least: int = 2,
) -> Plan:
    """Split every client's rows, by the seed, its name and its rows, whatever other clients there are.

    `owner` is the client number of each row, `groups` the group of each row, `given` a split column's values, `times`
    a number per row that says when it was. `least` clients are needed: one, where a site looks at its own rows.
    """
    split.check()
    if len(names) < least:
        raise RequestError(f"A federation needs at least 2 clients, got {len(names)}; choose another client column.")
    counts = np.bincount(owner, minlength=len(names))
    if counts.min() == 0:
        raise RequestError(f"Client {names[int(counts.argmin())]!r} has no rows; leave it out.")
    draw, notes, drawn = _Draw(owner, names, seed, groups), list[str](), True
    if given is not None:
        parts, drawn = draw.as_given(given, split)
        if drawn and (parts == VALIDATION).any():
            notes = ["The split column names no validation rows: some of the training rows were drawn for that."]
    elif times is not None:
        drawn = False
        parts = np.empty(len(owner), np.int8)
        for rows in _by_client(owner, len(names)):
            parts[rows] = split_by_time(times[rows], split.fractions)
    else:
        parts = draw.deal(np.zeros(len(owner), np.int8), split.fractions, "split")
    notes += _notes(parts, owner, counts, given is not None)
    chosen = np.zeros(1, bool) if least == 1 else draw_held_out(names, held_out, seed, least)
    return Plan(parts, chosen, tuple(notes), drawn)


def _by_client(owner: np.ndarray, clients: int) -> list[np.ndarray]:
    """Each client's rows, in the order in which they stand."""
    return np.split(np.argsort(owner, kind="stable"), np.cumsum(np.bincount(owner, minlength=clients))[:-1])


class _Draw(NamedTuple):
    """What a client's draw depends on: the seed, its name and its own rows, whatever other clients there are."""

    owner: np.ndarray
    names: tuple[str, ...]
    seed: int
    groups: np.ndarray | None

    def deal(self, parts: np.ndarray, fractions: tuple[float, float, float], purpose: str) -> np.ndarray:
        """The parts with every client's training rows dealt out by fractions."""
        dealt, training = parts.copy(), np.flatnonzero(parts == TRAIN)
        for name, places in zip(self.names, _by_client(self.owner[training], len(self.names))):
            rows, units = training[places], np.arange(len(places))
            if self.groups is not None:
                units = np.unique(self.groups[rows], return_inverse=True)[1]
            dealt[rows] = split_units(units, fractions, generator(self.seed, purpose, name))
        return dealt

    def as_given(self, given: np.ndarray, split: Split) -> tuple[np.ndarray, bool]:
        """The parts that a column names, and whether validation rows are drawn because it names none."""
        distinct, codes = np.unique(given.astype(str), return_inverse=True)
        words = [value.strip().lower() for value in distinct]
        unknown = next((str(value) for value, word in zip(distinct, words) if word not in SPELLINGS), None)
        if unknown is not None:
            raise RequestError(f"A split column must say train, validation or test, got {unknown!r}.")
        parts = np.array([SPELLINGS[word] for word in words], np.int8)[codes]
        training = np.bincount(self.owner[parts == TRAIN], minlength=len(self.names))
        if training.min() == 0:
            raise RequestError(
                f"Every client needs a training row, but the split column gives "
                f"{self.names[int(training.argmin())]!r} none; mark one of its rows 'train' or leave the client out."
            )
        # rows that a column names to validate are the user's choice, and no others will do
        drawn = not (parts == VALIDATION).any()
        if drawn and split.validation > 0:  # the column says train or test alone
            whole = split.train + split.validation
            parts = self.deal(parts, (split.train / whole, split.validation / whole, 0.0), "validation")
        return parts, drawn


def split_units(units: np.ndarray, fractions: tuple[float, float, float], draws: np.random.Generator) -> np.ndarray:
    """The part of each row, where rows with the same unit number (0..k-1) stay together.

    Training gets at least one unit; with two units the other one tests; from three on every part that is
    wanted at all gets at least one, then each further unit goes where most is missing.
    """
    sizes = np.bincount(units)
    order = draws.permutation(len(sizes))
    if (sizes == 1).all():
        return np.repeat(np.arange(4, dtype=np.int8), part_sizes(len(sizes), fractions))[np.argsort(order)][units]
    wanted = [TRAIN] + [part for part in (TEST, VALIDATION) if fractions[part] > 0]
    # by rows and not by units: one client may have a group of a hundred rows and ten of one
    rows = np.array([*fractions, max(0.0, 1 - sum(fractions))]) * len(units)
    # a rounding error is no fraction that wants a unit
    rows[rows < 1e-6 * len(units)] = 0
    part_of = np.empty(len(sizes), np.int8)
    got = np.zeros(4)
    for place, unit in enumerate(order):
        with np.errstate(divide="ignore", invalid="ignore"):
            filled = np.where(rows > 0, got / rows, np.inf)
        part = wanted[place] if place < len(wanted) else int(np.argmin(filled))
        part_of[unit] = part
        got[part] += sizes[unit]
    return part_of[units]


def split_by_time(times: np.ndarray, fractions: tuple[float, float, float]) -> np.ndarray:
    """The part of each row: oldest rows train, then validate, the newest test; unused rows are older than these.

    A border between equal times moves to the nearest change of time that leaves both its parts a row.
    """
    order = np.argsort(times, kind="stable")
    changes = np.flatnonzero(np.diff(times[order])) + 1
    sizes = dict(zip((TRAIN, VALIDATION, TEST, UNUSED), part_sizes(len(times), fractions)))
    sequence = [part for part in (UNUSED, TRAIN, VALIDATION, TEST) if sizes[part]]
    borders = [0, *np.cumsum([sizes[part] for part in sequence]).tolist()]
    for place in range(1, len(sequence)):
        inside = changes[(changes > borders[place - 1]) & (changes < borders[place + 1])]
        # where all times between two borders are equal the border stays, and a warning says so
        if inside.size:
            borders[place] = int(inside[np.argmin(np.abs(inside - borders[place]))])
    parts = np.empty(len(times), np.int8)
    for part, start, end in zip(sequence, borders, borders[1:]):
        parts[order[start:end]] = part
    return parts


def part_sizes(rows: int, fractions: tuple[float, float, float]) -> tuple[int, int, int, int]:
    """Rows that train, validate, test and stay unused; training never gets none."""
    total = rows if sum(fractions) > 1 - 1e-9 else max(1, round(rows * sum(fractions)))
    wanted = [part for part in (TEST, VALIDATION) if fractions[part] > 0]
    if total < 3:
        wanted = wanted[: total - 1]  # one row: it trains; two: the other one tests
    sizes = [0, 0, 0, rows - total]
    for part in wanted:
        sizes[part] = max(1, round(total * fractions[part] / sum(fractions)))
    # training keeps a row: the larger of the others gives
    while sum(sizes[1:3]) > total - 1:
        sizes[max(wanted, key=lambda part: sizes[part])] -= 1
    sizes[TRAIN] = total - sum(sizes[1:3])
    return sizes[0], sizes[1], sizes[2], sizes[3]


def draw_held_out(names: tuple[str, ...], held_out: HeldOut, seed: int, leave: int = 0) -> np.ndarray:
    """Booleans per client, of which `leave` at least train.

    A number or fraction is drawn by a rank of each name, whatever their order.
    """
    if isinstance(held_out, (int, float, np.integer, np.floating)):
        # by a hash of each name: a client that joins or leaves moves no other client in or out
        wanted = sorted(names, key=lambda name: rank(seed, "held out", name))[: _amount(held_out, len(names))]
    else:
        # a single name is a text, and would be taken apart into letters
        wanted = [held_out] if isinstance(held_out, str) else [str(name) for name in held_out]
        unknown = next((name for name in wanted if name not in names), None)
        if unknown is not None:
            raise RequestError(
                f"held_out names the client {unknown!r}, which is not in the data.{nearest(unknown, names)}"
            )
    taken = set(wanted)
    chosen = np.array([name in taken for name in names], bool)
    if (~chosen).sum() < leave:
        raise RequestError(
            f"held_out must leave at least {leave} of {len(names)} clients to train, got {chosen.sum()} held "
            "out; hold out fewer."
        )
    return chosen


def _amount(held_out: float, clients: int) -> int:
    """How many clients a number or a fraction of them is."""
    whole = isinstance(held_out, (int, np.integer))
    if held_out < 0 or (not whole and held_out >= 1):
        raise RequestError(
            f"held_out must be a number of clients (0, 1, ...), a fraction below 1 or a list of names, got {held_out}."
        )
    return int(held_out) if whole else round(float(held_out) * clients)


def _notes(parts: np.ndarray, owner: np.ndarray, counts: np.ndarray, given: bool) -> list[str]:
    """Who has no rows of a part though it has several rows, and which rows no part has."""
    notes = []
    ones, unused = int((counts == 1).sum()), int((parts == UNUSED).sum())
    if ones:
        one = "client has a single row: it trains, and the client has no validation or test rows."
        several = "clients have a single row each: it trains, and they have no validation or test rows."
        notes.append(counted(ones, one, several))
    for word, part in (("validation", VALIDATION), ("test", TEST)):
        present = np.bincount(owner[parts == part], minlength=len(counts)) > 0
        without = int((~present & (counts > 1)).sum())
        if without and present.any():
            who = counted(without, "client with more than one row has", "clients with more than one row have")
            notes.append(f"{who} too few for {word} rows.")
        elif without and given:  # or else that was to be expected
            notes.append(f"The split column gives no {word} rows to any client.")
    if unused:
        rows = counted(unused, "row is", "rows are")
        notes.append(f"{rows} not used, because the split fractions sum to less than 1.")
    return notes
