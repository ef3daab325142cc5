# SPDX-License-Identifier: Apache-2.0
"""A registered name: an algorithm file lists its own in METHODS, and the registry reads them there."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from idiolect.core.algorithm import Algorithm
from idiolect.core.objective import Objective

BY_ROWS: dict[str, Any] = {"weighting": "samples"}  # a preset of many: clients weigh by their rows


class Method(NamedTuple):
    """A name's meaning: a class, the objective it minimises unless told otherwise, presets, and what theory knows."""

    algorithm: type[Algorithm]
    objective: str | None  # a name; None: the user must choose
    preset: Mapping[str, Any]
    reference: str
    summary: str
    objective_preset: Mapping[str, Any] = {}  # settings of that objective
    theory: Any = None  # an idiolect.theory.Rule: how the settings that are left to theory are found
    errata: tuple[str, ...] = ()  # numbers of idiolect.algorithms.errata: printed mistakes of its paper

    def __call__(self, objective: Objective, **settings: Any) -> Algorithm:
        """The algorithm on this objective with the name's presets; a setting that is given here wins.

        Settings of the objective may be given, too. Its presets take the place of defaults only: what was given to the
        objective when it was made stays.
        """
        usual = {field.name: field.default for field in dataclasses.fields(objective)}  # type: ignore[arg-type]
        own = {field.name for field in dataclasses.fields(self.algorithm)}
        preset = {
            name: value
            for name, value in self.objective_preset.items()
            if name in usual and getattr(objective, name) == usual[name]
        }
        preset |= {name: settings.pop(name) for name in set(settings) & set(usual) - own}
        chosen = dataclasses.replace(objective, **preset)  # type: ignore[type-var]
        return self.algorithm(chosen, **{**self.preset, **settings})
