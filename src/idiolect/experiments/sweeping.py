# SPDX-License-Identifier: Apache-2.0
"""A sweep as a spec: every combination of the swept settings becomes a method of one run folder.

Combinations that differ in floats or seeds only share one compiled program and run as its lanes.
"""

from __future__ import annotations

import dataclasses
import itertools
import tomllib
from collections.abc import Sequence
from typing import Any

from idiolect.core.checks import RequestError
from idiolect.experiments.spec import MethodSpec, Spec, setting_names
from idiolect.experiments.strict import refuse_unknown

MOST = 1000  # combinations; more is almost surely a slip


def parse_over(texts: Sequence[str]) -> dict[str, list[Any]]:
    """'step_size = [0.1, 0.3]' lines of TOML as setting -> values."""
    axes: dict[str, list[Any]] = {}
    for text in texts:
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise RequestError(f"--over needs TOML such as 'step_size = [0.1, 0.3]', got {text!r} ({error}).") from None
        for name, values in table.items():
            if not isinstance(values, list) or not values:
                raise RequestError(f"--over {name} needs a list of values such as [0.1, 0.3], got {values!r}.")
            axes[name] = values
    return axes


def expand(spec: Spec, axes: dict[str, list[Any]]) -> Spec:
    """One method per combination, labelled `name[setting=value]`."""
    if not axes and len(spec.seeds) == 1:
        raise RequestError("A sweep needs something to vary: --over 'step_size = [0.1, 0.3]', or several --seeds.")
    methods = []
    for method in spec.methods:
        known = setting_names(method.algorithm, method.objective)
        refuse_unknown(axes, known, f"--over: {method.algorithm}")
        for values in itertools.product(*axes.values()):
            chosen = dict(zip(axes, values))
            inside = ",".join(f"{name}={_shown(value)}" for name, value in chosen.items())
            label = f"{method.label}[{inside}]" if chosen else method.label
            methods.append(MethodSpec(label, method.algorithm, method.objective, method.settings | chosen))
    labels = [method.label for method in methods]
    doubled = next((label for label in labels if labels.count(label) > 1), None)
    if doubled is not None:
        raise RequestError(f"--over names {doubled} twice; give every value once.")
    if len(methods) > MOST:
        raise RequestError(f"A sweep of {len(methods)} combinations is more than {MOST}; thin the lists out.")
    return dataclasses.replace(spec, methods=tuple(methods))


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, float) else str(value)
