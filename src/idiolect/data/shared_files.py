# SPDX-License-Identifier: Apache-2.0
"""Federations of the data sets in the catalogue that need files."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from idiolect.core.checks import RequestError, nearest
from idiolect.data.conversions import HOSPITALS
from idiolect.data.dataset_files import dataset_file
from idiolect.data.federation import Federation
from idiolect.data.partition import Partition, deal
from idiolect.data.preparation import FEDERATED
from idiolect.data.sources import read_libsvm, read_npz
from idiolect.data.split import HeldOut, Split, draw_held_out

LIBSVM_FEATURES = {"mushrooms": 112, "a6a": 123, "a6a.t": 123, "w6a": 300, "w6a.t": 300}
HEART_COLUMNS = (
    *("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg"),
    *("thalach", "exang", "oldpeak", "slope", "ca", "thal", "num"),
)
HEART_CATEGORIES = ("cp", "restecg", "slope", "thal")  # codes without an order


class _Asked(NamedTuple):
    """What every set may be asked for, beside its own settings."""

    split: Split
    held_out: HeldOut
    seed: int

    def of_table(
        self, rows: object, client: str, target: str, task: str = "classification", preparation: str = FEDERATED
    ) -> Federation:
        """A table as it was asked for."""
        return Federation.from_table(
            rows, client=client, target=target, task=task, preparation=preparation, **self._asdict()
        )

    def of_arrays(
        self, inputs: np.ndarray, labels: np.ndarray, clients: np.ndarray, classes: tuple[str, ...], **more: Any
    ) -> Federation:
        """Arrays as they were asked for; labels are class numbers."""
        return Federation.from_arrays(
            inputs, labels.astype(np.int32), clients, classes=classes, **self._asdict(), **more
        )


def heart_disease(*, split: Split = Split(), seed: int = 0, preparation: str = FEDERATED) -> Federation:
    """UCI Heart Disease: 920 patients of 4 hospitals, 13 features, many values missing; is there disease?"""
    return _Asked(split, 0, seed).of_table(heart_table(), "hospital", "disease", preparation=preparation)


def heart_table() -> pa.Table:
    """Its rows, with the hospital of each and whether there is disease."""
    parts = [(hospital, heart_numbers(hospital)) for hospital in HOSPITALS]
    table = pa.concat_tables(part.append_column("hospital", pa.array([name] * len(part))) for name, part in parts)
    for name in HEART_CATEGORIES:
        codes = pc.cast(pc.cast(table.column(name), pa.int64()), pa.string())
        table = table.set_column(table.column_names.index(name), name, codes)
    return table.append_column("disease", pc.greater(table.column("num"), 0)).drop_columns(["num"])


def heart_numbers(hospital: str) -> pa.Table:
    """One hospital's rows as they are published: numbers without a header, '?' where one is missing."""
    types = dict.fromkeys(HEART_COLUMNS, pa.float64())  # told: a hospital may lack a column altogether
    return csv.read_csv(
        dataset_file(f"tabular/heart_disease/processed.{hospital}.data"),
        csv.ReadOptions(column_names=HEART_COLUMNS),
        convert_options=csv.ConvertOptions(column_types=types, null_values=["?"]),
    )


def school(*, split: Split = Split(), held_out: HeldOut = 0, seed: int = 0, preparation: str = FEDERATED) -> Federation:
    """ILEA exam scores: 15362 pupils of 139 schools, 27 features; regression on the scaled score."""
    content = read_npz(dataset_file("tabular/school139.npz.xz"))
    table = _columns(content["x"][:, :27]) | {"score": content["y"], "school": content["school"]}
    return _Asked(split, held_out, seed).of_table(table, "school", "score", "regression", preparation)


def landmine(
    *, split: Split = Split(), held_out: HeldOut = 0, seed: int = 0, preparation: str = FEDERATED
) -> Federation:
    """Landmine detection: 14820 radar images of 29 minefields, 9 features; 6 % are mines."""
    content = read_npz(dataset_file("tabular/landmine29.npz.xz"))
    table = _columns(content["x"]) | {"mine": content["y"], "field": content["task"]}
    return _Asked(split, held_out, seed).of_table(table, "field", "mine", preparation=preparation)


def vehicle(*, split: Split = Split(), held_out: HeldOut = 0, seed: int = 0) -> Federation:
    """Vehicle sensors: 1860 recordings of 23 sensors (7 to 534 each), 100 features, two vehicles."""
    content = read_npz(dataset_file("tabular/vehicle23.npz.xz"))
    return _Asked(split, held_out, seed).of_arrays(content["x"], content["y"] > 0, content["sensor"], ("-1", "1"))


def uci_har(*, split: Split = Split(), held_out: HeldOut = 0, seed: int = 0) -> Federation:
    """Human activity: 10299 windows (128 samples x 9 channels) of 30 people, 6 activities.

    Neighbouring windows overlap by half, so the split keeps each unbroken segment together.
    """
    content = read_npz(dataset_file("tabular/uci_har_windows.npz.xz"))
    windows = (content["x"] * content["step"][:, None]).transpose(0, 2, 1)
    names = tuple(str(name).lower() for name in content["activities"])
    asked = _Asked(split, held_out, seed)
    return asked.of_arrays(windows, content["y"], content["subject"], names, groups=content["segment"])


def uci_har_summary(*, split: Split = Split(), held_out: HeldOut = 0, seed: int = 0) -> Federation:
    """Human activity in 18 features: mean and standard deviation of each channel of a window; split by segment."""
    content = read_npz(dataset_file("tabular/uci_har_windows.npz.xz"))
    windows = content["x"] * content["step"][:, None]
    names = [f"{word} of channel {channel}" for word in ("mean", "deviation") for channel in range(windows.shape[1])]
    values = np.concatenate([windows.mean(axis=2), windows.std(axis=2)], axis=1)
    activities = np.array([str(name).lower() for name in content["activities"]])
    table = {name: values[:, place] for place, name in enumerate(names)}
    table |= {"activity": activities[content["y"]], "person": content["subject"], "segment": content["segment"]}
    together = dataclasses.replace(split, group_column="segment")
    return _Asked(together, held_out, seed).of_table(table, "person", "activity")


def mnist_writers(
    writers: int | None = None, *, split: Split = Split(), held_out: HeldOut = 0, seed: int = 0
) -> Federation:
    """MNIST by its true writers (28 x 28 x 1 inputs in [0, 1]): the first `writers` of 539, by number, train.

    The writers of MNIST's test images are others, and new clients come from those 297: `held_out` of them, a share of
    them, or those whose numbers are given.
    """
    content = read_npz(dataset_file("images/mnist_writers.npz.xz"))
    training = np.unique(content["writer_train"])
    if writers is not None and not 2 <= writers <= len(training):
        raise RequestError(
            f"[data.settings] mnist_writers: writers must be at least 2 and at most {len(training)}, got {writers}; "
            "leave it out for all of them."
        )
    training, outside = training[:writers], np.unique(content["writer_test"])
    if isinstance(held_out, (int, np.integer)) and held_out > len(outside):
        raise RequestError(
            f"held_out must be at most {len(outside)}, the writers of the test images, got {held_out}; hold out fewer."
        )
    outside = outside[draw_held_out(tuple(str(int(writer)) for writer in outside), held_out, seed)]
    chosen = {"train": np.isin(content["writer_train"], training), "test": np.isin(content["writer_test"], outside)}
    images, digits, owners = (
        np.concatenate([content[f"{name}_{part}"][rows] for part, rows in chosen.items()])
        for name in ("x", "y", "writer")
    )
    asked = _Asked(split, [str(int(name)) for name in outside], seed)
    return asked.of_arrays(scale_pixels(images), digits, owners, tuple("0123456789"))


def libsvm(
    name: str,
    clients: int = 8,
    partition: str | Partition = "iid",
    *,
    split: Split = Split(train=1.0, validation=0.0, test=0.0),
    seed: int = 0,
    **options: Any,
) -> Federation:
    """mushrooms, a6a, w6a (or their .t parts): two classes, dealt out to clients by a partitioner.

    `partition` is a name in PARTITIONERS (further `options` go to it) or a Partition. All rows train, as in
    Scafflix 2023, unless `split` says otherwise.
    """
    if name not in LIBSVM_FEATURES:
        raise RequestError(f"There is no LIBSVM set {name!r}.{nearest(name, LIBSVM_FEATURES)}")
    inputs, targets = read_libsvm(dataset_file(f"libsvm/{name}.bz2"), LIBSVM_FEATURES[name])
    labels = (targets == targets.max()).astype(np.int32)  # {-1, 1} or {1, 2}: the larger one is positive
    dealt = partition if isinstance(partition, Partition) else deal(partition, inputs, labels, clients, seed, options)
    federation = Federation.from_arrays(
        inputs, labels, dealt.assignment, classes=("negative", "positive"), split=split, seed=seed
    )
    return dataclasses.replace(federation, notes=(*dealt.notes, *federation.notes))


def _columns(values: np.ndarray) -> dict[str, np.ndarray]:
    return {f"x{number}": values[:, number] for number in range(values.shape[1])}


def scale_pixels(images: np.ndarray) -> np.ndarray:
    """Bytes to [0, 1], channels last."""
    scaled = images.astype(np.float32) / 255
    return scaled[..., None] if scaled.ndim == 3 else np.ascontiguousarray(scaled.transpose(0, 2, 3, 1))
