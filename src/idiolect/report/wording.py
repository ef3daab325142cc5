# SPDX-License-Identifier: Apache-2.0
"""Numbers as a person reads them: scores in their unit, bytes, counts, intervals."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeGuard

from idiolect.record.schema import Estimate
from idiolect.record.words import counted

NONE = "\N{EN DASH}"  # stands for a value that does not exist
MINUS = "\N{MINUS SIGN}"  # as wide as a digit; the sign of every number that a person reads
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


class ScoreWords(NamedTuple):
    """How a score is written: `scale` turns the stored number into the shown one."""

    name: str
    spoken: str  # its name in prose
    title: str  # and with the unit, for headings and axes
    unit: str  # "%" or nothing
    scale: float
    specification: str  # of the shown number

    def bare(self, value: float | None) -> str:
        """The number without its unit, for a column whose heading has it."""
        if not known(value):
            return NONE
        text = format(self.scale * value, self.specification)
        if self.specification.endswith("g"):
            text = format(float(text), "g")  # 1230, where the first format has 1.23e+03
        return text.replace("-", MINUS)

    def show(self, value: float | None) -> str:
        """The number with its unit, for prose."""
        return self.bare(value) + (f" {self.unit}" if self.unit and known(value) else "")

    def each(self, values: Iterable[float | None]) -> str:
        """Several numbers without their unit."""
        return ", ".join(map(self.bare, values))

    def signed(self, value: float | None) -> str:
        """A difference of two scores, with its sign."""
        if not known(value):
            return NONE
        # a difference of errors needs fewer digits than an error: two say all that its interval supports
        shown = self.scale * value
        text = format(shown, "+" + self.specification)
        if self.specification.endswith("g"):
            text = format(float(f"{shown:.2g}"), "+g")  # the second format writes -100 where the first has -1e+02
        return text.replace("-", MINUS) if float(text) != 0 else text.lstrip("+-")

    def interval(self, low: float | None, high: float | None) -> str:
        """'[low, high]' of a difference, or nothing when it is unknown."""
        return f"[{self.signed(low)}, {self.signed(high)}]" if known(low) and known(high) else ""

    def around(self, low: float | None = None, high: float | None = None) -> str:
        """' [low, high]' to follow a score itself, or nothing when it is unknown."""
        return f" [{self.bare(low)}, {self.bare(high)}]" if known(low) and known(high) else ""

    def gain(self, mean: float | None, low: float | None, high: float | None) -> str:
        """'+2.1 [+0.5, +3.7]', or without the interval where it is unknown."""
        return f"{self.signed(mean)} {self.interval(low, high)}".rstrip()


_DIGITS = dict.fromkeys(("auc", "log_loss", "brier", "r2"), ".3f")
_SPOKEN = {"mae": "MAE", "rmse": "RMSE", "r2": "R2", "brier": "Brier_score", "poisson_deviance": "Poisson_deviance"}


def score_words(name: str) -> ScoreWords:
    """How to write the score of that name; an unknown one gets three significant digits."""
    written = _SPOKEN.get(name, name)
    spoken = written.replace("_", " ")
    if name in ("accuracy", "balanced_accuracy"):
        return ScoreWords(written, spoken, f"{spoken} (%)", "%", 100.0, ".1f")
    return ScoreWords(written, spoken, spoken, "", 1.0, _DIGITS.get(name, ".3g"))


def known(value: float | None) -> TypeGuard[float]:
    """Whether there is such a number."""
    return value is not None and not math.isnan(value)


def ties(value: float, best: float) -> bool:
    """Whether two numbers differ by no more than the rounding of 32-bit arithmetic."""
    return math.isclose(value, best, rel_tol=1e-6, abs_tol=1e-9)


def leaders(values: Mapping[str, float | None], sign: int) -> set[str]:
    """Those with the best value; none where nothing sets them apart. `sign` is -1 where less is better."""
    oriented = {name: sign * value for name, value in values.items() if known(value)}
    best = {name for name, value in oriented.items() if ties(value, max(oriented.values()))}
    return best if len(best) < len(oriented) else set()


def small(value: float | None) -> str:
    """A number that may be tiny, in exponent form."""
    return f"{value:.1e}" if known(value) else NONE


def whole(value: float | None) -> str:
    """A number of rows, or of percent, without decimals."""
    return f"{value:.0f}" if known(value) else NONE


def count(number: float | None) -> str:
    """A count in at most four characters and a prefix: 950, 1.2 k, 34 M."""
    if not known(number):
        return NONE
    for size, prefix in _PREFIXES:
        if number >= 0.9995 * size:  # 999,600 is 1.0 M, not 1000 k
            scaled = number / size
            return f"{scaled:.1f} {prefix}" if scaled < 99.95 else f"{scaled:.0f} {prefix}"
    return f"{number:.0f}"


def megabytes(number: float | None) -> str:
    """Bytes in MB (10^6 bytes), three significant digits, never in exponent form."""
    if not known(number):
        return NONE
    scaled = number / 1e6
    if scaled == 0:
        return "0"
    if scaled < 0.001:
        return "<0.001"
    decimals = max(0, min(3, 2 - math.floor(math.log10(scaled))))
    return f"{scaled:,.{decimals}f}"


def kilobytes(number: float | None) -> str:
    """Bytes in kB, three significant digits."""
    return f"{number / 1e3:.3g}" if known(number) else NONE


def size(number: float) -> str:
    """Bytes with the prefix that suits them, for prose."""
    text = count(number)
    return f"{text}B" if text[-1] in "TGMk" else f"{text} bytes"


def gains_said(words: ScoreWords, over_alone: Estimate | None, over_one: Estimate | None) -> str:
    """', +2.1 [+0.5, +3.7] against training alone and ...': the rest of a sentence, without what is 0 by nature."""
    told = [
        f"{words.gain(gain.mean, gain.low, gain.high)} against {whom}{'' if gain.is_clear else ' (not clear)'}"
        for gain, whom in ((over_alone, "training alone"), (over_one, "one model for all"))
        if gain is not None and known(gain.mean) and not gain.is_nothing
    ]
    return f", {' and '.join(told)}" if told else ""


def verdicts_said(compared: int, method: str, helped: int | None, hurt: int | None) -> str:
    """How many clients are clearly better or worse off than alone."""
    counts = f"{helped or 'none'} {'is' if helped == 1 else 'are'} clearly helped and {hurt or 'none'} clearly hurt"
    return f"of {counted(compared, 'client')} with {method} {counts} against alone"


def better(higher: bool) -> str:
    """Which way a score points."""
    return f"{'higher' if higher else 'lower'} is better"


def upper(text: str) -> str:
    """With a capital letter."""
    return text[:1].upper() + text[1:]


def listed(names: list[str]) -> str:
    """'a', 'a and b', 'a, b and c'."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def short(value: float) -> str:
    """A tick label: 0.03, 20, 1.5 k."""
    if abs(value) >= 1000:
        return re.sub(r"\.0(?= )", "", count(value))
    return f"{value:.3g}"


def shortened(label: str, length: int) -> str:
    """A label of at most `length` characters; the middle goes, as labels often differ at their ends."""
    if len(label) <= length:
        return label
    end = (length - 1) // 2
    return f"{label[: length - 1 - end]}…{label[len(label) - end :]}"
