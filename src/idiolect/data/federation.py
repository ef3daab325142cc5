# SPDX-License-Identifier: Apache-2.0
"""A federation: every client's training, validation and test rows, and clients that never train."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from idiolect.core.checks import RequestError
from idiolect.core.data import Rows, take_weights
from idiolect.data.arrays import as_array, as_inputs, as_targets, as_weights, check_lengths
from idiolect.data.preparation import FEDERATED, Preparation
from idiolect.data.row_weights import check_alike, check_training_weights, weight_notes
from idiolect.data.split import TEST, TRAIN, UNUSED, VALIDATION, HeldOut, Plan, Split, plan
from idiolect.data.task import Task, encode_labels, refuse_one_hot
from idiolect.record.words import counted

if TYPE_CHECKING:  # which imports pyarrow
    from idiolect.data.preprocessing import Preprocessing


class Places(NamedTuple):
    """Where rows came from: their numbers in the source, from 0, in the order of the rows they belong to."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    unused: np.ndarray  # rows that no part took
    unused_clients: np.ndarray  # the number of the client of each
    total: int  # rows of the source, with those that were dropped


class ArrayOptions(TypedDict, total=False):
    """What may be said of rows that come as arrays; all may be left out."""

    task: str | None  # by the targets
    classes: Sequence[str] | None  # names of targets that are already class numbers
    split: Split
    groups: ArrayLike | None  # one value per row: rows with equal ones stay together
    parts: ArrayLike | None  # one per row: train, validation or test
    held_out: HeldOut
    seed: int
    tokens: bool  # whole-number inputs stay whole numbers
    dtype: DTypeLike  # of other inputs, and of numeric targets; single precision


@dataclasses.dataclass(frozen=True)
class Federation:
    """Train, validation and test rows of the same clients in the same order, and what they are about.

    Classification targets are int32 class numbers, (rows,) or of sequences (rows, length) with -1 for none; regression
    targets are floats, (rows,) or (rows, k).
    Rows of one client with equal numbers in `groups` belong together (overlapping windows); None: every row is its own.
    """

    train: Rows
    validation: Rows
    test: Rows
    names: tuple[str, ...]
    task: Task
    held_out: Federation | None = None
    preprocessing: Preprocessing | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()  # what may be a slip in the data
    groups: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None  # of the rows that train, validate, test
    validation_drawn: bool = True  # which rows validate was drawn: others might as well
    places: Places | None = None  # None where rows have no source to be found in
    preparation: Preparation | None = None  # None where rows came as they are

    def __post_init__(self) -> None:
        counts = {self.train.clients, self.validation.clients, self.test.clients, len(self.names)}
        if len(counts) != 1:
            raise RequestError(
                "Train, validation, test and names must speak of the same clients, got "
                f"{self.train.clients}, {self.validation.clients}, {self.test.clients} and {len(self.names)}."
            )
        check_alike(self.train, self.validation, self.test)
        others = () if self.held_out is None else (self.held_out.train, self.held_out.validation, self.held_out.test)
        shapes = [rows.inputs.shape[1:] for rows in (self.train, self.validation, self.test, *others)]
        if len(set(shapes)) > 1:
            raise RequestError(
                f"All inputs must have one shape, got {shapes[0]} and {next(s for s in shapes if s != shapes[0])}; "
                "crop, pad or resize them alike."
            )
        if self.held_out is not None and self.held_out.task != self.task:
            raise RequestError(
                "Clients that train and clients that are held out must have one task, got "
                f"{self.task.outputs} and {self.held_out.task.outputs} classes or targets of other names; encode the "
                "labels of all clients together."
            )

    @classmethod
    def from_table(
        cls,
        source: object,
        *,
        client: str,
        target: str | Sequence[str],
        features: Sequence[str] | None = None,
        drop: Sequence[str] = (),
        categorical: Sequence[str] = (),
        weight: str | None = None,
        task: str | None = None,
        split: Split = Split(),
        held_out: HeldOut = 0,
        seed: int = 0,
        scaling: str = "standard",
        target_scaling: str = "standard",
        preparation: str = FEDERATED,
        recipe: Preprocessing | None = None,
        dtype: DTypeLike = np.float32,
    ) -> Federation:
        """One client per value of the column `client`, read as text; see `read_table` for the sources.

        Inputs are the columns `features`, or all without another role but `drop`; row numbers, ids and splits among
        them are left out with a warning. Texts and `categorical` columns become one-hot inputs, missing numbers the
        training mean and a mark, numbers are scaled ("standard" or "none"); all of it is fitted on training rows
        only and kept in `preprocessing`. `preparation` says by what: "federated", sums over clients; "local", each
        client's own rows; "given", the `recipe`; what was sent for it is in the field of that name. Rows without
        client or target are dropped. The column `weight` says how much each row counts in losses and scores. `notes`
        says what was done, `warnings` what may be a slip.
        """
        from idiolect.data.from_table import federation_from_table
        from idiolect.data.table_request import TableRequest

        request = TableRequest(
            client=client,
            targets=(target,) if isinstance(target, str) else tuple(target),
            features=None if features is None else tuple(features),
            drop=tuple(drop),
            categorical=tuple(categorical),
            weight=weight,
            task=task,
            split=split,
            held_out=held_out,
            seed=seed,
            scaling=scaling,
            target_scaling=target_scaling,
            preparation=preparation,
            recipe=recipe,
        )
        return federation_from_table(cls, source, request, dtype)

    @classmethod
    def from_arrays(
        cls,
        inputs: ArrayLike,
        targets: ArrayLike,
        clients: ArrayLike,
        *,
        weights: ArrayLike | None = None,
        **options: Unpack[ArrayOptions],
    ) -> Federation:
        """Rows (inputs, targets) with one client id each; clients stand in sorted order of their ids.

        `weights` say how much each row counts; for the further options see `ArrayOptions`.
        """
        ids = np.asarray(clients)
        if ids.ndim != 1:
            raise RequestError(f"clients must be one id per row, got an array of shape {ids.shape}.")
        if ids.dtype.kind not in "biufUSM":
            raise RequestError(f"clients must be numbers or texts, got the type {ids.dtype}; write their names.")
        if ids.dtype.kind == "f" and not np.isfinite(ids).all():
            raise RequestError("clients must not contain not-a-number; leave those rows out or name their client.")
        names, owner = encode_labels(ids)
        return _from_owned(cls, inputs, targets, weights, owner, names, **options)

    @classmethod
    def from_rows(
        cls, rows: Rows, *, names: Sequence[str] | None = None, **options: Unpack[ArrayOptions]
    ) -> Federation:
        """Rows that already belong to clients, whose order is kept."""
        known = tuple(map(str, range(rows.clients) if names is None else names))
        if len(known) != rows.clients or len(set(known)) != len(known):
            raise RequestError(f"names must be {rows.clients} different names, one per client, got {len(set(known))}.")
        owner = np.repeat(np.arange(rows.clients), rows.counts)
        return _from_owned(cls, rows.inputs, rows.targets, rows.weights, owner, known, **options)

    @property
    def clients(self) -> int:
        """Number of clients that train."""
        return self.train.clients

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one row's inputs."""
        return tuple(self.train.inputs.shape[1:])

    def class_balance(self) -> np.ndarray:
        """Fraction of the training rows in each class."""
        if self.task.kind != "classification":
            raise RequestError(
                f"class_balance needs a classification task; this federation's task is {self.task.kind}."
            )
        targets = self.train.targets.reshape(-1)
        counts = np.bincount(targets[targets >= 0], minlength=len(self.task.classes))
        return counts / max(1, counts.sum())

    def label_skew(self) -> float:
        """How much clients differ in their training targets, 0 (alike) to 1.

        Classification: mean over clients of the total variation distance between a client's class balance
        and the mean of these. Regression: share of the targets' variance that lies between clients.
        """
        owner = np.repeat(np.arange(self.clients), self.train.counts)
        targets = self.train.targets.reshape(len(owner), -1)
        if self.task.kind == "classification":
            table = np.zeros((self.clients, len(self.task.classes)))
            # a position without a target has -1, and belongs to no class
            labels = targets.reshape(-1)
            np.add.at(table, (np.repeat(owner, targets.shape[1])[labels >= 0], labels[labels >= 0]), 1)
            shares = table / np.maximum(1, table.sum(axis=1, keepdims=True))
            return float(np.abs(shares - shares.mean(axis=0)).sum(axis=1).mean() / 2)
        values = targets.astype(np.float64)
        sums = np.stack([np.bincount(owner, column, minlength=self.clients) for column in values.T], axis=1)
        means = sums / np.maximum(1, self.train.counts)[:, None]
        spread = float(((values - values.mean(axis=0)) ** 2).sum())
        return 0.0 if spread == 0 else float(((means[owner] - values.mean(axis=0)) ** 2).sum()) / spread

    def describe(self) -> list[str]:
        """Plain sentences: clients, rows, inputs, classes, how much clients differ."""
        counts = self.train.counts + self.validation.counts + self.test.counts
        rows, least, median, most = counts.sum(), counts.min(), np.median(counts), counts.max()
        train, validate, test = (len(part.targets) for part in (self.train, self.validation, self.test))
        shape = " x ".join(map(str, self.input_shape)) or "1"
        sentences = [
            f"{counted(self.clients, 'client holds', 'clients hold')} {counted(int(rows), 'row')}: at least {least:,}, "
            f"median {median:g}, at most {most:,}.",
            f"{counted(train, 'row trains', 'rows train')}, {counted(validate, 'validates', 'validate')}, "
            f"{counted(test, 'tests', 'test')}.",
            f"Each row has {shape} {'input' if shape == '1' else 'inputs'}.",
        ]
        if self.task.kind == "classification":
            balance = [f"{_shown(name)} {share:.1%}" for name, share in zip(self.task.classes, self.class_balance())]
            shown = ", ".join(balance[:10]) + (f" and {len(balance) - 10} more" if len(balance) > 10 else "")
            sentences.append(f"The target has {len(balance)} classes: {shown}.")
            sentences.append(
                f"On average {self.label_skew():.1%} of a client's rows would need another label to "
                "match the mean client."
            )
        else:
            several = f"The target has {self.task.outputs} columns of numbers."
            sentences.append("The target is one number." if self.task.outputs == 1 else several)
            sentences.append(f"{self.label_skew():.1%} of the target's variance lies between clients.")
        if self.held_out is not None:
            one, several = "further client is held out and never trains", "further clients are held out and never train"
            sentences.append(f"{counted(self.held_out.clients, one, several)}.")
        return sentences


class Owned(NamedTuple):
    """Rows with an owner each, before they are split."""

    inputs: np.ndarray
    targets: np.ndarray
    owner: np.ndarray  # the number of each row's client among `names`
    names: tuple[str, ...]
    task: Task
    groups: np.ndarray | None = None
    weights: np.ndarray | None = None
    kept: np.ndarray | None = None  # the rows' numbers in a source of `total` rows, where some of it was dropped
    total: int | None = None


def assemble(
    cls: type[Federation],
    rows: Owned,
    planned: Plan,
    notes: Sequence[str],
    warnings: Sequence[str],
    preprocessing: Preprocessing | None = None,
) -> Federation:
    """A federation, and within it the held-out one, from rows with an owner and a plan."""
    together = None if rows.groups is None else np.unique(rows.groups, return_inverse=True)[1].reshape(-1)
    numbered = np.arange(len(rows.owner)) if rows.kept is None else rows.kept
    total = len(rows.owner) if rows.total is None else rows.total

    def gather(clients: np.ndarray) -> Federation:
        place = np.full(len(rows.names), -1)
        place[clients] = np.arange(len(clients))
        # -1 for rows of clients that are not gathered now: those held out, or those that train
        position = place[rows.owner]
        *parts, unused = ((planned.parts == part) & (position >= 0) for part in (TRAIN, VALIDATION, TEST, UNUSED))
        found = (_rows_of(rows, position, chosen, len(clients)) for chosen in parts)
        (train, first), (validation, second), (test, third) = found
        names = tuple(rows.names[client] for client in clients)
        check_training_weights(train, names)
        return cls(
            train,
            validation,
            test,
            names,
            rows.task,
            preprocessing=preprocessing,
            groups=None if together is None else (together[first], together[second], together[third]),
            places=Places(
                numbered[first], numbered[second], numbered[third], numbered[unused], position[unused], total
            ),
        )

    training = gather(np.flatnonzero(~planned.held_out))
    return dataclasses.replace(
        training,
        held_out=gather(np.flatnonzero(planned.held_out)) if planned.held_out.any() else None,
        notes=(*notes, *planned.notes),
        warnings=tuple(warnings),
        validation_drawn=planned.drawn,
    )


def _shown(name: str) -> str:
    """A class's name in a sentence: in quotes where one would not see it."""
    return name if name.strip() and name.isprintable() else repr(name)


def take_rows(rows: Rows, chosen: np.ndarray) -> Rows:
    """The chosen rows of every client, without their weights."""
    owner = np.repeat(np.arange(rows.clients), rows.counts)
    return Rows(rows.inputs[chosen], rows.targets[chosen], _offsets(owner[chosen], rows.clients))


def no_rows(like: Rows) -> Rows:
    """Rows of the same shape and clients, without any row."""
    nothing = take_weights(like.weights, np.zeros(0, np.int64))
    return Rows(like.inputs[:0], like.targets[:0], np.zeros(like.clients + 1, np.int64), nothing)


def _rows_of(rows: Owned, owner: np.ndarray, chosen: np.ndarray, clients: int) -> tuple[Rows, np.ndarray]:
    """The chosen rows, client after client as `Rows` needs them, and their numbers."""
    index = np.flatnonzero(chosen)
    # stable: a stream of rows, and a split by time, keep the order they came in
    index = index[np.argsort(owner[index], kind="stable")]
    weights = take_weights(rows.weights, index)
    return Rows(rows.inputs[index], rows.targets[index], _offsets(owner[index], clients), weights), index


def _offsets(owner: np.ndarray, clients: int) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=clients))]).astype(np.int64)


def _from_owned(
    cls: type[Federation],
    inputs: ArrayLike,
    targets: ArrayLike,
    weights: ArrayLike | None,
    owner: np.ndarray,
    names: tuple[str, ...],
    *,
    task: str | None = None,
    classes: Sequence[str] | None = None,
    split: Split = Split(),
    groups: ArrayLike | None = None,
    parts: ArrayLike | None = None,
    held_out: HeldOut = 0,
    seed: int = 0,
    tokens: bool = False,
    dtype: DTypeLike = np.float32,
) -> Federation:
    if split.split_column or split.group_column or split.time_column:
        raise RequestError(
            "Arrays have no columns; give parts= or groups=, one value per row, instead of a column name."
        )
    columns = {"inputs": as_array(inputs, "inputs"), "targets": as_array(targets, "targets"), "clients": owner}
    given = {"groups": groups, "parts": parts, "weights": weights}
    columns |= {key: np.asarray(value) for key, value in given.items() if value is not None}
    check_lengths(columns, owner)

    def whose(row: int) -> str:
        return f"client {names[owner[row]]!r} (row {row})"

    # where numbers are wanted, or a token at each position, rows of zeros and ones may be meant so
    if task != "regression" and not tokens:
        refuse_one_hot(columns["targets"], None if classes is None else len(classes))
    numbers = as_inputs(columns["inputs"], tokens, dtype, whose)
    known, values, notes, doubts = as_targets(columns["targets"], task, classes, dtype, whose)
    together, weighed = columns.get("groups"), columns.get("weights")
    if weighed is not None:
        weighed = as_weights(weighed, whose, owner, names)
        notes = [*notes, *weight_notes(weighed, "The array weights")]
    planned = plan(owner, names, split, seed, held_out, together, columns.get("parts"))
    return assemble(cls, Owned(numbers, values, owner, names, known, together, weighed), planned, notes, doubts)
