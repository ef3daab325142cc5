# SPDX-License-Identifier: Apache-2.0
"""`[collaboration]`: who listens to whom, from a spec to the settings of the algorithms that ask for it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from idiolect.collaborate import distances, neighbourhoods
from idiolect.collaborate.blocks import learn_in_blocks
from idiolect.collaborate.exchange import Exchange
from idiolect.collaborate.quadratic import fold_rows, make_sample
from idiolect.collaborate.shadows import LEAST_ROWS, refuse_few_rows
from idiolect.collaborate.threads import one_thread
from idiolect.core import mixing
from idiolect.core.algorithm import Algorithm
from idiolect.core.checks import RequestError
from idiolect.core.kinds import Listens
from idiolect.core.mixing import Discrepancies, Neighbours
from idiolect.data.federation import Federation, take_rows
from idiolect.experiments.spec import CollaborationSpec
from idiolect.record.words import counted
from idiolect.theory import all_for_all
from idiolect.theory.constants import Constants
from idiolect.theory.convex import ConvexLoss


class Collaboration(NamedTuple):
    """What a source found; None where it says nothing."""

    sentence: str
    neighbours: Neighbours | None = None  # Lambda
    discrepancies: Discrepancies | None = None  # b
    own_share: float | None = None  # of a mixture, which needs no lists
    accuracy: float | None = None  # eps: the pairs within eps/2 listen to each other
    exchange: Exchange | None = None  # what finding out has cost


def find_collaboration(spec: CollaborationSpec, federation: Federation) -> Collaboration | None:
    """What `[collaboration]` says of these clients; None where it is not in the spec."""
    if spec.source is None:
        return None
    found = {"file": _from_file, "models": _from_models, "data": _from_data}.get(spec.source)
    if found is not None:
        return found(spec, federation)
    known = {"identity": (1.0, "all clients train alone"), "uniform": (0.0, "all clients learn from all alike")}
    mixed = f"each client learns from itself by {spec.own_share:g} and from all alike by the rest"
    share, sentence = known.get(spec.source, (spec.own_share, mixed))
    return Collaboration(sentence, own_share=share)


def plain_loss(federation: Federation) -> ConvexLoss:
    """Least squares, logistic or softmax regression, whichever the task asks for, on all features."""
    if federation.task.kind == "counts":
        raise RequestError(
            "Exact fits are for classes and numbers, got the task counts; use --task regression (data.task in a spec), "
            "or train counts with methods that need none: `compare` leaves the others out."
        )
    features, classes = int(np.prod(federation.input_shape)), len(federation.task.classes)
    numbers = "squared", 0 if federation.train.targets.ndim == 1 else federation.task.outputs
    known = {0: numbers, 2: ("logistic", 0)}  # by the number of classes
    criterion, width = known.get(classes, ("cross_entropy", classes))
    return ConvexLoss(criterion, features, width, bias=True, diagonal=False, l2=0.0)


def _from_models(_: CollaborationSpec, federation: Federation) -> Collaboration:
    """Weights from cross-fitted linear models on training rows; clients without a row have nothing to be judged by."""
    _check_numeric(federation, "models")
    rows, told = federation.train, ""
    if rows.weights is not None:
        rows, told = take_rows(rows, rows.weights > 0), " in which every row of positive weight counts alike"
    loss = plain_loss(federation)
    least = fold_rows(loss)
    sample = make_sample(loss, rows, least=least)
    heard = sample.heard(least)
    silent = int((heard.counts == 0).sum())
    if silent == federation.clients:
        raise RequestError(
            f'[collaboration] source = "models" sends sums over at least {least} rows, and the largest client has '
            f'{sample.counts.max(initial=0)} training rows; use source = "mixture" or "file".'
        )
    told += f"; {counted(silent, 'client')} of fewer than {least} rows sent nothing" if silent else ""
    with one_thread():
        learned = learn_in_blocks(heard, PENALTY)
    listener = np.repeat(np.arange(federation.clients), [len(others) for others in learned.members])
    pairs = (listener, np.concatenate(learned.members), np.concatenate(learned.shares))
    found = mixing.from_pairs(federation.clients, *pairs)
    sentence = f"learnt from models{told}; {neighbourhoods.describe(found)}"
    return Collaboration(sentence, found, exchange=learned.exchange)


def _from_data(spec: CollaborationSpec, federation: Federation) -> Collaboration:
    """Neighbourhoods within `accuracy` by distances of the training rows, diameter 1."""
    _check_numeric(federation, "data")
    if federation.train.weights is not None:
        raise RequestError(
            '[collaboration] source = "data" compares rows that count alike, and these have weights; leave out '
            'data.weight_column, or use source = "models".'
        )
    if spec.accuracy is None:
        raise RequestError('[collaboration] source = "data" needs accuracy: pairs within half of it are close; set it.')
    features = int(np.prod(federation.input_shape))
    classes = federation.task.kind == "classification"
    least = LEAST_ROWS if classes else distances.least_rows_of_moments(features)
    refuse_few_rows(federation.train.counts, least, federation.names)
    if not classes:
        measured = distances.moment_differences(federation.train, diameter=1.0)
    elif len(federation.task.classes) == 2:
        measured = distances.wasserstein_distances(federation.train, diameter=1.0)
    else:
        raise RequestError(
            f'[collaboration] source = "data" compares numbers or two classes, got {len(federation.task.classes)} '
            'classes; use source = "models".'
        )
    given = neighbourhoods.neighbourhoods(measured.upper, spec.accuracy)
    sentence = f"by distances of rows, within {spec.accuracy:g}/2 {neighbourhoods.describe(given)}"
    b = neighbourhoods.discrepancies(measured.upper, largest=spec.accuracy)
    return Collaboration(sentence, given, b, None, spec.accuracy, measured.exchange)


def _check_numeric(federation: Federation, source: str) -> None:
    if federation.train.inputs.dtype.kind != "f" or federation.train.counts.min() == 0:
        what = "a client without training rows" if federation.train.counts.min() == 0 else "tokens"
        raise RequestError(
            f'[collaboration] source = "{source}" compares clients by their training rows of numbers, got {what}; '
            'use source = "file".'
        )


def _from_file(spec: CollaborationSpec, federation: Federation) -> Collaboration:
    """A matrix of discrepancies where an accuracy is given, of weights otherwise."""
    matrix, clients = read_matrix(spec.path), federation.clients
    if matrix.shape != (clients, clients):
        raise RequestError(
            f"collaboration.path must hold a row and a column for each of the {clients} clients, in their order, got "
            f"shape {matrix.shape}."
        )
    if spec.accuracy is None:
        given = mixing.from_dense(matrix)
        return Collaboration(neighbourhoods.describe(given), given)
    differences = neighbourhoods.check_discrepancy(matrix, spec.asymmetric)
    given = neighbourhoods.neighbourhoods(differences, spec.accuracy, asymmetric="keep")
    sentence = f"within {spec.accuracy:g}/2 {neighbourhoods.describe(given)}"
    b = neighbourhoods.discrepancies(differences, asymmetric="keep", largest=spec.accuracy)
    return Collaboration(sentence, given, b, accuracy=spec.accuracy)


def read_matrix(path: str | None) -> np.ndarray:
    """A square table of numbers, from a .npy file or from lines with commas."""
    if path is None:
        raise RequestError('[collaboration] source = "file" needs path, a .npy or .csv file; set it.')
    try:
        if Path(path).suffix == ".npy":
            return np.asarray(np.load(path, allow_pickle=False), float)
        return np.loadtxt(path, delimiter=",", ndmin=2)
    except FileNotFoundError:
        raise RequestError(f"There is no file {path} for collaboration.path; write one row per client.") from None
    except (ValueError, OSError) as error:
        raise RequestError(f"collaboration.path {path} must hold a matrix of numbers: {error}.") from None


def join(
    algorithm: Algorithm, found: Collaboration | None, constants: Constants | None, where: str
) -> tuple[Algorithm, list[str]]:
    """The algorithm with neighbours, discrepancies and phases filled in where it asks for them; and how."""
    if not isinstance(algorithm, Listens):
        return algorithm, []
    if "discrepancies" in {field.name for field in dataclasses.fields(algorithm)}:
        return _adaptive(algorithm, found, constants, where)
    if found is None:
        share = float(algorithm.own_share)  # type: ignore[attr-defined]
        told = f"No [collaboration] is given: each client learns from itself by {share:g}, from all by the rest."
        return algorithm, [told]
    given: dict[str, Any] = {"neighbours": found.neighbours, "own_share": found.own_share}
    if getattr(algorithm, "target_accuracy", 0) is None:
        given["target_accuracy"] = found.accuracy
    changed = {name: value for name, value in given.items() if value is not None}
    told = f"Collaboration: {found.sentence}."
    if found.exchange is not None:
        sent = f"{found.exchange.upload_bytes:,} bytes up and {found.exchange.download_bytes:,} down"
        told += f" Finding out sends {sent}, billed before the first round."
    return dataclasses.replace(algorithm, **changed), [told]


def _adaptive(
    algorithm: Any, found: Collaboration | None, constants: Constants | None, where: str
) -> tuple[Algorithm, list[str]]:
    """Discrepancies and the phases that theory makes of them."""
    if found is None or found.discrepancies is None or found.accuracy is None:
        raise RequestError(
            f'[{where}] needs discrepancies and the accuracy to begin with; give [collaboration] source = "file" '
            "with path and accuracy."
        )
    noise = None
    if constants is not None and constants.strong_convexity > 0 and constants.rows is not None:
        noise = all_for_all.largest_noise(algorithm.objective, constants.rows, algorithm.batch_size)
    if constants is None or noise is None:
        raise RequestError(
            f"[{where}] leaves its phases to theory, which needs strongly convex losses and their noise; set model.l2, "
            "or use all_for_all with one accuracy."
        )
    phases = all_for_all.doubling(
        found.discrepancies,
        _HORIZON,
        first_accuracy=found.accuracy,
        smoothness=constants.smoothness,
        strong_convexity=constants.strong_convexity,
        noise=noise,
    )
    ready = dataclasses.replace(algorithm, discrepancies=found.discrepancies, phases=phases)
    steps = phases.step_size
    note = (
        f"Collaboration: at first {found.sentence}. {len(steps)} phases, the accuracy halved in each, step sizes "
        f"{steps[0]:.3g} to {steps[-1]:.3g} = min(1/(2 L rho(W)), mu N eps/(4 L sigma^2 sum 1/N_i)), All-for-all 2022, "
        f"corrected; the first ends after {phases.end[0]} rounds."
    )
    return ready, [note]


PENALTY = 1.0  # of the quick models, in rows: what keeps clients with fewer rows than features from being certain
_HORIZON = 1_000_000  # rounds that phases are made for; they double, so a few more cost nothing
