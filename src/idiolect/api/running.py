# SPDX-License-Identifier: Apache-2.0
"""The commands from Python: compare, train, sweep, advise and explain, executed as the command line executes them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Unpack

import tomli_w

from idiolect.api.answers import Advice, Answer, SplitsAnswer, TrainedRun, Workplace
from idiolect.api.asked import checked, plain
from idiolect.api.sentences import warn
from idiolect.api.tables import Setting, Table, open_pack
from idiolect.experiments.contest import Contest
from idiolect.record.errors import DivergedError, NeedsRidgeError, RequestError
from idiolect.report.explanation import explanation_text
from idiolect.report.notebook import text_html

if TYPE_CHECKING:
    from idiolect.experiments.spec import Spec
    from idiolect.experiments.work import Progress

# a setting of a method, or an option of every training
Given: TypeAlias = "Setting | Mapping[str, Setting] | os.PathLike[str] | Progress"
Values: TypeAlias = "Sequence[Setting]"  # that a sweep tries


class Options(TypedDict, total=False):
    """What may be said of every training, as `idiolect compare` has it; all may be left out."""

    score: str  # the one to show; by the task and the balance of classes
    model: str  # "linear", "mlp", or of images and texts a network
    rounds: int  # at most; until validation rows show no more progress, or 100 where nothing is tuned
    minutes: float  # for all methods together
    l2: float  # weight of the ridge; none, and where a method needs one it is chosen on validation rows
    cohort: int  # clients per round; 0: all
    step_sizes: Sequence[float]  # to choose from on validation rows
    refit: bool  # fit the delivered models on training and validation rows
    held_out: float  # clients that never train: a number, or a fraction below 1
    epsilon: float  # client-level differential privacy with this budget per method
    seed: int  # draws the split and the training
    seeds: Sequence[int]  # of the training; one answer over all of them
    spec: Mapping[str, Setting]  # further settings of a spec, such as {"training.precision": "float64"}
    out: str | os.PathLike[str]  # the run folder; a temporary one that goes away with the answer
    progress: Progress  # called with a method, rounds done and rounds in all


PLAIN_ROUNDS = 100  # where nothing is chosen and nothing is said


@checked(Options)
def compare(
    table: Table,
    methods: str | Sequence[str] | None = None,
    *,
    batch_size: int | None = None,
    epochs: int | None = None,
    splits: int = 1,
    **options: Unpack[Options],
) -> Answer | SplitsAnswer:
    """Train alone, share one model, or personalize? What `idiolect compare` answers, with the same numbers.

    `methods` are names (`ALGORITHMS`), or "all"; without them, seven. `splits` repeats all on so many splits of the
    rows. The further options are those of `Options`.
    """
    from idiolect.experiments.splits import check_splits, run_splits
    from idiolect.experiments.strict import refuse_unknown

    refuse_unknown(options, Options.__annotations__, "compare")
    names = methods if methods is None or isinstance(methods, str) else ",".join(methods)
    spec = _spec(table, names, {}, options, batch_size=batch_size, epochs=epochs)
    check_splits(spec, splits)
    place = Workplace(options.get("out"), spec.name)
    if splits > 1:
        run_splits(spec, place.folder, splits, progress=options.get("progress"), say=warn, rows=table.rows)
        return SplitsAnswer(place)
    _execute(spec, place, table, options)
    return Answer(place)


@checked(Options)
def train(method: str, table: Table, *, tune: bool = False, **given: Given) -> TrainedRun:
    """Train one method: a registered name with its presets, or the path of your own inside `own_code`.

    Settings of the method and of its objective are given by their names (`explain` lists them) and win over presets;
    `Options` are taken, too. What is not given is what `compare` begins with: presets, defaults, or left to theory.
    With `tune` it is chosen on validation rows, rounds among it, and the models are fitted anew, as `compare` does.
    """
    options, settings = _sorted_out(method, given)
    spec = _spec(table, method, {method: settings}, options, tune=tune, **_local_work(settings))
    place = Workplace(options.get("out"), spec.name)
    _execute_with_ridge(spec, place, table, options, settings)
    return TrainedRun(place)


@checked(Options, besides="; simulate_many takes built algorithms")
def sweep(method: str, table: Table, *, tune: bool = False, **given: Given | Values) -> Answer:
    """Train every combination of the listed settings, such as `penalty=[0.01, 0.1, 1.0]`, for every one of `seeds`.

    Settings with one value are the same in all of them; otherwise as `train`.
    """
    from idiolect.experiments.sweeping import expand

    options, settings = _sorted_out(method, given)
    axes = {name: value for name, value in settings.items() if isinstance(value, list)}
    for name, values in axes.items():
        if not values:
            raise RequestError(f"{name} must list at least one value to try, got none; give one, or leave it out.")
    fixed = {name: value for name, value in settings.items() if name not in axes}
    spec = _spec(table, method, {method: fixed}, options, tune=tune, **_local_work(fixed))
    spec = expand(spec, {f"methods.{method}.{name}": values for name, values in axes.items()})
    place = Workplace(options.get("out"), f"{spec.name}-sweep")
    _execute_with_ridge(spec, place, table, options, settings)
    return Answer(place)


@checked()
def advise(
    table: Table,
    *,
    verify: bool = False,
    seeds: Sequence[int] | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Advice:
    """Who should learn with whom? What `idiolect advise` answers; `verify` judges the advice on test rows."""
    from idiolect.experiments.advise import advise_on

    place = Workplace(out, f"{table.name}-advise")
    advise_on(
        {"data": dict(table.data)},
        place.folder,
        name=table.name,
        verify=verify,
        seeds=None if seeds is None else list(seeds),
        progress=progress,
        say=warn,
        rows=table.rows,
    )
    return Advice(place)


@checked()
def pack(table: Table, folder: str | os.PathLike[str], *, seed: int | None = None) -> Table:
    """Read, split and encode rows once, into a new folder, as `idiolect pack` does; `seed` draws the split."""
    from idiolect.experiments import packing
    from idiolect.experiments import spec as specs

    drawn = {} if seed is None else {"seed": seed}
    spec = specs.from_table({"name": table.name, "methods": {"local": {}}, "data": dict(table.data) | drawn})
    for sentence in packing.pack(spec, Path(folder), table.rows).notes:
        warn(sentence)
    return open_pack(folder)


class Explanation(dict[str, object]):
    """What a name means, as plain values; prints itself."""

    def __str__(self) -> str:
        return explanation_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return text_html(str(self))


@checked()
def explain(name: str, objective: str | None = None, **settings: Setting) -> Explanation:
    """Equations, settings, what travels and what it costs, theory and citation of an algorithm or an objective."""
    from idiolect.experiments.explain import explain as look_up

    return Explanation(look_up(name, objective, changes=[tomli_w.dumps(settings)] if settings else []))


def _local_work(settings: Mapping[str, Setting]) -> dict[str, int]:
    """What decides how much a client does in a round, as `compare` takes it: the rest follows from it."""
    return {name: value for name in ("batch_size", "epochs") if isinstance(value := settings.get(name), int)}


def _sorted_out(method: str, given: Mapping[str, Given | Values]) -> tuple[Options, dict[str, Setting]]:
    """Options of every training, and settings of the method; RequestError for a name that is neither."""
    from idiolect.experiments.spec import setting_names
    from idiolect.experiments.strict import refuse_unknown

    names = Options.__annotations__
    options = {name: value for name, value in given.items() if name in names}
    # no option has the name of any method's setting, which a test holds: a name says by itself what it is
    settings = {name: plain(value) for name, value in given.items() if name not in names}
    objective = settings.get("objective")
    known = setting_names(method, objective if isinstance(objective, str) else None)
    refuse_unknown({name: 0 for name in settings if name != "objective"}, [*known, *names], method)
    return options, settings  # type: ignore[return-value]


def _spec(
    table: Table,
    methods: str | None,
    settings: Mapping[str, Mapping[str, Setting]],
    options: Options,
    *,
    tune: bool = True,
    batch_size: int | None = None,
    epochs: int | None = None,
) -> Spec:
    """The spec of `idiolect compare`, with settings of methods; without `tune` nothing is chosen on validation rows."""
    from idiolect.experiments import spec as specs
    from idiolect.experiments.candidates import comparison

    contest = _contest(options, methods=methods, batch_size=batch_size, epochs=epochs)
    asked = comparison(dict(table.data), contest)
    asked["name"] = table.name
    if "l2" in options:
        asked["model"]["l2"] = options["l2"]
    if not tune:
        asked["tuning"] = {}
        asked["training"]["rounds"] = options.get("rounds", PLAIN_ROUNDS)
        asked["training"]["record_every"] = max(1, asked["training"]["rounds"] // 20)
    for label, own in settings.items():
        asked["methods"][label] |= own
    if "seeds" in options:
        asked["seeds"] = list(options["seeds"])
    return specs.from_table(specs.override(asked, _toml(options.get("spec", {}))))


def _contest(options: Options, **given: str | int | None) -> Contest:
    """What the command makes of the same options."""
    names = {field.name for field in dataclasses.fields(Contest)}
    asked: dict[str, Any] = {name: value for name, value in options.items() if name in names}
    # as texts, which the command takes: `repr` of a float is read back to the same bits
    if asked.get("step_sizes") is not None:
        asked["step_sizes"] = ",".join(repr(float(size)) for size in asked["step_sizes"])
    return Contest(**asked, **given)  # type: ignore[arg-type]


def _toml(settings: Mapping[str, Setting]) -> list[str]:
    """{"training.rounds": 5} as the lines that --set takes."""
    lines = []
    for name, value in settings.items():
        nested: Any = plain(value)
        for part in reversed(name.split(".")):
            nested = {part: nested}
        lines.append(tomli_w.dumps(nested))
    return lines


def _execute_with_ridge(
    spec: Spec, place: Workplace, table: Table, options: Options, given: Mapping[str, Setting]
) -> None:
    """Train, with a ridge chosen as `idiolect dial` does where the method cannot do without one; notes say so."""
    from idiolect.experiments.candidates import method_tables
    from idiolect.experiments.ridge import choose_ridge

    name = spec.methods[0].algorithm
    usual = method_tables([name], spec.model.name)[name]
    kept = [f"{key} = {value!r}" for key, value in usual.items() if key not in given]
    remarks = [f"{name}: {', '.join(kept)}, as `compare` has it for tables; give another to change it."] if kept else []
    try:
        _execute(spec, place, table, options, remarks)
    except NeedsRidgeError:  # raised before anything is written
        if spec.model.l2 is not None:
            raise
        ridge, sentence = choose_ridge(spec, table.rows)
        spec = dataclasses.replace(spec, model=dataclasses.replace(spec.model, l2=ridge))
        _execute(spec, place, table, options, [*remarks, f"{name} needs a loss with a ridge. {sentence}"])


def _execute(spec: Spec, place: Workplace, table: Table, options: Options, remarks: Sequence[str] = ()) -> None:
    from idiolect.experiments.execute import execute

    progress = options.get("progress")
    done = execute(spec, place.folder, progress=progress, say=warn, rows=table.rows, remarks=remarks)
    lost = [entry for entry in done.summary.methods if entry.diverged is not None]
    if len(lost) == len(done.summary.methods):
        raise DivergedError(f"{lost[0].method}: {lost[0].diverged}. Use a smaller step size.")
