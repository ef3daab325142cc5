# SPDX-License-Identifier: Apache-2.0
"""Images for section 6 of Unified 2023: clients with K labels each, softmax regression, beta_m scored.

Pixels get mean 0 and deviation 1 (of the whole set), then every row norm 1, as in the released code; the paper's text
standardises column by column. The K labels of a client are distinct (the code draws them with replacement, so that its
clients hold fewer, E002-12 ix). Its rows are drawn from all rows with those labels: clients may share an image, but
training and test rows come from separate parts of a set.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from idiolect import APFL2, MT2, MX2, ClientLoss, Federation, Linear, Objective, RequestError
from idiolect.core import Rows
from idiolect.core.checks import nearest
from idiolect.core.tree import Params
from idiolect.data import Task
from idiolect.data.draws import generator
from idiolect.data.federation import no_rows
from idiolect.data.partition import labels_per_client
from papers import unified
from papers.images import image_arrays, image_file
from papers.lanes import Curves, Standing
from papers.reproduction import Spec

CLASSES = 10  # digits, characters or garments
BATCH = 64  # rows of a batch in the released code's evaluation
PRECISION = "float32"  # stochastic gradients of one row: float64 would change nothing but the time
TITLES = {"mt2": "MT2", "mx2": "MX2", "apfl2": "APFL2", "mnist": "MNIST", "kmnist": "KMNIST", "fashion_mnist": "FMNIST"}


class Images(NamedTuple):
    """One data set, flat and of unit norm, in the two parts that training and test rows are drawn from."""

    inputs: np.ndarray  # (rows, pixels)
    labels: np.ndarray
    test_inputs: np.ndarray
    test_labels: np.ndarray


class Dealt(NamedTuple):
    """Clients with training rows, and the rows that score them, of the same clients."""

    federation: Federation  # training rows only: what engines score in passing would cost and not be read
    test: Rows


def read_images(name: str, seed: int) -> Images:
    """The named set from the data folder. One that comes in one part is cut into two halves at random."""
    inputs, labels, test_inputs, test_labels = image_arrays(name)
    mean, deviation = float(inputs.mean(dtype=np.float64)), float(inputs.std(dtype=np.float64))
    if len(test_labels) == 0:
        order = generator(seed, "halves of a data set").permutation(len(labels))
        first, second = order[: len(order) // 2], order[len(order) // 2 :]
        inputs, labels, test_inputs, test_labels = inputs[first], labels[first], inputs[second], labels[second]
    return Images(unit_rows(inputs, mean, deviation), labels, unit_rows(test_inputs, mean, deviation), test_labels)


def unit_rows(inputs: np.ndarray, mean: float, deviation: float) -> np.ndarray:
    """Rows flattened, standardised by one mean and deviation, and scaled to norm 1."""
    flat = (inputs.reshape(len(inputs), -1) - np.float32(mean)) / np.float32(deviation)
    return flat / np.linalg.norm(flat, axis=1, keepdims=True)


def deal_images(images: Images, *, clients: int, labels: int, train_rows: int, test_rows: int, seed: int) -> Dealt:
    """Every client `labels` distinct labels, and of rows with them `train_rows` to train on and `test_rows` to score.

    Who holds which labels is `labels_per_client`'s draw; every label is held by somebody.
    """
    dealt = labels_per_client(images.labels, clients, labels, seed)
    held = [np.unique(images.labels[dealt.assignment == client]) for client in range(clients)]
    train = _draw(images.inputs, images.labels, held, train_rows, seed, "training rows")
    test = _draw(images.test_inputs, images.test_labels, held, test_rows, seed, "test rows")
    return _as_dealt(train, test)


def deal_as_released(
    inputs: np.ndarray, labels_of: np.ndarray, *, clients: int, labels: int, train_rows: int, test_rows: int, seed: int
) -> Dealt:
    """Training images dealt out exactly as by the released code; of MNIST only are its images at hand in full.

    A client's K labels are drawn with replacement, and its rows are the first of the set that have them: fewer labels,
    and clients that share most images. Only there can published numbers be compared digit by digit.
    """
    draws, train, test = np.random.RandomState(seed), [], []
    for _ in range(clients):
        known = np.flatnonzero(np.isin(labels_of, draws.choice(CLASSES, size=labels)))
        train.append(known[:train_rows])
        test.append(known[train_rows : train_rows + test_rows])
    parts = []
    for index in (train, test):
        every = np.concatenate(index)
        offsets = np.cumsum([0, *(len(own) for own in index)]).astype(np.int64)
        rows = unit_rows(inputs[every], 0.1307, 0.3081)  # mean and deviation as written there
        parts.append(Rows(rows, labels_of[every].astype(np.int32), offsets))
    return _as_dealt(*parts)


def _as_dealt(train: Rows, test: Rows) -> Dealt:
    names = tuple(str(client) for client in range(train.clients))
    task = Task.classification(tuple(str(label) for label in range(CLASSES)))
    return Dealt(Federation(train, no_rows(train), no_rows(train), names, task), test)


def _draw(
    inputs: np.ndarray, labels: np.ndarray, held: Sequence[np.ndarray], rows: int, seed: int, purpose: str
) -> Rows:
    index = []
    for client, own in enumerate(held):
        known = np.flatnonzero(np.isin(labels, own))
        if len(known) < rows:
            raise RequestError(
                f"{rows} {purpose} per client were asked for, but only {len(known)} rows have the labels of client "
                f"{client}; ask for fewer rows or more labels per client."
            )
        index.append(generator(seed, purpose, client).choice(known, rows, replace=False))
    chosen = np.concatenate(index)
    offsets = rows * np.arange(len(held) + 1, dtype=np.int64)
    return Rows(inputs[chosen], labels[chosen].astype(np.int32), offsets)


def check(spec: Spec) -> None:
    """RequestError unless every data set is here, before a folder is begun."""
    for name in spec["data_sets"]:
        image_file(name)


def dealer(spec: Spec) -> Callable[[str, int], Dealt]:
    """What deals a data set out by its name and K; every set is read once.

    Those of `as_released` are dealt as by the released code, with whose figures they can be compared digit by digit.
    """
    sizes = {key: spec[key] for key in ("clients", "train_rows", "test_rows")}
    released = {name: image_arrays(name)[:2] for name in spec["data_sets"] if name in spec["as_released"]}
    others = {name: read_images(name, spec["data_seed"]) for name in spec["data_sets"] if name not in released}

    def deal(name: str, labels: int) -> Dealt:
        if name in released:
            return deal_as_released(*released[name], labels=labels, seed=spec["released_seed"], **sizes)
        return deal_images(others[name], labels=labels, seed=spec["data_seed"], **sizes)

    return deal


def image_loss(dealt: Dealt) -> ClientLoss:
    """f'_m: softmax regression with a bias; with unit rows the bound Lc' = 1 is attained: (1/2)(|x|^2 + 1)."""
    return ClientLoss(model=Linear(dealt.federation.input_shape[0], dealt.federation.task.outputs))


def image_objective(name: str, labels: int, dealt: Dealt, spec: Spec, *, rescale: bool = True) -> Objective:
    """MT2 and MX2 with lam = 1/K, MT2 and APFL2 with Lam as given, APFL2 with a_m = `mixing_per_label` K."""
    loss = image_loss(dealt)
    if name == "mt2":
        return MT2(loss, penalty=1 / labels, relaxation=spec["relaxation"], rescale=rescale)
    if name == "mx2":
        return MX2(loss, penalty=1 / labels, rescale=rescale)
    if name == "apfl2":
        return APFL2(loss, relaxation=spec["relaxation"], mixing=spec["mixing_per_label"] * labels, rescale=rescale)
    raise RequestError(f"There is no objective {name!r} in the paper's section 6.{nearest(name, TITLES)}")


def set_up(objective: Objective, dealt: Dealt, spec: Spec) -> unified.Setup:
    """The table's constants with the paper's Lc' and mu'."""
    return unified.set_up(objective, dealt.federation, spec["strong_convexity"], spec["component_smoothness"])


def train(name: str, setup: unified.Setup, dealt: Dealt, spec: Spec, **given: Any) -> Curves:
    """All seeds of the named solver; columns "loss" (F) and "accuracy" (of beta_m alone on the test rows)."""
    algorithm = unified.solver(name, setup, **given)
    return unified.run(
        algorithm,
        setup,
        rounds=spec["rounds"],
        record_every=spec["record_every"],
        seeds=range(spec["seeds"]),
        precision=PRECISION,
        extra=_both(accuracy_of_personal(setup.objective, dealt.test), published_loss(setup)),
    )


def train_ascd(setup: unified.Setup, dealt: Dealt, spec: Spec, **given: Any) -> Curves:
    """ASCD-PFL with the mu of the figures: for APFL2 that of lemma 3, twice the right one (E002-7)."""
    mixing = getattr(setup.objective, "mixing", None)
    if mixing is not None:
        given["strong_convexity"] = float(spec["strong_convexity"] * (1 - mixing) ** 2 / setup.clients)
    return train("ascd_pfl", setup, dealt, spec, unsampled=spec["unsampled"], **given)


def _both(first: unified.Extra, second: unified.Extra) -> unified.Extra:
    return lambda where: first(where) | second(where)


def published_loss(setup: unified.Setup) -> unified.Extra:
    """F as the released code records it: the mean over batches of 64 rows of their means.

    The last batch of 100 rows has 36, which weigh more than the others: up to 3 % of F where most rows are known.
    """
    rows = setup.federation.train
    edges = [*range(0, int(rows.counts.max()), BATCH), int(rows.counts.max())]
    parts = [_columns(rows, first, last) for first, last in itertools.pairwise(edges)]
    values = [unified.value_of(setup.objective, part, PRECISION) for part in parts]
    return lambda where: {"published_loss": float(np.mean([value(where) for value in values]))}


def _columns(rows: Rows, first: int, last: int) -> Rows:
    """Every client's rows from `first` up to `last`; all clients have as many."""
    chosen = np.concatenate([np.arange(start + first, start + last) for start in rows.offsets[:-1]])
    offsets = (last - first) * np.arange(rows.clients + 1, dtype=np.int64)
    return Rows(rows.inputs[chosen], rows.targets[chosen], offsets)


def accuracy_of_personal(objective: Any, test: Rows) -> Callable[[Standing], dict[str, float]]:
    """Fraction of right answers of beta_m alone on client m's test rows, mean over clients: the paper's evaluation."""
    data = test.pad(np.arange(test.clients))  # all clients have as many test rows: nothing is padding
    inputs, targets = jnp.asarray(data.inputs), jnp.asarray(data.targets)
    model = objective.client_loss.model
    return lambda where: {"accuracy": float(_accuracy(model, where.personal, inputs, targets))}


@functools.partial(jax.jit, static_argnums=0)
def _accuracy(model: Linear, personal: Params, inputs: Any, targets: Any) -> Any:
    outputs = jax.vmap(model.apply)(personal, inputs)
    return jnp.mean((jnp.argmax(outputs, axis=-1) == targets).astype(inputs.dtype))


def relative_loss(curves: Curves) -> np.ndarray:
    """F over its start: (seeds, records)."""
    return curves.loss / curves.loss[:, :1]


def published_end(curves: Curves, record: int = -1) -> float:
    """What a published curve shows at a record: F as the released code takes it over its start, mean over seeds."""
    loss = curves.columns["published_loss"]
    return float((loss[:, record] / loss[:, 0]).mean())


def record_at(curves: Curves, rounds: int) -> int:
    """The place of the last record up to that many rounds."""
    return int(np.searchsorted(curves.rounds, rounds, side="right")) - 1
