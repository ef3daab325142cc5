# SPDX-License-Identifier: Apache-2.0
"""One column of a table as model inputs: how it is fitted on training rows, encoded, and doubted on new rows."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import NamedTuple

import numpy as np

from idiolect.core.checks import RequestError
from idiolect.data.columns import Column
from idiolect.data.kinds import NUMBER, TEXT
from idiolect.data.preparation import Numbers, Texts, add_numbers, add_texts, summarise_numbers, summarise_texts
from idiolect.record.words import counted, excerpt

MOST_LEVELS = 200  # a text column with more different values is a name or free text, not a category
FARTHEST = 20.0  # no training row of a scaled column lies farther from its mean
SHOWN = 3  # values that a sentence names


@dataclasses.dataclass(frozen=True)
class NumberColumn:
    """(value - centre) / scale, missing values read as `fill`; `indicator` adds a column that marks them."""

    name: str
    fill: float
    centre: float
    scale: float
    indicator: bool
    lowest: float | None = None  # of the training rows; None in recipes from before they were kept
    highest: float | None = None
    kind: str = NUMBER  # "number", "truth" or "date"

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the columns it becomes."""
        return (self.name, f"{self.name} is missing") if self.indicator else (self.name,)

    def encode(self, column: Column, own: np.ndarray | None = None) -> np.ndarray:
        """(rows, 1 or 2); `own` has (fill, centre, scale) of each row's client, where they differ."""
        values = column.numbers
        missing = np.isnan(values)
        fill, centre, scale = (self.fill, self.centre, self.scale) if own is None else own.T
        scaled = (np.where(missing, fill, values) - centre) / scale
        return np.stack([scaled, missing], axis=1) if self.indicator else scaled[:, None]

    def doubts(self, column: Column) -> list[str]:
        """Sentences about values far outside the training range, and about missing ones where none were."""
        values = column.numbers
        missing = int(np.isnan(values).sum())
        found = []
        if missing and not self.indicator:
            found.append(
                f"Column {self.name!r} misses {counted(missing, 'value')} and missed none in training: filled with "
                f"{self.fill:g}."
            )
        if self.lowest is None or self.highest is None:
            return found
        reach = self.highest - self.lowest  # farther out than the range is wide is far, whatever the unit
        with np.errstate(invalid="ignore"):
            far = values[(values < self.lowest - reach) | (values > self.highest + reach)]
        if far.size:
            worst = far[np.argmax(np.abs(far - self.centre))]
            found.append(
                f"Column {self.name!r} has {counted(far.size, 'value')} far outside the training range "
                f"{self.lowest:g} to {self.highest:g}, such as {worst:g}: answers for these rows are extrapolated."
            )
        return found


@dataclasses.dataclass(frozen=True)
class CategoryColumn:
    """One column per text seen in the training rows, and a last one for any other text and for missing."""

    name: str
    levels: tuple[str, ...]
    missed: bool = True  # whether training rows missed values

    @property
    def kind(self) -> str:
        """Categories are texts."""
        return "text"

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the columns it becomes."""
        return (*(f"{self.name} = {level}" for level in self.levels), f"{self.name} is missing or new")

    def encode(self, column: Column, own: np.ndarray | None = None) -> np.ndarray:
        """(rows, levels + 1), one 1 in each row; categories are the same for all clients."""
        place = {level: number for number, level in enumerate(self.levels)}
        other = len(self.levels)
        codes = [other if text is None else place.get(text, other) for text in column.texts]
        return np.eye(other + 1)[codes]

    def doubts(self, column: Column) -> list[str]:
        """Sentences about categories never seen, and about missing ones where none were."""
        new = Counter(text for text in column.texts if text is not None)
        missing = len(column) - new.total()
        # what is left are the texts that training has not seen
        for level in self.levels:
            del new[level]
        found = []
        if missing and not self.missed:
            found.append(f"Column {self.name!r} misses {counted(missing, 'value')} and missed none in training.")
        if new:
            shown = [repr(excerpt(level)) for level in list(new)[:SHOWN]]
            names = ", ".join(shown if len(new) <= SHOWN else [*shown, "..."])
            what = "a category" if len(new) == 1 else f"{len(new)} categories"
            found.append(
                f"Column {self.name!r} has {what} never seen in training, {names}, in "
                f"{counted(new.total(), 'row')}: read as missing."
            )
        return found


def unscaled(column: NumberColumn | CategoryColumn) -> NumberColumn | CategoryColumn:
    """The column without a number of all clients: each is scaled by its own rows."""
    if isinstance(column, CategoryColumn):
        return column
    return dataclasses.replace(column, fill=0.0, centre=0.0, scale=1.0, lowest=None, highest=None)


class Fitted(NamedTuple):
    """A fitted column, or None where it is left out, what each client sent for it, and the sentences about it."""

    column: NumberColumn | CategoryColumn | None
    sent: Numbers | Texts | None = None
    note: str = ""
    warning: str = ""


def fit_column(column: Column, owner: np.ndarray, clients: int, scaling: str, named: bool) -> Fitted:
    """Learn a column from what each client says of its training rows; `owner` is the client of each row.

    One that cannot be an input is refused if `named`, else left out.
    """
    name, kind = column.name, column.data.type
    if not column.present:
        return Fitted(None, note=f"Column {name!r} holds no value in the training rows and was left out.")
    if column.kind is None:
        if named:
            raise RequestError(f"Column {name!r} must hold numbers or texts, got the type {kind}; convert it.")
        return Fitted(None, warning=f"Column {name!r} has the type {kind}, which cannot be an input, and was left out.")
    each = summarise(column, owner, clients)
    if isinstance(each, Numbers):
        return fit_number(name, each, column.kind, scaling)
    fitted = fit_category(name, each, named)
    if column.kind == TEXT:
        return fitted
    reason = f"Column {name!r} holds whole numbers with more digits than a number can keep: taken for names."
    return fitted._replace(note=f"{reason} {fitted.note}".strip())


def summarise(column: Column, owner: np.ndarray, clients: int) -> Numbers | Texts:
    """What each client says of a column that can be an input."""
    # beyond 2^53 neighbouring numbers become one: such columns are names
    if column.kind == TEXT or column.has_long_integers:
        return summarise_texts(column.texts, owner, clients)
    return summarise_numbers(column.numbers, owner, clients)


def fit_category(name: str, each: Texts, named: bool) -> Fitted:
    """A column of texts, by what each client says of its own."""
    together = add_texts(each)
    levels = together.levels[0]
    if len(levels) <= MOST_LEVELS:
        values = counted(len(levels), "value")
        missing = int(together.missing[0])
        missed = (
            f"the {counted(missing, 'value')} that it misses in training rows" if missing else "values not seen there"
        )
        more = f", and one for {missed}"
        note = f"Column {name!r} is text: one input for each of {values}{more}."
        return Fitted(CategoryColumn(name, levels, missed=missing > 0), each, note)
    much = f"Column {name!r} holds {len(levels)} different texts, more than the {MOST_LEVELS} allowed in a category"
    if named:
        raise RequestError(f"{much}; take it out of --features and --categorical.")
    return Fitted(None, each, warning=f"{much}, and was left out.")


def fit_number(name: str, each: Numbers, kind: str, scaling: str) -> Fitted:
    """A column of numbers, by what each client says of its own."""
    every = add_numbers(each)
    count, missing = int(every.present[0]), int(every.missing[0])
    if count == 0:
        return Fitted(None, each, f"Column {name!r} holds no value in the training rows and was left out.")
    centres, scales, capped = centres_and_scales(every)
    centre, scale = (float(centres[0]), float(scales[0])) if scaling == "standard" else (0.0, 1.0)
    lowest, highest, fill = (float(part[0]) for part in (every.lowest, every.highest, every.mean))
    fitted = NumberColumn(name, fill, centre, scale, missing > 0, lowest, highest, kind)
    notes = []
    if missing:
        notes.append(
            f"Column {name!r} misses {missing / (count + missing):.1%} of its training values: filled with their mean "
            f"{fill:g}, marked."
        )
    if lowest == highest:
        notes.append(f"Column {name!r} is constant in the training rows.")
    if capped[0] and scaling == "standard":
        notes.append(
            f"Column {name!r} reaches from {lowest:g} to {highest:g} with a spread of "
            f"{np.sqrt(every.squares[0] / count):g}: divided by {scale:g}, so that no training row lies beyond "
            f"{FARTHEST:g}."
        )
    return Fitted(fitted, each, " ".join(notes))


def own_scales(each: Numbers, scaling: str) -> np.ndarray:
    """(clients, 3): fill, centre and scale of each client by its own rows; 0, 0, 1 without a value."""
    centres, scales, _ = centres_and_scales(each)
    # a gap is filled in the units of the column, whether it is scaled or not
    fills = centres.copy()
    if scaling == "none":
        centres, scales = np.zeros_like(centres), np.ones_like(scales)
    return np.stack([fills, centres, scales], axis=1)


def centres_and_scales(found: Numbers) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means and spreads, and where the spread was widened, of each entry; 0 and 1 without a value.

    Two values have their difference for a spread, and rare far values widen it: divided by its standard deviation, a
    mark that 6 of 60000 rows carry would be 100 in these rows.
    """
    there = found.present > 0
    centre = np.where(there, found.mean, 0.0)
    lowest, highest = np.where(there, found.lowest, 0.0), np.where(there, found.highest, 0.0)
    spread = np.sqrt(found.squares / np.maximum(found.present, 1))
    # a constant column would be divided by the rounding error of its mean
    level = ~(spread > 1e-12 * np.maximum(1.0, np.abs(centre)))  # constant; also where the spread is not a number
    level &= np.isfinite(spread)
    widest = np.maximum(highest - centre, centre - lowest) / FARTHEST
    capped = ~level & (found.others > 0) & (widest > spread)
    scale = np.where(found.others > 0, np.maximum(spread, widest), highest - lowest)
    return centre, np.where(level, 1.0, scale), capped
