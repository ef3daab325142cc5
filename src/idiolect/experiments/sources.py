# SPDX-License-Identifier: Apache-2.0
"""Where the rows of a spec come from: a reader for each name that `data.source` may have."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from idiolect.core.checks import Range, RequestError, check, nearest
from idiolect.data import bundled, shared_files, speeches, synthetic
from idiolect.data.federation import Federation
from idiolect.data.leaf import next_token_targets, read_leaf_json, refuse_token_numbers
from idiolect.data.packs import open_pack
from idiolect.data.partition import deal
from idiolect.data.preparation import FEDERATED, GIVEN, LOCAL
from idiolect.data.preprocessing import Preprocessing
from idiolect.data.problem import Problem
from idiolect.data.sources import npz_names, read_idx, read_libsvm, read_npz
from idiolect.data.split import Split
from idiolect.data.task import label_name, refuse_one_hot
from idiolect.experiments.spec import DataSpec
from idiolect.experiments.strict import coerce, refuse_unknown
from idiolect.record.memory import check_address_space, check_bytes

if TYPE_CHECKING:
    import pyarrow as pa

Source = Callable[..., Federation | Problem]


class _Count(NamedTuple):
    """A setting of npz files that says how many there are: the least number, and words for what is counted."""

    least: int
    plural: str
    short: str


TABLE_ONLY = ("drop", "categorical", "time_column", "weight_column", "recipe")
COUNTS = {"vocabulary": _Count(0, "tokens", "tokens"), "classes": _Count(2, "class numbers", "classes")}
BYTES_OF_NAME = 100  # that a class's name takes
BYTES = "Images stored as bytes, the array {!r}, were divided by 255 to lie in [0, 1]; floats are taken as they are."


def _table(data: DataSpec, split: Split, rows: pa.Table | None = None) -> Federation:
    source = _need(data, "path") if rows is None else rows
    client, target = (_need(data, name) for name in ("client", "target"))
    refuse_unknown(data.settings, ("scaling", "target_scaling"), "[data.settings] table")
    return Federation.from_table(
        source,
        client=client,
        target=target,
        features=data.features,
        drop=data.drop or (),
        categorical=data.categorical or (),
        weight=data.weight_column,
        preparation=data.preparation,
        recipe=read_recipe(data),
        **_usual(data, split),
        **data.settings,
    )


def read_recipe(data: DataSpec) -> Preprocessing | None:
    """The recipe of a file, where the spec gives one."""
    if (data.recipe is None) == (data.preparation == GIVEN):
        raise RequestError(
            'data.recipe, a preprocessing.json, goes with data.preparation = "given", got '
            f"{data.recipe!r} with {data.preparation!r}; give both or neither."
        )
    if data.recipe is None:
        return None
    try:
        return Preprocessing.from_json(Path(data.recipe).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"data.recipe {data.recipe!r} cannot be read: {error}.") from error


def _npz(data: DataSpec, split: Split) -> Federation:
    roles, counted = _npz_roles(data)
    inputs, targets, clients = _npz_arrays(_need(data, "path"), roles)
    tokens = "vocabulary" in counted
    if not tokens and data.task != "regression":
        _refuse_column(targets, roles["targets"])
    notes = []
    if tokens:
        _check_numbers(inputs, roles["inputs"], clients, counted, lowest=0)
    elif inputs.dtype == np.uint8 and inputs.ndim in (3, 4):  # (rows, height, width) with or without channels
        inputs, notes = _pixels(inputs), [BYTES.format(roles["inputs"])]
    if counted:
        if not tokens:
            refuse_one_hot(targets, counted["classes"])
        _check_numbers(targets, roles["targets"], clients, counted, lowest=-1 if targets.ndim > 1 else 0)
    options: dict[str, Any] = {"classes": _numbered(counted)} if counted else {}
    federation = Federation.from_arrays(inputs, targets, clients, tokens=tokens, **options, **_usual(data, split))
    return dataclasses.replace(federation, notes=(*notes, *federation.notes))


def _npz_arrays(path: str, roles: Mapping[str, str]) -> list[np.ndarray]:
    """Inputs, targets and clients."""
    there = npz_names(path)
    for role, name in roles.items():
        if name not in there:
            raise RequestError(f"The file {path} has no array {name!r} for {role}.{nearest(name, there)}")
    arrays = read_npz(path, tuple(roles.values()))
    return [np.asarray(arrays[roles[role]]) for role in ("inputs", "targets", "clients")]


def _refuse_column(targets: np.ndarray, name: str) -> None:
    if targets.shape[1:] == (1,) and targets.dtype.kind in "iub":
        raise RequestError(
            f"The array {name!r} holds one column of labels, shape {targets.shape}, where a label per row is needed; "
            "store it as targets[:, 0], or set data.task = 'regression' if it is a number to predict."
        )


def _npz_roles(data: DataSpec) -> tuple[dict[str, str], dict[str, int]]:
    """Role -> the name of its array, and the setting that says how many labels or tokens there are, if one does."""
    for given, role in (("target", "targets"), ("features", "inputs")):
        if getattr(data, given) is not None:  # a table's way to say it, which would be passed over
            raise RequestError(f"[data] source 'npz' does not read {given}; name the array in data.settings.{role}.")
    roles = {"inputs": "x", "targets": "y", "clients": data.client or "client"}
    refuse_unknown(data.settings, (*roles, *COUNTS), "[data.settings] npz")
    counted = _counted(data, {name: value for name, value in data.settings.items() if name in COUNTS})
    named = {role: name for role, name in data.settings.items() if role in roles}
    return roles | {role: coerce(str, name, f"data.settings.{role}") for role, name in named.items()}, counted


def _numbered(counted: dict[str, int]) -> tuple[str, ...]:
    """Names of as many classes or tokens as were counted."""
    return tuple(map(str, range(*counted.values())))


def _usual(data: DataSpec, split: Split) -> dict[str, Any]:
    """What every federation of rows takes."""
    return {"task": data.task, "split": split, "held_out": data.held_out, "seed": data.seed}


def _counted(data: DataSpec, settings: dict[str, Any]) -> dict[str, int]:
    """The one setting that says how many labels or tokens there are, or none of them; RequestError for a bad one."""
    counted: dict[str, int] = {}
    for name, value in settings.items():
        count = coerce(int, value, f"data.settings.{name}")
        check("data.settings", name, count, Range(at_least=COUNTS[name].least))
        way_out = f"give the number of different {COUNTS[name].short}"
        check_bytes(BYTES_OF_NAME * count, f"data.settings.{name} = {count}", way_out)
        counted |= {name: count} if count else {}  # a vocabulary of 0 is none
    if len(counted) > 1:
        raise RequestError(
            "[data.settings] npz takes vocabulary, of texts, or classes, of everything else, got both; leave one out."
        )
    if counted and data.task == "regression":
        (name,) = counted
        raise RequestError(
            f"[data] task must be 'classification' or left out with data.settings.{name}, whose targets are "
            f"{COUNTS[name].plural}, got 'regression'; leave out one of the two."
        )
    return counted


def _check_numbers(values: np.ndarray, name: str, clients: np.ndarray, counted: dict[str, int], lowest: int) -> None:
    """RequestError for an array that holds other things than was counted; from -1 on where a position may have none."""
    ((setting, count),) = counted.items()
    words = COUNTS[setting]
    if values.dtype.kind not in "iu":
        raise RequestError(
            f"data.settings.{setting} needs {words.plural}, whole numbers, in the array {name!r}, got the type "
            f"{values.dtype}; store it as whole numbers, or leave {setting} out."
        )
    if lowest <= values.min(initial=0) and values.max(initial=0) < count:
        return
    place = tuple(np.argwhere((values < lowest) | (values >= count))[0])
    row, value, most = int(place[0]), int(values[place]), int(values.max())
    known = f"{words.plural} 0 to {count - 1}" + (", or -1 for none" if lowest < 0 else "")
    way_out = f"set {setting} to at least {most + 1}" if value >= count else f"number {words.short} from 0"
    raise RequestError(
        f"With data.settings.{setting} = {count} the array {name!r} must hold {known}, but {_whose(clients, row)} has "
        f"{value}; correct it, or {way_out}."
    )


def _whose(clients: np.ndarray, row: int) -> str:
    """A row's client in a sentence; what is wrong with a list of clients that does not tell is said later."""
    if clients.ndim != 1 or row >= len(clients):
        return f"row {row}"
    return f"client {label_name(clients[row])!r} (row {row})"


def _pixels(inputs: np.ndarray) -> np.ndarray:
    """Bytes as numbers in [0, 1], without a detour of eight bytes per pixel."""
    return np.divide(inputs, np.float32(255), dtype=np.float32)


def _leaf(data: DataSpec, split: Split) -> Federation:
    path = _need(data, "path")
    leaf = read_leaf_json(path)
    refuse_unknown(data.settings, ("vocabulary",), "[data.settings] leaf")
    counted = _counted(data, dict(data.settings))
    rows, notes, warnings = leaf.rows, list[str](), list[str]()
    options: dict[str, Any] = {}
    if leaf.alphabet:
        counted = {"vocabulary": len(leaf.alphabet)}
        options = {"classes": tuple(leaf.alphabet), "tokens": True}
        notes = [f"The texts of x were read as tokens, one for each of {len(leaf.alphabet)} characters."]
    elif counted:
        options = {"classes": _numbered(counted), "tokens": True}
        owners = np.repeat(np.array(leaf.names, dtype=str), rows.counts)
        for values, word in ((rows.inputs, "x"), (rows.targets, "y")):
            _check_numbers(values, word, owners, counted, lowest=0 if word == "x" else -1)
    else:
        warnings = refuse_token_numbers(path, rows.inputs)
    if counted:
        rows = dataclasses.replace(rows, targets=next_token_targets(path, rows.inputs, rows.targets))
    federation = Federation.from_rows(rows, names=leaf.names, **_usual(data, split), **options)
    return dataclasses.replace(
        federation, notes=(*notes, *federation.notes), warnings=(*warnings, *federation.warnings)
    )


def _libsvm_file(data: DataSpec, split: Split) -> Federation:
    inputs, targets = read_libsvm(_need(data, "path"))
    return _dealt(data, split, inputs, targets, data.settings)


def _idx(data: DataSpec, split: Split) -> Federation:
    if "labels" not in data.settings:
        raise RequestError("[data.settings] source 'idx' needs labels, the path of the label file beside path.")
    labels = coerce(str, data.settings["labels"], "data.settings.labels")
    inputs, targets = read_idx(_need(data, "path")), read_idx(labels)
    options = {name: value for name, value in data.settings.items() if name != "labels"}
    return _dealt(data, split, _pixels(inputs) if inputs.dtype == np.uint8 else inputs, targets, options)


def _dealt(
    data: DataSpec, split: Split, inputs: np.ndarray, targets: np.ndarray, settings: dict[str, Any]
) -> Federation:
    """Files without clients: `settings.partition` deals the rows out, with its further settings."""
    options: dict[str, Any] = {"partition": "iid", "clients": 8} | settings
    name = coerce(str, options.pop("partition"), "data.settings.partition")
    clients = coerce(int, options.pop("clients"), "data.settings.clients")
    check("data.settings", "clients", clients, Range(at_least=2))
    if targets.ndim != 1 or inputs.ndim < 1 or len(inputs) != len(targets):
        raise RequestError(
            f"[data] source {data.source!r} needs one label per row, got inputs of shape {inputs.shape} and labels of "
            f"shape {targets.shape}; name the files that belong together."
        )
    try:
        dealt = deal(name, inputs, targets, clients, data.seed, options)
    except TypeError as error:
        raise RequestError(f"[data.settings] partition {name!r}: {error}; check its settings.") from None
    options = _usual(data, split) | {"task": data.task or "classification"}
    federation = Federation.from_arrays(inputs, targets, dealt.assignment, **options)
    return dataclasses.replace(federation, notes=(*dealt.notes, *federation.notes))


def _pack(data: DataSpec, split: Split) -> Federation:
    """Rows that were split and prepared when they were packed: nothing of that can be asked for again."""
    for field in dataclasses.fields(DataSpec):
        if field.name not in ("source", "path", "seed") and getattr(data, field.name) != getattr(
            DataSpec(), field.name
        ):
            raise RequestError(
                f"[data] {field.name} was settled when the rows were packed, got {getattr(data, field.name)!r}; leave "
                "it out, or pack them again with it."
            )
    return open_pack(Path(_need(data, "path")))


READERS = {"pack": _pack, "table": _table, "npz": _npz, "leaf": _leaf, "libsvm_file": _libsvm_file, "idx": _idx}

SOURCES: dict[str, Source] = {
    "digits": bundled.digits,
    "heart_disease": shared_files.heart_disease,
    "school": shared_files.school,
    "landmine": shared_files.landmine,
    "vehicle": shared_files.vehicle,
    "uci_har": shared_files.uci_har,
    "uci_har_summary": shared_files.uci_har_summary,
    "mnist_writers": shared_files.mnist_writers,
    "shakespeare": speeches.shakespeare,
    "libsvm": shared_files.libsvm,
    "quadratics": synthetic.quadratics,
    "noisy_quadratics": synthetic.noisy_quadratics,
    "two_clients": synthetic.two_clients,
    "logistic_libsvm_like": synthetic.logistic_libsvm_like,
}


def build_data(
    data: DataSpec, precision: str = "float32", rows: pa.Table | None = None
) -> tuple[Federation, Problem | None]:
    """The federation a spec asks for, and what is known about it when it is synthetic.

    `rows` is the table itself where it is in memory; the spec then says all but its path.
    """
    check_address_space()
    split = Split(data.train, data.validation, data.test, data.split_column, data.group_column, data.time_column)
    split.check()
    if data.source != "table":
        _refuse_table_settings(data)
    if rows is not None:
        return _table(data, split, rows), None
    if data.source in READERS:
        return READERS[data.source](data, split), None
    if data.source not in SOURCES:
        raise RequestError(
            f"[data] source {data.source!r} is not known.{nearest(data.source, [*READERS, *SOURCES])} "
            "For your own file use source = 'table'."
        )
    source = SOURCES[data.source]
    parameters = inspect.signature(source).parameters
    # synthetic problems are made in the run's precision: rounding would move their optimum
    usual = {"seed": data.seed, "split": split, "held_out": data.held_out, "dtype": np.dtype(precision)}
    usual["preparation"] = data.preparation
    _check_settings(data, parameters, usual)
    arguments = {name: value for name, value in usual.items() if name in parameters} | data.settings
    _check_size(data.source, parameters, arguments)
    try:
        built = source(**arguments)
    except TypeError as error:
        raise RequestError(f"[data.settings] {data.source}: {error}.") from None
    return (built.federation, built) if isinstance(built, Problem) else (built, None)


def _refuse_table_settings(data: DataSpec) -> None:
    for name in TABLE_ONLY:
        if getattr(data, name) is not None:
            way_out = 'set source = "table"' if data.path else "leave it out"
            raise RequestError(f"[data] {name} is for tables, and the source is {data.source!r}; {way_out}.")
    known = SOURCES.get(data.source)
    is_table = known is not None and "preparation" in inspect.signature(known).parameters
    if data.preparation != FEDERATED and not (is_table and data.preparation == LOCAL):
        raise RequestError(
            f"[data] preparation is for tables, and the source is {data.source!r}, whose rows come as they are; leave "
            "it out."
        )


_HOMES = {"split": "train, validation and test of [data]", "dtype": "precision of [training]"}


def _check_settings(data: DataSpec, parameters: Mapping[str, inspect.Parameter], usual: Mapping[str, Any]) -> None:
    """RequestError where the settings of a known source are not those that it takes and needs."""
    for misplaced in sorted(data.settings.keys() & usual):
        home = _HOMES.get(misplaced, f"{misplaced} of [data]")
        raise RequestError(f"[data.settings] {data.source} has no setting {misplaced!r}; it is {home}.")
    if data.held_out and "held_out" not in parameters:
        raise RequestError(f"[data] held_out is not available for the source {data.source!r}; leave it at 0.")
    _check_own(data, {name: one for name, one in parameters.items() if name not in usual})


def _check_own(data: DataSpec, parameters: Mapping[str, inspect.Parameter]) -> None:
    """The settings that only this source has: none that it does not know, and all that it needs."""
    own = {name: one for name, one in parameters.items() if one.kind is not one.VAR_KEYWORD}
    if own == parameters:  # it takes no others by **
        refuse_unknown(data.settings, own, f"[data.settings] {data.source}")
    needed = [name for name, one in own.items() if one.default is one.empty and name not in data.settings]
    if needed:
        raise RequestError(f"[data.settings] {data.source} needs {' and '.join(needed)}; set them to numbers.")


def _check_size(source: str, parameters: Mapping[str, inspect.Parameter], arguments: Mapping[str, Any]) -> None:
    """RequestError where a made problem of these sizes would not fit into memory."""
    given = {name: arguments.get(name, one.default) for name, one in parameters.items()}
    sizes = {name: value for name, value in given.items() if isinstance(value, int) and not isinstance(value, bool)}
    clients = sizes.get("clients", sizes.get("agents", 1))
    rows = sizes.get("rows", sizes.get("samples", 1)) + sizes.get("test_rows", 0)
    width = sum(value for name, value in sizes.items() if name.endswith("dimension")) or 1
    if min(clients, rows, width) > 0:
        shown = f"[data.settings] {source} with {clients} clients of {rows} rows of {width} numbers"
        check_bytes(2 * 8.0 * clients * rows * width, shown, "use smaller numbers")


def refuse_weights(data: DataSpec, command: str) -> None:
    """RequestError where rows have weights and a command counts every row once."""
    if data.weight_column is not None:
        raise RequestError(
            f"{command} counts every row once, got the weight column {data.weight_column!r}; leave --weight "
            "(data.weight_column) out, or use compare, which weighs rows."
        )


def _need(data: DataSpec, name: str) -> str:
    value = getattr(data, name)
    if value is None:
        raise RequestError(f"[data] source {data.source!r} needs {name}; set it to a text.")
    return str(value)
