# SPDX-License-Identifier: Apache-2.0
"""One column of a table as model inputs: how it is fitted on training rows, encoded, and doubted on new rows."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from idiolect.core.checks import RequestError
from idiolect.data.columns import as_numbers, as_texts, has_long_integers, is_text, kind_of
from idiolect.data.kinds import NUMBER

if TYPE_CHECKING:
    import pyarrow as pa

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

    def encode(self, column: pa.ChunkedArray) -> np.ndarray:
        """(rows, 1 or 2)."""
        values = as_numbers(column, self.name)
        missing = np.isnan(values)
        scaled = (np.where(missing, self.fill, values) - self.centre) / self.scale
        return np.stack([scaled, missing], axis=1) if self.indicator else scaled[:, None]

    def doubts(self, column: pa.ChunkedArray) -> list[str]:
        """Sentences about values far outside the training range, and about missing ones where none were."""
        values = as_numbers(column, self.name)
        missing = int(np.isnan(values).sum())
        found = []
        if missing and not self.indicator:
            found.append(
                f"Column {self.name!r} misses {_values(missing)} and missed none in training: filled with "
                f"{self.fill:g}."
            )
        if self.lowest is None or self.highest is None:
            return found
        reach = self.highest - self.lowest
        with np.errstate(invalid="ignore"):
            far = values[(values < self.lowest - reach) | (values > self.highest + reach)]
        if far.size:
            worst = far[np.argmax(np.abs(far - self.centre))]
            found.append(
                f"Column {self.name!r} has {_values(far.size)} far outside the training range {self.lowest:g} to "
                f"{self.highest:g}, such as {worst:g}: answers for these rows are extrapolated."
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

    def encode(self, column: pa.ChunkedArray) -> np.ndarray:
        """(rows, levels + 1), one 1 in each row."""
        place = {level: number for number, level in enumerate(self.levels)}
        texts = as_texts(column, self.name)
        codes = [len(self.levels) if text is None else place.get(text, len(self.levels)) for text in texts]
        return np.eye(len(self.levels) + 1)[codes]

    def doubts(self, column: pa.ChunkedArray) -> list[str]:
        """Sentences about categories never seen, and about missing ones where none were."""
        texts, known = as_texts(column, self.name), set(self.levels)
        missing = sum(text is None for text in texts)
        new = [text for text in texts if text is not None and text not in known]
        found = []
        if missing and not self.missed:
            found.append(f"Column {self.name!r} misses {_values(missing)} and missed none in training.")
        if new:
            different = list(dict.fromkeys(new))
            names = ", ".join(map(repr, different[:SHOWN])) + (", ..." if len(different) > SHOWN else "")
            rows = "1 row" if len(new) == 1 else f"{len(new)} rows"
            what = "a category" if len(different) == 1 else f"{len(different)} categories"
            found.append(
                f"Column {self.name!r} has {what} never seen in training, {names}, in {rows}: read as missing."
            )
        return found


class Fitted(NamedTuple):
    """A fitted column, or None where it is left out, and the sentences about it."""

    column: NumberColumn | CategoryColumn | None
    note: str = ""
    warning: str = ""


def fit_column(name: str, column: pa.ChunkedArray, scaling: str, named: bool) -> Fitted:
    """Learn a column from its training rows; one that cannot be an input is refused if `named`, else left out."""
    if column.null_count == len(column):
        return Fitted(None, f"Column {name!r} holds no value in the training rows and was left out.")
    if kind_of(column) is None:
        if named:
            raise RequestError(f"Column {name!r} must hold numbers or texts, got the type {column.type}; convert it.")
        warning = f"Column {name!r} has the type {column.type}, which cannot be an input, and was left out."
        return Fitted(None, warning=warning)
    if is_text(column):
        return _fit_category(name, as_texts(column, name), named)
    if has_long_integers(column):
        fitted = _fit_category(name, as_texts(column, name), named)
        reason = f"Column {name!r} holds whole numbers with more digits than a number can keep: taken for names."
        return fitted._replace(note=f"{reason} {fitted.note}".strip())
    return _fit_number(name, column, scaling)


def _fit_category(name: str, texts: list[str | None], named: bool) -> Fitted:
    levels = tuple(sorted({text for text in texts if text is not None}))
    if len(levels) <= MOST_LEVELS:
        values = "1 value" if len(levels) == 1 else f"{len(levels)} values"
        note = f"Column {name!r} is text: one input for each of {values}."
        return Fitted(CategoryColumn(name, levels, missed=None in texts), note)
    much = f"Column {name!r} holds {len(levels)} different texts, more than the {MOST_LEVELS} allowed in a category"
    if named:
        raise RequestError(f"{much}; take it out of --features and --categorical.")
    return Fitted(None, warning=f"{much}, and was left out.")


def _fit_number(name: str, column: pa.ChunkedArray, scaling: str) -> Fitted:
    values = as_numbers(column, name)
    missing = np.isnan(values)
    observed = values[~missing]
    if observed.size == 0:
        return Fitted(None, f"Column {name!r} holds no value in the training rows and was left out.")
    centre, scale, capped = _centre_and_scale(observed) if scaling == "standard" else (0.0, 1.0, False)
    lowest, highest = float(observed.min()), float(observed.max())
    fill, kind = float(np.median(observed)), kind_of(column) or NUMBER
    fitted = NumberColumn(name, fill, centre, scale, bool(missing.any()), lowest, highest, kind)
    notes = []
    if missing.any():
        notes.append(
            f"Column {name!r} misses {missing.mean():.1%} of its training values: filled with {fill:g}, marked."
        )
    if lowest == highest:
        notes.append(f"Column {name!r} is constant in the training rows.")
    if capped:
        notes.append(
            f"Column {name!r} reaches from {lowest:g} to {highest:g} with a spread of {observed.std():g}: divided by "
            f"{scale:g}, so that no training row lies beyond {FARTHEST:g}."
        )
    return Fitted(fitted, " ".join(notes))


def _centre_and_scale(observed: np.ndarray) -> tuple[float, float, bool]:
    """Mean and spread; two values have their difference for a spread, and rare far values widen it.

    Divided by its standard deviation, a mark that 6 of 60000 rows carry would be 100 in these rows.
    """
    centre, spread = float(observed.mean()), float(observed.std())
    if spread <= 1e-12 * max(1.0, abs(centre)):
        return centre, 1.0, False
    lowest, highest = float(observed.min()), float(observed.max())
    if ((observed == lowest) | (observed == highest)).all():
        return centre, highest - lowest, False
    widest = max(highest - centre, centre - lowest) / FARTHEST
    return (centre, widest, True) if widest > spread else (centre, spread, False)


def _values(amount: int) -> str:
    return "1 value" if amount == 1 else f"{amount} values"
