# SPDX-License-Identifier: Apache-2.0
"""A sweep as a spec: every combination of the swept settings becomes a method of one run folder.

Combinations that differ in floats or seeds only share one compiled program and run as its lanes.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NoReturn, TypeAlias

from idiolect.core.checks import RequestError, nearest
from idiolect.experiments.spec import MethodSpec, Setting, Spec, common_names, parse_line, setting_names
from idiolect.record.schema import Swept

MOST = 1000  # combinations; more is almost surely a slip

Axes: TypeAlias = dict[str, list[Setting]]  # setting -> its values


def parse_over(texts: Sequence[str]) -> Axes:
    """'step_size = [0.1, 0.3]' lines of TOML as setting -> values."""
    axes: Axes = {}
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


def _refuse_table(name: str, values: dict[str, object]) -> NoReturn:
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


def _flat(table: dict[str, object]) -> Iterator[tuple[str, object]]:
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


def expand(spec: Spec, axes: Axes) -> Spec:
    """One method per combination, labelled `name[setting=value]`; a method that has none of the settings stays one."""
    if not axes and len(spec.seeds) == 1:
        raise RequestError("A sweep needs something to vary: --over 'step_size = [0.1, 0.3]', or several --seeds.")
    methods: list[MethodSpec] = []
    used: set[str] = set()
    for method in spec.methods:
        own = _own_axes(method, axes)
        used |= set(own)
        methods += _combinations(method, own)
    _refuse_unused([axis for axis in axes if axis not in used], spec)
    labels = [method.label for method in methods]
    doubled = next((label for label in labels if labels.count(label) > 1), None)
    if doubled is not None:
        raise RequestError(f"--over names {doubled} twice; give every value once.")
    if len(methods) > MOST:
        raise RequestError(f"A sweep of {len(methods)} combinations is more than {MOST}; thin the lists out.")
    return dataclasses.replace(spec, methods=tuple(methods))


def _own_axes(method: MethodSpec, axes: Axes) -> Axes:
    """The axes that this method has, by the names they were given under."""
    known = setting_names(method.algorithm, method.objective)
    # a plain name varies no setting that would make another method of this one: those are asked for by label
    names = set(common_names(method.algorithm, method.objective)) | {f"methods.{method.label}.{name}" for name in known}
    return {axis: values for axis, values in axes.items() if axis in names}


def _combinations(method: MethodSpec, own: Axes) -> Iterator[MethodSpec]:
    """The method with every combination; RequestError where a setting is varied for all and for this one again."""
    names = [axis.rpartition(".")[2] for axis in own]
    again = next((name for name in names if names.count(name) > 1), None)
    if again is not None:
        raise RequestError(
            f"--over must name a setting once, got {again} and methods.{method.label}.{again}; vary {again} for every "
            f"method together, or for each as methods.LABEL.{again}."
        )
    for values in itertools.product(*own.values()):
        chosen = dict(zip(names, values))
        inside = ",".join(f"{name}={value}" for name, value in chosen.items())
        label = f"{method.label}[{inside}]" if chosen else method.label
        swept = Swept(method.label, tuple(chosen)) if chosen else None
        yield dataclasses.replace(method, label=label, settings=method.settings | chosen, swept=swept)


def _refuse_named(name: str, spec: Spec, known: dict[str, list[str]]) -> NoReturn:
    """methods.LABEL.KEY where there is no such label, or it has no such key."""
    for method in spec.methods:
        key = name.removeprefix(f"methods.{method.label}.")
        if key != name:
            raise RequestError(f"--over: {method.algorithm} has no setting {key!r}.{nearest(key, known[method.label])}")
    raise RequestError(f"--over {name}: there is no such method in the spec, which has {', '.join(known)}.")


def _refuse_unused(axes: list[str], spec: Spec) -> None:
    """An axis that no method has is a slip."""
    if not axes:
        return
    name, known = axes[0], {one.label: setting_names(one.algorithm, one.objective) for one in spec.methods}
    if name.startswith("methods."):
        _refuse_named(name, spec, known)
    for stated in (label for label, names in known.items() if name in names):
        raise RequestError(
            f"--over {name} would make another method of {stated}; if that is meant, write methods.{stated}.{name}."
        )
    every = {key for names in known.values() for key in names}
    owner = f"{spec.methods[0].algorithm} has no" if len(known) == 1 else "no method of the spec has a"
    raise RequestError(f"--over: {owner} setting {name!r}.{nearest(name, every)}")


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
