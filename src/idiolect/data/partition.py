# SPDX-License-Identifier: Apache-2.0
"""Dealing the rows of one data set out to clients: seven seeded ways, each giving every row to one client.

All of them end for any skew and seed: nothing is drawn again until it fits. A client that a draw leaves
short is filled by moving rows from the largest clients, and the notes say so.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import ArrayLike

from idiolect.core.checks import RequestError, nearest
from idiolect.data.draws import generator
from idiolect.record.words import counted


@dataclasses.dataclass(frozen=True)
class Partition:
    """Which client owns each row, and what the partitioner did, one sentence each."""

    assignment: np.ndarray  # (rows,), int64: the owner of each row
    notes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()  # one per client where the clients have names of their own

    @property
    def clients(self) -> int:
        """Number of clients; none is empty."""
        return int(self.assignment.max(initial=-1)) + 1

    @property
    def counts(self) -> np.ndarray:
        """Rows per client."""
        return np.bincount(self.assignment, minlength=self.clients)


def iid(rows: int, clients: int, seed: int) -> Partition:
    """Every client uniformly drawn rows, equally many up to one."""
    _check(rows, clients)
    order = generator(seed, "iid").permutation(rows)
    assignment = np.empty(rows, np.int64)
    assignment[order] = np.arange(rows) % clients
    return Partition(assignment, (f"{rows} rows were dealt out uniformly to {clients} clients.",))


def by_column(values: ArrayLike) -> Partition:
    """One client per distinct value, in sorted order."""
    column = np.asarray(values)
    if column.ndim != 1 or column.size == 0:
        raise RequestError(f"A partition by column needs one value per row, got an array of shape {column.shape}.")
    distinct, assignment = np.unique(column, return_inverse=True)
    note = f"{column.size} rows were grouped by the {len(distinct)} distinct values of a column."
    return Partition(assignment.astype(np.int64), (note,), tuple(str(value) for value in distinct))


def labels_per_client(
    labels: ArrayLike, clients: int, labels_per_client: int | tuple[int, int], seed: int
) -> Partition:
    """Each client holds K labels drawn without replacement; a label's rows are shared equally by its holders.

    `labels_per_client` is K, or (low, high) to draw each client's K uniformly from low..high. A label that
    no client drew replaces, on some client, a label that others hold too, so that no row is lost.
    """
    codes, distinct = _codes(labels)
    _check(codes.size, clients)
    low, high = (labels_per_client,) * 2 if isinstance(labels_per_client, int) else labels_per_client
    if not 1 <= low <= high <= distinct:
        raise RequestError(
            f"labels_per_client must lie between 1 and the {distinct} labels present, got {labels_per_client}."
        )
    if clients * high < distinct:
        raise RequestError(
            f"{clients} clients with at most {high} labels each cannot hold {distinct} labels; "
            "use more clients or more labels per client."
        )
    draws = generator(seed, "labels per client")
    sizes = draws.integers(low, high + 1, clients)
    notes = [
        f"{codes.size} rows with {distinct} labels were dealt out to {clients} clients, {low} to {high} labels each."
    ]
    held, swapped = _draw_holdings(draws, _raise_sizes(sizes, high, distinct), distinct)
    if swapped:
        were = counted(swapped, "label that no client had drawn was", "labels that no client had drawn were")
        notes.append(f"{were} given to clients holding more common ones.")
    assignment = np.empty(codes.size, np.int64)
    for label in range(distinct):
        # in random order, so that the rows left over do not always go to the first clients
        holders = draws.permutation(np.flatnonzero(held[:, label]))
        members = draws.permutation(np.flatnonzero(codes == label))
        assignment[members] = holders[np.arange(members.size) % holders.size]
    notes += _fill_from_own_labels(assignment, clients, held, codes)
    return _filled(assignment, clients, notes)


def label_ratio(labels: ArrayLike, clients: int, seed: int) -> Partition:
    """Two labels; the fraction of the larger label on client i of n is r_i = (i + 1) / n.

    Every row must land, so the sizes follow from the ratios: size_i proportional to exp(t r_i), with t chosen
    so that the positives add up. Where the overall share of positives is under 1 / n no sizes can do that;
    then sizes are equal and r_i is proportional to i + 1.
    """
    codes, distinct = _codes(labels)
    if distinct != 2:
        raise RequestError(f"A label-ratio partition needs exactly 2 labels, got {distinct}; use dirichlet_labels.")
    _check(codes.size, clients)
    ratios = np.arange(1, clients + 1) / clients
    positives, total = int(codes.sum()), codes.size
    share = positives / total
    # the smallest ratio is 1/n: a mean below it cannot be met by sizes, whatever they are
    if clients > 1 and share > ratios[0]:
        sizes = total * _tilted(ratios, share)
        notes = [f"Client i of {clients} holds a fraction (i + 1)/{clients} of positive rows; sizes follow from that."]
    else:
        sizes = np.full(clients, total / clients)
        ratios = ratios * share / ratios.mean()
        notes = [
            f"Only {share:.4g} of the rows are positive, so ratios (i + 1)/{clients} cannot be met; "
            "clients of equal size got ratios proportional to i + 1 instead."
        ]
    draws = generator(seed, "label ratio")
    assignment = np.empty(total, np.int64)
    for label, wanted in ((1, sizes * ratios), (0, sizes * (1 - ratios))):
        members = draws.permutation(np.flatnonzero(codes == label))
        assignment[members] = np.repeat(np.arange(clients), _apportion(wanted, members.size))
    return _filled(assignment, clients, notes)


def feature_clusters(inputs: np.ndarray, clients: int, seed: int) -> Partition:
    """One client per k-means cluster of the inputs."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    points = np.asarray(inputs, np.float64)
    points = points.reshape(len(points), -1)
    _check(len(points), clients)
    start = int(generator(seed, "feature clusters").integers(2**31))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct points than clusters: filled below
        found = KMeans(clients, n_init=3, random_state=start).fit(points)
    assignment = found.labels_.astype(np.int64)
    notes = [f"{len(points)} rows were grouped into {clients} clusters of similar inputs by k-means."]
    return _filled(assignment, clients, notes)


def dirichlet_labels(labels: ArrayLike, clients: int, concentration: float, seed: int, at_least: int = 1) -> Partition:
    """Each label's rows are shared out by proportions drawn from a symmetric Dirichlet distribution.

    Small concentrations give most rows of a label to few clients; large ones give all clients the same mixture.
    """
    codes, distinct = _codes(labels)
    _check(codes.size, clients, at_least, concentration)
    draws = generator(seed, "dirichlet labels")
    assignment = np.empty(codes.size, np.int64)
    for label in range(distinct):
        members = draws.permutation(np.flatnonzero(codes == label))
        shares = _dirichlet(draws, clients, concentration)
        assignment[members] = np.repeat(np.arange(clients), _apportion(shares * members.size, members.size))
    notes = [
        f"The rows of each of {distinct} labels were shared out to {clients} clients "
        f"by Dirichlet({concentration:g}) proportions."
    ]
    return _filled(assignment, clients, notes, at_least)


def dirichlet_mixtures(labels: ArrayLike, clients: int, concentration: float, seed: int) -> Partition:
    """Each client draws its own mixture of labels from a symmetric Dirichlet distribution; all have as many rows.

    Clients fill up one after another (Hsu, Qi and Brown 2019): a label without rows left drops out of the mixtures of
    those who come later. Sizes differ by one row where clients do not divide the rows.
    """
    codes, distinct = _codes(labels)
    _check(codes.size, clients, concentration=concentration)
    draws = generator(seed, "dirichlet mixtures")
    pools = [list(draws.permutation(np.flatnonzero(codes == label))) for label in range(distinct)]
    assignment = np.empty(codes.size, np.int64)
    for client in range(clients):
        mixture = _dirichlet(draws, distinct, concentration)
        for _ in range(codes.size // clients + (client < codes.size % clients)):
            # a label that has run out drops out of the mixture, whose rest is scaled up
            left = np.array([len(pool) > 0 for pool in pools])
            shares = np.where(left, mixture, 0.0)
            shares = shares / shares.sum() if shares.sum() > 0 else left / left.sum()
            assignment[pools[draws.choice(distinct, p=shares)].pop()] = client
    note = (
        f"{codes.size} rows were dealt out evenly to {clients} clients by Dirichlet({concentration:g}) mixtures "
        f"of {distinct} labels."
    )
    return Partition(assignment, (note,))


def dirichlet_quantity(rows: int, clients: int, concentration: float, seed: int, at_least: int = 1) -> Partition:
    """Client sizes follow proportions from a symmetric Dirichlet distribution; rows are drawn uniformly."""
    _check(rows, clients, at_least, concentration)
    draws = generator(seed, "dirichlet quantity")
    shares = _dirichlet(draws, clients, concentration)
    assignment = np.empty(rows, np.int64)
    assignment[draws.permutation(rows)] = np.repeat(np.arange(clients), _apportion(shares * rows, rows))
    notes = [f"{rows} rows were dealt out to {clients} clients with Dirichlet({concentration:g}) sizes."]
    return _filled(assignment, clients, notes, at_least)


PARTITIONERS: dict[str, Callable[..., Partition]] = {
    "iid": iid,
    "by_column": by_column,
    "labels_per_client": labels_per_client,
    "label_ratio": label_ratio,
    "feature_clusters": feature_clusters,
    "dirichlet_labels": dirichlet_labels,
    "dirichlet_mixtures": dirichlet_mixtures,
    "dirichlet_quantity": dirichlet_quantity,
}


def deal(
    name: str, inputs: np.ndarray, labels: np.ndarray, clients: int, seed: int, options: Mapping[str, object]
) -> Partition:
    """Deal the rows of arrays out by the named partitioner, which gets what it looks at: rows, labels or inputs."""
    known = [one for one in PARTITIONERS if one != "by_column"]  # arrays have no columns
    if name not in known:
        raise RequestError(f"There is no partition {name!r} for arrays.{nearest(name, known)}")
    looks_at = {"iid": len(labels), "dirichlet_quantity": len(labels), "feature_clusters": inputs}
    return PARTITIONERS[name](looks_at.get(name, labels), clients, seed=seed, **options)


def _codes(labels: ArrayLike) -> tuple[np.ndarray, int]:
    """Labels as 0..k-1 in sorted order, and k."""
    column = np.asarray(labels)
    if column.ndim != 1:
        raise RequestError(f"Labels must be one per row, got an array of shape {column.shape}.")
    distinct, codes = np.unique(column, return_inverse=True)
    return codes.astype(np.int64), len(distinct)


def _check(rows: int, clients: int, at_least: int = 1, concentration: float = 1.0) -> None:
    if clients < 1:
        raise RequestError(f"The number of clients must be at least 1, got {clients}.")
    if at_least < 1:
        raise RequestError(f"at_least must be at least 1, because a client without rows cannot train, got {at_least}.")
    if rows < clients * at_least:
        raise RequestError(
            f"{rows} rows cannot give {clients} clients at least {at_least} each; use fewer clients or more rows."
        )
    if not (np.isfinite(concentration) and concentration > 0):
        raise RequestError(
            f"A Dirichlet concentration must be above 0 and finite, got {concentration:g}; use iid for equal sizes."
        )


def _dirichlet(draws: np.random.Generator, clients: int, concentration: float) -> np.ndarray:
    """Proportions that sum to 1; where gamma draws vanish (tiny concentration) their limit: one has all."""
    winner = int(draws.integers(clients))  # drawn in any case, so that later draws do not depend on it
    with np.errstate(all="ignore"):
        shares = draws.dirichlet(np.full(clients, float(concentration)))
    if np.isfinite(shares).all() and shares.sum() > 0:
        return shares / shares.sum()
    return np.eye(clients)[winner]


def _apportion(wanted: np.ndarray, total: int) -> np.ndarray:
    """Whole numbers that sum to `total`, within one of `wanted` (largest remainders; ties to the first)."""
    whole = np.floor(wanted).astype(np.int64)
    missing = total - int(whole.sum())
    if missing < 0:  # rounding put an exact whole number just above itself
        whole[np.argmax(whole)] += missing
    elif missing > 0:
        first = np.argsort(-(wanted - whole), kind="stable")
        whole += np.bincount(first[np.arange(missing) % len(first)], minlength=len(first))
    return whole


def _tilted(ratios: np.ndarray, mean: float) -> np.ndarray:
    """Weights proportional to exp(t r) whose mean of r is `mean`, found by bisection on t."""
    low, high = -1e5, 1e5
    for _ in range(200):
        middle = (low + high) / 2
        # less the largest exponent: exp(1e5) has no value
        weights = np.exp(middle * ratios - np.max(middle * ratios))
        weights /= weights.sum()
        low, high = (middle, high) if weights @ ratios < mean else (low, middle)
    return weights


def _raise_sizes(sizes: np.ndarray, high: int, labels: int) -> np.ndarray:
    """Sizes as drawn, raised in client order where together they could not hold every label."""
    room = high - sizes
    short = labels - sizes.sum() - (np.cumsum(room) - room)  # what the clients before leave lacking
    return sizes + np.clip(short, 0, room)


def _draw_holdings(draws: np.random.Generator, sizes: np.ndarray, labels: int) -> tuple[np.ndarray, int]:
    """(clients, labels) booleans, `sizes` per row, no column empty; and how many labels were swapped in."""
    held = np.zeros((len(sizes), labels), bool)
    for client, size in enumerate(sizes):
        held[client, draws.choice(labels, size, replace=False)] = True
    orphans = np.flatnonzero(~held.any(axis=0))
    for label in orphans:
        common = int(np.argmax(held.sum(axis=0)))  # held at least twice: there are no fewer places than labels
        client = int(np.flatnonzero(held[:, common])[0])
        held[client, common], held[client, label] = False, True
    return held, len(orphans)


def _fill_from_own_labels(assignment: np.ndarray, clients: int, held: np.ndarray, codes: np.ndarray) -> list[str]:
    """Give a client without rows one row of a label it holds, where some larger client can spare it."""
    counts = np.bincount(assignment, minlength=clients)
    filled = 0
    for client in np.flatnonzero(counts == 0):
        spare = np.flatnonzero(held[client][codes] & (counts[assignment] > 1))
        if spare.size:
            row = spare[np.argmax(counts[assignment[spare]])]
            counts[assignment[row]] -= 1
            counts[client] += 1
            assignment[row] = client
            filled += 1
    one, several = "client without rows", "clients without rows"
    return [f"{counted(filled, one, several)} got one of a label they hold from a larger client."] if filled else []


def _filled(assignment: np.ndarray, clients: int, notes: list[str], at_least: int = 1) -> Partition:
    """The partition after rows were moved, in place, from the largest clients to those with fewer than `at_least`."""
    counts = np.bincount(assignment, minlength=clients)
    short = np.flatnonzero(counts < at_least)
    if short.size == 0:
        return Partition(assignment, tuple(notes))
    # rows by client; each client gives its last ones first
    order, ends = np.argsort(assignment, kind="stable"), np.cumsum(counts)
    moves = np.repeat(short, at_least - counts[short])
    for client in moves:
        donor = int(counts.argmax())  # has more than `at_least`: there are rows enough for all
        counts[donor] -= 1
        ends[donor] -= 1
        assignment[order[ends[donor]]] = client
    moved = (
        f"{counted(len(moves), 'row was', 'rows were')} moved from the largest clients so that "
        f"{counted(short.size, 'other holds', 'others hold')} at least {at_least}."
    )
    return Partition(assignment, (*notes, moved))
