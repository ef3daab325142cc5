# SPDX-License-Identifier: Apache-2.0
"""A sweep as a spec: every combination of the swept settings becomes a method of one run folder.

Combinations that differ in floats or seeds only share one compiled program and run as its lanes.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from idiolect.core.checks import RequestError, nearest
from idiolect.experiments.spec import MethodSpec, Spec, common_names, parse_line, setting_names
from idiolect.record.schema import Swept

MOST = 1000  # combinations; more is almost surely a slip


def parse_over(texts: Sequence[str]) -> dict[str, list[Any]]:
    """'step_size = [0.1, 0.3]' lines of TOML as setting -> values."""
    axes: dict[str, list[Any]] = {}
    for text in texts:
        table = parse_line(text, "--over", "step_size = [0.1, 0.3]")
        for name, values in _flat(table):
            if isinstance(values, dict):
                _refuse_table(name, values)
            if not isinstance(values, list) or not values:
                raise RequestError(f"--over {name} needs a list of values such as [0.1, 0.3], got {values!r}.")
            if name in axes:
                raise RequestError(
                    f"--over must name a setting once, got {name} with {axes[name]} and with {values}; put all values "
                    "into one list."
                )
            axes[name] = values
    return axes


def _refuse_table(name: str, values: dict[str, Any]) -> NoReturn:
    """'ditto.penalty' is a method's setting without 'methods.', 'training.rounds' is none of a method's."""
    given = f"{name}.{next(iter(values), 'SETTING')}"
    if name in {field.name for field in dataclasses.fields(Spec)}:
        raise RequestError(
            f"--over varies settings of methods, got {given}; run once for each value of it, with --set."
        )
    if name.startswith("methods."):
        raise RequestError(
            f"--over {given} goes too deep; write 'methods.LABEL.SETTING = [...]', with quotes around a label that has "
            "a dot in it."
        )
    place = given.removeprefix("defaults.") if name == "defaults" else f"methods.{given}"
    raise RequestError(f"--over {given} names no setting of a method; write '{place} = [...]'.")


def _flat(table: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """'methods.LABEL.x' stays one name, for that method alone; 'algorithm.x' is 'x'."""
    for name, values in table.items():
        if name == "algorithm" and isinstance(values, dict):
            yield from values.items()
        elif name == "methods" and isinstance(values, dict):
            for label, inside in values.items():
                if not isinstance(inside, dict) or not inside:
                    raise RequestError(
                        f"--over methods.{label} names a method; write 'methods.{label}.SETTING = [...]'."
                    )
                yield from ((f"methods.{label}.{key}", entry) for key, entry in inside.items())
        else:
            yield name, values


def expand(spec: Spec, axes: dict[str, list[Any]]) -> Spec:
    """One method per combination, labelled `name[setting=value]`; a method that has none of the settings stays one."""
    if not axes and len(spec.seeds) == 1:
        raise RequestError("A sweep needs something to vary: --over 'step_size = [0.1, 0.3]', or several --seeds.")
    methods, used = [], set()
    for method in spec.methods:
        own = _own_axes(method, axes)
        used |= set(own)
        named = _by_setting(own, method.label)
        for values in itertools.product(*named.values()):
            chosen = dict(zip(named, values))
            inside = ",".join(f"{name}={_shown(value)}" for name, value in chosen.items())
            label = f"{method.label}[{inside}]" if chosen else method.label
            swept = Swept(method.label, tuple(chosen)) if chosen else None
            methods.append(MethodSpec(label, method.algorithm, method.objective, method.settings | chosen, swept))
    _refuse_unused([axis for axis in axes if axis not in used], spec)
    labels = [method.label for method in methods]
    doubled = next((label for label in labels if labels.count(label) > 1), None)
    if doubled is not None:
        raise RequestError(f"--over names {doubled} twice; give every value once.")
    if len(methods) > MOST:
        raise RequestError(f"A sweep of {len(methods)} combinations is more than {MOST}; thin the lists out.")
    return dataclasses.replace(spec, methods=tuple(methods))


def _own_axes(method: MethodSpec, axes: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """The axes that this method has, by the names they were given under."""
    known = setting_names(method.algorithm, method.objective)
    names = set(common_names(method.algorithm, method.objective)) | {f"methods.{method.label}.{name}" for name in known}
    return {axis: values for axis, values in axes.items() if axis in names}


def _by_setting(own: dict[str, list[Any]], label: str) -> dict[str, list[Any]]:
    """A method's axes by its settings' own names; RequestError where one is varied for all and for this one again."""
    named: dict[str, list[Any]] = {}
    for axis, values in own.items():
        name = axis.rpartition(".")[2]
        if name in named:
            raise RequestError(
                f"--over must name a setting once, got {name} and methods.{label}.{name}; vary {name} for every method "
                f"together, or for each as methods.LABEL.{name}."
            )
        named[name] = values
    return named


def _refuse_unused(axes: list[str], spec: Spec) -> None:
    """An axis that no method has is a slip."""
    if not axes:
        return
    name, labels = axes[0], [method.label for method in spec.methods]
    if name.startswith("methods."):
        label = next((label for label in labels if name.startswith(f"methods.{label}.")), None)
        if label is None:
            raise RequestError(f"--over {name}: there is no such method in the spec, which has {', '.join(labels)}.")
        method = next(method for method in spec.methods if method.label == label)
        known = setting_names(method.algorithm, method.objective)
        key = name.removeprefix(f"methods.{label}.")
        raise RequestError(f"--over: {method.algorithm} has no setting {key!r}.{nearest(key, known)}")
    stated = [one.label for one in spec.methods if name in setting_names(one.algorithm, one.objective)]
    if stated:
        raise RequestError(
            f"--over {name} would make another method of {stated[0]}; if that is meant, write "
            f"methods.{stated[0]}.{name}."
        )
    every = {key for method in spec.methods for key in setting_names(method.algorithm, method.objective)}
    owner = spec.methods[0].algorithm if len(spec.methods) == 1 else "no method of the spec"
    word = "has no" if len(spec.methods) == 1 else "has a"
    raise RequestError(f"--over: {owner} {word} setting {name!r}.{nearest(name, every)}")


def chosen_settings(
    methods: Sequence[MethodSpec], tried: Mapping[str, float | None], higher_is_better: bool
) -> dict[str, bool | None]:
    """For every label whether, of the combinations of its method, it did best on validation rows: the first of equals.

    `tried` has the means there, None for one that cannot be judged. None where nothing is to be chosen: one combination
    only, or none that can be judged.
    """
    sign = 1 if higher_is_better else -1
    groups: dict[str, list[str]] = {}
    for method in methods:
        groups.setdefault(method.base, []).append(method.label)
    chosen: dict[str, bool | None] = {}
    for own in groups.values():
        means = {label: sign * mean for label in own if (mean := tried[label]) is not None}
        best = max(means, key=lambda label: means[label], default=None)
        chosen |= {label: None if best is None or len(own) == 1 else label == best for label in own}
    return chosen


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, float) else str(value)
