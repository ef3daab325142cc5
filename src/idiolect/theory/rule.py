# SPDX-License-Identifier: Apache-2.0
"""The form of a rule: what theory knows of one algorithm.

The algorithm's file brings it: `METHODS = {name: Method(..., theory=Rule(...))}`. Every part may be absent. Rules of
this package stand beside their theorems; an algorithm of your own has its own.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from idiolect.theory.constants import BlockConstants, Constants

_RISKS = {
    "local_step": "the theorem does not cover it, and beyond 2/L_m local steps diverge",
    "step_size": "it may diverge",
    "inner_step": "the inner steps diverge",
    "strong_convexity": "that much curvature is not proven, and neither is the rate",
    "shared_smoothness": "steps on w may overshoot",
    "personal_smoothness": "steps on beta may overshoot",
}


class Parameter(NamedTuple):
    """One field of an algorithm: its value, how theory gets it, and how far one set by hand may go."""

    name: str
    value: Any  # a number, or one per client
    formula: str
    by_hand: bool = False
    least: float = -math.inf
    most: Any = math.inf

    def shown(self) -> str:
        """The value in a few characters."""
        entries = np.asarray(self.value)
        return f"{entries.min():.3g} to {entries.max():.3g}" if entries.ndim else f"{self.value:.3g}"

    def warning(self, theorem: str) -> str | None:
        """One sentence where one set by hand is outside its range, about the worst client; None where it is not."""
        value, most = np.broadcast_arrays(np.asarray(self.value, float), np.asarray(self.most, float))
        above = value > most
        if not self.by_hand or not (above.any() or value.min() < self.least):
            return None
        worst = int(np.argmax(np.where(above, value / most, 0.0)) if above.any() else value.argmin())
        side, limit = ("above", most.flat[worst]) if above.any() else ("below", self.least)
        whose = f" of client number {worst}" if value.ndim else ""
        return (
            f"{self.name} {value.flat[worst]:.3g}{whose} is {side} {limit:.3g}, from {self.formula} ({theorem}): "
            f"{_RISKS.get(self.name, 'the theorem does not cover it')}. Leave it out to have it chosen."
        )


Parameters = tuple[Parameter, ...]


class StepAdvice(NamedTuple):
    """What theory says of one algorithm's step size on one problem."""

    recommended: float
    bound: float  # the largest step the theorem covers
    formula: str  # of the bound
    theorem: str  # where it stands
    reason: str  # why the recommended step is what it is
    beyond: str  # what a larger step risks

    def explanation(self) -> str:
        """One sentence for a step that was left to theory."""
        return (
            f"step_size {self.recommended:.3g}: {self.reason}; "
            f"{self.theorem} allows up to {self.formula} = {self.bound:.3g}."
        )

    def warning(self, step_size: float) -> str | None:
        """One sentence when `step_size` is beyond the bound, None when it is not."""
        if not step_size > self.bound:
            return None
        return (
            f"step_size {step_size:.3g} is beyond {self.formula} = {self.bound:.3g} ({self.theorem}): "
            f'{self.beyond}. Lower it, or write step_size = "theory" for {self.recommended:.3g}.'
        )


class Complexity(NamedTuple):
    """Counts per client; one gradient of n rows is one full and n component gradients."""

    rounds: float
    shared_gradients: float  # components, by w
    personal_gradients: float  # components, by beta
    full_shared_gradients: float
    full_personal_gradients: float


class Prediction(NamedTuple):
    """What a theorem promises: iterations, what they cost, and the statement."""

    iterations: float
    cost: Complexity
    exact: bool  # whether every gradient is a full one
    statement: str


class Question(NamedTuple):
    """What a rule is asked about: an algorithm, the constants of f'_m and of F, and mean rows n."""

    algorithm: Any
    own: Constants
    blocks: BlockConstants | None
    rows: float
    given: Mapping[str, Any] = {}  # fields set by hand
    owner: str = ""  # what a refusal names

    @property
    def of_f(self) -> BlockConstants:
        """The constants of F, in a rule that is only asked where they are known."""
        assert self.blocks is not None
        return self.blocks

    def option(self, name: str, default: Any) -> Any:
        """A field of the algorithm or of its objective, where it has one."""
        return getattr(self.algorithm, name, getattr(self.algorithm.objective, name, default))

    def assuming(self, *fields: str) -> BlockConstants:
        """The constants of F, as the algorithm's own fields state them."""
        return dataclasses.replace(self.of_f, **{field: getattr(self.algorithm, field) for field in fields})


Promise = Callable[[Question, float], Prediction | None]


@dataclasses.dataclass(frozen=True)
class Rule:
    """What theory knows of one algorithm."""

    step: Callable[[Any, Constants], StepAdvice | None] | None = None  # of an algorithm that has one step size
    derive: Callable[[Question], Parameters] | None = None  # every setting that is left to theory
    theorem: str = ""  # behind `derive`
    of_blocks: bool = False  # whether `derive` needs the constants of F, not only those of f'_m
    # what it costs to bring F - F* down to this fraction; None where the theorem does not cover the parameters
    promise: Promise | None = None
