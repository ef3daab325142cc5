# SPDX-License-Identifier: Apache-2.0
"""A spec: everything that decides a run, as TOML and as checked dataclasses."""

from __future__ import annotations

import dataclasses
import tomllib
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import tomli_w

from idiolect.accounting.client_privacy import ACCOUNTANTS
from idiolect.algorithms import ALGORITHMS, find
from idiolect.core.checks import Range, RequestError, setting
from idiolect.core.settings import array_fields
from idiolect.data.preparation import FEDERATED, WAYS
from idiolect.engines.door import Training
from idiolect.experiments.strict import coerce, fill, refuse_unknown
from idiolect.objectives import OBJECTIVES, Objective
from idiolect.protection.choices import ATTACKS, CODECS, RULES
from idiolect.record.codec import flat
from idiolect.record.schema import ALONE, Swept
from idiolect.visible import one_line

Table: TypeAlias = dict[str, Any]  # of TOML: names to plain values, lists and tables
Setting: TypeAlias = bool | int | float | str | list[Any] | None  # what TOML, or a call, may give one setting


@dataclasses.dataclass(frozen=True)
class DataSpec:
    """Where the rows come from, whose they are, and how they are split."""

    source: str = "digits"  # a name of experiments.sources
    path: str | None = None  # for the readers of a file or folder: table, npz, leaf, libsvm_file, idx, pack
    client: str | None = None  # table: the column that names the client; npz: the array
    target: str | None = None  # table: the column to predict
    features: list[str] | None = None  # table: the columns to predict from; unset: all others
    drop: list[str] | None = None  # table: columns that are not to be predicted from
    categorical: list[str] | None = None  # table: columns that are names, whatever they look like
    weight_column: str | None = None  # table: how much each row counts
    task: str | None = setting(default=None, choices=("classification", "regression", "counts"))
    preparation: str = setting(default=FEDERATED, choices=tuple(WAYS))  # table: what columns are scaled and filled by
    recipe: str | None = None  # table: a preprocessing.json, where preparation = "given"
    train: float = setting(default=0.6, above=0, at_most=1)
    validation: float = setting(default=0.2, at_least=0, below=1)
    test: float = setting(default=0.2, at_least=0, below=1)
    split_column: str | None = None
    group_column: str | None = None
    time_column: str | None = None
    held_out: int | float = setting(default=0, at_least=0)  # clients that never train: a number, or a fraction below 1
    seed: int = setting(default=0, at_least=0)
    settings: Table = dataclasses.field(default_factory=dict)  # passed on to the source


class _NameOrPath(Range):
    """One of the choices, or the path of one's own."""

    __slots__ = ()

    def rule(self) -> str:
        return f"{super().rule()}, or 'package.module:function' of your own"

    def admits(self, value: Any) -> bool:
        return ":" in value or super().admits(value)


MODEL_NAMES = ("linear", "mlp", "cnn", "resnet18", "character_lstm", "word_lstm")


@dataclasses.dataclass(frozen=True)
class ModelSpec:
    """The model every method trains. Its width follows the data."""

    name: str = dataclasses.field(default="linear", metadata={"range": _NameOrPath(choices=MODEL_NAMES)})
    hidden: list[int] = dataclasses.field(default_factory=lambda: [64], metadata={"range": Range(at_least=1)})  # mlp
    bias: bool = True  # linear
    loss: str = setting(default="cross_entropy", choices=("cross_entropy", "logistic", "pinball"))  # pinball: numbers
    quantile: float | None = setting(default=None, above=0, below=1)  # of the pinball loss, a whole percent
    l2: float | None = setting(default=None, at_least=0)
    settings: Table = dataclasses.field(default_factory=dict)  # of a network, or of your own


@dataclasses.dataclass(frozen=True)
class MethodSpec:
    """One method: an algorithm, an objective, settings. `label` names it in tables and folders."""

    label: str
    algorithm: str
    objective: str | None = None
    settings: Table = dataclasses.field(default_factory=dict)
    swept: Swept | None = None  # where a sweep made it of another method

    @property
    def alone(self) -> bool:
        """Whether every client trains on its own rows."""
        return self.algorithm == ALONE

    @property
    def minimised(self) -> type[Objective] | None:
        """The class of its objective, its algorithm's own unless told; None where there is none of that name."""
        return OBJECTIVES.get(self.objective or find(self.algorithm).objective or "")

    @property
    def swept_values(self) -> Table:
        """The settings that a sweep varied, with their values; none where there was no sweep."""
        return {} if self.swept is None else {name: self.settings[name] for name in self.swept.settings}

    @property
    def base(self) -> str:
        """The method that a sweep made it of, or itself."""
        return self.label if self.swept is None else self.swept.method


@dataclasses.dataclass(frozen=True)
class EvaluationSpec:
    """What is measured. The first score selects rounds and decides who is helped; unset: by task and balance."""

    scores: list[str] = dataclasses.field(default_factory=list)
    choose_by: str | None = None  # score that rounds and settings are chosen by; unset: log loss, squared error
    unfit: str = setting(default="refuse", choices=("refuse", "leave_out"))  # methods that cannot run on these rows
    untested: str = setting(default="refuse", choices=("refuse", "allow"))  # data without a test row
    time_model: str = "hospital"
    optimum: str = setting(default="auto", choices=("auto", "always", "never"))  # auto: on synthetic problems
    flops: bool = False  # count operations per client and round: one more program per method to trace


@dataclasses.dataclass(frozen=True)
class CollaborationSpec:
    """Who listens to whom, for the methods that ask (all-for-all and all-for-one); unset: their own_share."""

    source: str | None = setting(default=None, choices=("identity", "uniform", "mixture", "models", "data", "file"))
    own_share: float = setting(default=0.5, at_least=0, at_most=1)  # mixture
    path: str | None = None  # file: .npy or .csv, a row and a column per client; discrepancies, or weights
    accuracy: float | None = setting(default=None, above=0)  # of discrepancies: at most half of it is close
    asymmetric: str = setting(default="refuse", choices=("refuse", "keep", "larger"))  # discrepancies


@dataclasses.dataclass(frozen=True)
class TuningSpec:
    """What is chosen on validation rows, the candidates of a method being lanes of one program."""

    # the steps to try; empty: none, or with auto those around theory's
    step_size: list[float] = dataclasses.field(default_factory=list, metadata={"range": Range(above=0)})
    auto: bool = False  # choose the step size and how personal a method is; the grid widens itself
    until: str = setting(default="rounds", choices=("rounds", "converged"))  # where candidates stop to train
    refit: bool = False  # fit the delivered models on training and validation rows
    minutes: float | None = setting(default=None, above=0)  # for all methods together; unset: no limit


@dataclasses.dataclass(frozen=True)
class OutputSpec:
    """What a run folder keeps besides its tables."""

    models: str = setting(default="auto", choices=("auto", "none", "shared", "all"))
    checkpoint_every: int = setting(default=100, at_least=1)


class Section:
    """A section of a spec that changes nothing unless one of its switches is given."""

    switches: ClassVar[tuple[str, ...]]

    @property
    def is_on(self) -> bool:
        """Whether it was asked for."""
        return any(getattr(self, name) is not None for name in self.switches)


@dataclasses.dataclass(frozen=True)
class PrivacySpec(Section):
    """Differential privacy of clients, or of rows; on where epsilon or noise_multiplier is given."""

    switches = ("epsilon", "noise_multiplier")
    level: str = setting(default="clients", choices=("clients", "rows"))  # what one neighbour has and the other has not
    epsilon: float | None = setting(default=None, above=0)  # to spend in all rounds; chooses the noise
    noise_multiplier: float | None = setting(default=None, at_least=0)  # or the noise itself, in clips
    delta: float | None = setting(default=None, above=0, below=1)  # unset: 0.1 / clients; of rows 1e-5
    clip: float = setting(default=1.0, above=0)  # largest norm of a client's change (first, if adaptive), or a gradient
    clipping: str = setting(default="fixed", choices=("fixed", "adaptive"))  # adaptive: follows a quantile of norms
    quantile: float = setting(default=0.5, above=0, below=1)
    noise: str = setting(default="server", choices=("server", "clients"))
    sampling: str = setting(default="fixed", choices=("fixed", "poisson"))  # poisson: by coins, 1 - training.dropout
    accountant: str = setting(default="rdp", choices=ACCOUNTANTS)


@dataclasses.dataclass(frozen=True)
class CompressionSpec(Section):
    """Fewer bytes per upload; on where a kind is given."""

    switches = ("kind",)
    kind: str | None = setting(default=None, choices=CODECS)
    bits: int = setting(default=8, at_least=1, at_most=16)  # quantise
    one_in: int = setting(default=10, at_least=2)  # top_k, random_k: entries per one that is sent
    rank: int = setting(default=2, at_least=1)  # low_rank: of what is sent of a matrix
    error_feedback: bool = True  # top_k, random_k, low_rank: what was not sent is added next time
    only: tuple[str, ...] = ()  # layers that are sent at all, by name or pattern; none: all


@dataclasses.dataclass(frozen=True)
class RobustnessSpec(Section):
    """A robust mean in place of the mean; on where a rule is given."""

    switches = ("rule",)
    rule: str | None = setting(default=None, choices=RULES)
    attackers: int = setting(default=1, at_least=0)  # trimmed_mean, krum, multi_krum: wrong uploads to withstand
    bound: float | None = setting(default=None, above=0)  # norm_bound; unset: the median of the norms


@dataclasses.dataclass(frozen=True)
class AttackSpec(Section):
    """Simulated attackers; on where a kind is given."""

    switches = ("kind",)
    kind: str | None = setting(default=None, choices=ATTACKS)
    clients: int = setting(default=1, at_least=1)  # attackers, drawn by the seed of [data]
    strength: float = setting(default=1.0, above=0)


@dataclasses.dataclass(frozen=True)
class SecureAggregationSpec(Section):
    """Sums of uploads that hide each of them from the server; on where a threshold is given."""

    switches = ("threshold",)
    threshold: int | None = setting(default=None, at_least=2)  # clients of a round that must stay to its end
    fraction_bits: int = setting(default=32, at_least=8, at_most=48)  # after the point, of 64


@dataclasses.dataclass(frozen=True)
class Resolved:
    """What was chosen at run time for one method; repeats and resumed runs read it back."""

    executor: str
    chunk: int
    block: int
    rounds: int | None = None
    tuned: Table | None = dataclasses.field(
        default=None, metadata={"doc": "settings chosen on validation rows; unset: none"}
    )
    chosen: dict[str, float | list[float]] | None = dataclasses.field(
        default=None, metadata={"doc": "settings that theory chose; unset: none"}
    )
    devices: int = 1


@dataclasses.dataclass(frozen=True)
class Spec:
    """A whole experiment."""

    name: str
    methods: tuple[MethodSpec, ...]
    seeds: tuple[int, ...] = (0,)
    data: DataSpec = dataclasses.field(default_factory=DataSpec)
    model: ModelSpec = dataclasses.field(default_factory=ModelSpec)
    training: Training = dataclasses.field(default_factory=Training)
    evaluation: EvaluationSpec = dataclasses.field(default_factory=EvaluationSpec)
    tuning: TuningSpec = dataclasses.field(default_factory=TuningSpec)
    collaboration: CollaborationSpec = dataclasses.field(default_factory=CollaborationSpec)
    output: OutputSpec = dataclasses.field(default_factory=OutputSpec)
    privacy: PrivacySpec = dataclasses.field(default_factory=PrivacySpec)
    compression: CompressionSpec = dataclasses.field(default_factory=CompressionSpec)
    robustness: RobustnessSpec = dataclasses.field(default_factory=RobustnessSpec)
    attack: AttackSpec = dataclasses.field(default_factory=AttackSpec)
    secure_aggregation: SecureAggregationSpec = dataclasses.field(default_factory=SecureAggregationSpec)
    resolved: dict[str, Resolved] = dataclasses.field(default_factory=dict)


_TABLES: dict[str, type] = {
    key: kind
    for key, kind in typing.get_type_hints(Spec).items()
    if isinstance(kind, type) and dataclasses.is_dataclass(kind)
}
PROTECTIONS = {key: kind for key, kind in _TABLES.items() if issubclass(kind, Section)}
_HOMES = {  # where two tables share a name, the first is meant
    field.name: f"{key}.{field.name}" for key, cls in reversed(_TABLES.items()) for field in dataclasses.fields(cls)
}
_KEYS = ("name", "seed", "seeds", "algorithm", "methods", "defaults", "resolved", *_TABLES)


# what `tomllib` raises: for what is no TOML or a number of thousands of digits, and where it is nested too deeply
NO_TOML = (ValueError, RecursionError)
MOST_SHOWN = 200  # letters of what was given


def load(path: Path, overrides: Sequence[str] = ()) -> Spec:
    """The spec in a TOML file, with `a.b = value` overrides applied."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RequestError(f"There is no spec file {path}; write one, or start from `idiolect compare`.") from None
    except OSError as error:
        raise RequestError(f"The spec file {path} cannot be read: {error.strerror}; give a TOML file.") from None
    except UnicodeDecodeError:
        raise RequestError(f"The spec file {path} is not text in UTF-8; save it as a plain TOML file.") from None
    except NO_TOML as error:
        raise RequestError(f"The spec file {path} is not valid TOML: {error}.") from None
    return from_table(override(table, overrides), default_name=path.stem)


def parse_line(text: str, option: str = "--set", example: str = "training.rounds = 50") -> Table:
    """One line of TOML that an option was given; RequestError for none."""
    try:
        found, why = tomllib.loads(text), ""
    except NO_TOML as error:
        found, why = {}, f" ({error})"
    if not found:
        shown = text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."
        raise RequestError(f"{option} needs one line of TOML such as {example!r}, got {shown!r}{why}.")
    return found


def parse_numbers(text: str, option: str, example: str) -> list[float]:
    """Numbers with commas between them that an option was given; RequestError for anything else."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise RequestError(f"{option} needs numbers such as {example}, got {text!r}.") from None


def override(table: Table, overrides: Sequence[str]) -> Table:
    """`table` with overrides, each one line of TOML such as 'training.rounds = 50'."""
    for text in overrides:
        table = _merge(table, _aim_at_only_method(table, parse_line(text)))
    return table


def _aim_at_only_method(table: Table, change: Table) -> Table:
    """'algorithm.x = 1' means the only method, in whichever form the spec names it."""
    methods = table.get("methods")
    if "algorithm" not in change or not isinstance(methods, dict):
        return change
    if len(methods) != 1:
        raise RequestError(
            f"--set 'algorithm. ...' needs a spec with one method, got {len(methods)}; write 'methods.LABEL. ...'."
        )
    rest = {key: value for key, value in change.items() if key != "algorithm"}
    return rest | {"methods": {next(iter(methods)): change["algorithm"]}}


def _merge(table: Table, change: Table) -> Table:
    merged = dict(table)
    for key, value in change.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merge(merged[key], value) if both else value
    return merged


def from_table(table: Mapping[str, Any], default_name: str = "run") -> Spec:
    """A checked spec from a parsed TOML table."""
    for key in table:
        if key not in _KEYS and key in _HOMES:
            raise RequestError(f"A spec has no setting {key!r}. Did you mean {_HOMES[key]!r}?")
    refuse_unknown(table, _KEYS, "A spec")
    if "seed" in table and "seeds" in table:
        raise RequestError("A spec has either seed or seeds, got both; keep one.")
    seeds = coerce(list[int], table.get("seeds", [coerce(int, table.get("seed", 0), "seed")]), "seeds")
    parts: Table = {key: fill(cls, table.get(key, {}), key) for key, cls in _TABLES.items()}
    entries = coerce(Table, table.get("resolved", {}), "resolved")
    resolved = {label: fill(Resolved, _renewed(entry), f"resolved.{label}") for label, entry in entries.items()}
    name = coerce(str, table.get("name", default_name), "name")
    _check_name(name)
    return Spec(name=name, methods=_methods(table), seeds=check_seeds(seeds), resolved=resolved, **parts)


def _renewed(entry: Any) -> Any:
    """An entry of a run folder from before strengths were tuned, when a step size was all that was."""
    if not isinstance(entry, Mapping) or "step_size" not in entry:
        return entry
    others = {key: value for key, value in entry.items() if key != "step_size"}
    return others | {"tuned": {"step_size": entry["step_size"]}}


def _check_name(name: str) -> None:
    if not name.strip() or name in (".", "..") or "/" in name or "\\" in name or one_line(name) != name:
        raise RequestError(
            f"name must be printable and able to name a folder under runs/, got {name!r}; use letters and digits."
        )


def check_seeds(seeds: Sequence[int], name: str = "seeds") -> tuple[int, ...]:
    """The seeds of a run, or RequestError: a seed that is given twice would be counted twice."""
    if not seeds or len(set(seeds)) != len(seeds) or min(seeds) < 0:
        raise RequestError(f"{name} must be one or more different whole numbers of at least 0, got {list(seeds)}.")
    return tuple(seeds)


def _methods(table: Mapping[str, Any]) -> tuple[MethodSpec, ...]:
    if ("algorithm" in table) == ("methods" in table):
        raise RequestError(
            "A spec needs either one [algorithm] table or a [methods.LABEL] table for each method, got "
            f"{'both' if 'algorithm' in table else 'neither'}."
        )
    if "algorithm" in table:
        only = table["algorithm"]
        if not isinstance(only, Mapping) or "name" not in only:
            raise RequestError("[algorithm] needs a name, such as name = 'fedavg'; `idiolect list` shows them.")
        entries, place = {coerce(str, only["name"], "algorithm.name"): only}, "algorithm"
    else:
        entries, place = coerce(Table, table["methods"], "methods"), "methods.{}"
        if not entries:
            raise RequestError("A spec needs at least one method, got none; add a table such as [methods.fedavg].")
    for label in entries:
        if not label.strip():
            raise RequestError("A method's label must not be empty; write a name between the quotes of [methods.''].")
        if one_line(label) != label:
            raise RequestError(f"A method's label must be printable, got {label!r}; use letters and digits.")
    defaults = coerce(Table, table.get("defaults", {}), "defaults")
    methods = tuple(_method(label, entry, defaults, place.format(label)) for label, entry in entries.items())
    _check_defaults(defaults, methods)
    return methods


def _method(label: str, entry: object, defaults: Table, where: str) -> MethodSpec:
    settings = dict(coerce(Table, entry, where))
    if "algorithm" in settings and "name" not in settings:
        raise RequestError(
            f"[{where}] must give its algorithm as name, got algorithm = {settings['algorithm']!r}; "
            f"write name = {settings['algorithm']!r}."
        )
    algorithm = coerce(str, settings.pop("name", label), f"{where}.name")
    objective = coerce(str | None, settings.pop("objective", None), f"{where}.objective")
    sweep = settings.pop("swept", None)
    known = setting_names(algorithm, objective)
    asks_theory = any(field.metadata.get("theory") for field in dataclasses.fields(find(algorithm).algorithm))
    if settings.get("step_size") == "theory" and "step_size" not in known and asks_theory:
        del settings["step_size"]  # it says: leave all to theory, which is what leaving all out means
    refuse_unknown(settings, known, f"[{where}] {algorithm}")
    swept = None
    if sweep is not None:  # a sweep's own spec.toml says it of its methods
        swept = fill(Swept, sweep, f"{where}.swept")
        refuse_unknown(dict.fromkeys(swept.settings), settings, f"{where}.swept.settings")
    shared = common_names(algorithm, objective)
    common = {name: value for name, value in defaults.items() if name in shared}
    return MethodSpec(label, algorithm, objective, common | settings, swept)


def _check_defaults(defaults: Table, methods: Sequence[MethodSpec]) -> None:
    """A default may miss some methods of the spec, but a name that no algorithm or objective has is a slip."""
    named = {*ALGORITHMS, *(method.algorithm for method in methods)}
    known = [*map(setting_names, named), *map(own_settings, OBJECTIVES.values())]
    refuse_unknown(defaults, set[str]().union(*known), "[defaults]")


def setting_names(algorithm: str, objective: str | None = None) -> list[str]:
    """What can be set on the named algorithm and on the objective it minimises, its own unless told."""
    method = find(algorithm)
    minimised = OBJECTIVES.get(objective or method.objective or "")
    return [*own_settings(method.algorithm), *own_settings(minimised)]


def common_names(algorithm: str, objective: str | None = None) -> list[str]:
    """The settings that are meant where a value is given to all methods at once.

    Not those that would turn the method into another one, such as FedAvg into FedProx: they are stated one by one.
    """
    method = find(algorithm)
    another = set(getattr(method.algorithm, "makes_another", ())) - set(method.preset)
    return [name for name in setting_names(algorithm, objective) if name not in another]


def own_settings(cls: type | None) -> list[str]:
    """What can be set on an algorithm or an objective, if any; the rest is filled in for it, or of no use to it."""
    if cls is None:
        return []
    filled_in = ("objective", "client_loss", "clients", "participation", *array_fields(cls))
    return [field.name for field in dataclasses.fields(cls) if field.name not in filled_in]


def resumed(stored: Spec, asked: Spec, where: object) -> Spec:
    """The stored spec, with what was chosen at run time; refuses a request that is not the same run."""
    ours, theirs = (_settings_by_place(spec) for spec in (stored, asked))
    for place in sorted({*ours, *theirs}):
        if ours.get(place) != theirs.get(place):
            before, now = (repr(side[place]) if place in side else "unset" for side in (ours, theirs))
            raise RequestError(
                f"The run in {where} was started with {place} = {before}, and this asks for {now}; "
                f"resume it as it was with `idiolect run {where} --resume`, or choose another --out."
            )
    training = dataclasses.replace(stored.training, devices=asked.training.devices)
    return dataclasses.replace(stored, output=asked.output, training=training)


def is_same_run(one: Spec, other: Spec) -> bool:
    """Whether two specs agree in everything that decides the numbers."""
    return _settings_by_place(one) == _settings_by_place(other)


def _settings_by_place(spec: Spec) -> Table:
    """'training.rounds' -> 100, of everything that decides the numbers."""
    table = to_table(spec)
    places = flat({key: value for key, value in table.items() if key not in ("name", "output", "resolved")}, ".")
    places.pop("training.devices", None)  # where clients are changes rounding alone
    return {place: value for place, value in places.items() if value != {}} | {"methods": sorted(table["methods"])}


def to_table(spec: Spec) -> Table:
    """Plain values that `from_table` reads back to the same spec; unset values are left out."""
    table: Table = {"name": spec.name, "seeds": list(spec.seeds)}
    for key in _TABLES:
        # a section that is not on is not written: a spec says what was asked for
        if key in PROTECTIONS and getattr(spec, key) == PROTECTIONS[key]():
            continue
        if key != "collaboration" or spec.collaboration.source is not None:
            table[key] = _plain(dataclasses.asdict(getattr(spec, key)))
    table["methods"] = {
        method.label: {"name": method.algorithm}
        | ({"objective": method.objective} if method.objective else {})
        | ({"swept": _plain(dataclasses.asdict(method.swept))} if method.swept else {})
        | _plain(method.settings)
        for method in spec.methods
    }
    table["resolved"] = {label: _plain(dataclasses.asdict(entry)) for label, entry in spec.resolved.items()}
    return table


def to_toml(spec: Spec) -> str:
    """The spec as a TOML file."""
    return tomli_w.dumps(to_table(spec))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items() if entry is not None}
    return [_plain(entry) for entry in value] if isinstance(value, list | tuple) else value
