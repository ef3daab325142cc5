# SPDX-License-Identifier: Apache-2.0
"""Smoothness and strong convexity: mu_m <= Hessian of f'_m <= L_m everywhere, and F's own by block."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from idiolect.core.addressing import PerClient
from idiolect.core.data import Rows
from idiolect.core.objective import Objective
from idiolect.objectives import (
    APFL2,
    FLIX,
    MT2,
    MX2,
    WS2,
    Additive,
    ClientLoss,
    GlobalModel,
    LocalOnly,
    RescaledObjective,
    Residual,
)
from idiolect.theory.columns import residual_columns, split_columns
from idiolect.theory.convex import ConvexLoss, convex_loss

OverClients = Callable[[Callable[[int], Sequence[float]], int], np.ndarray]  # see `one_by_one`


@dataclasses.dataclass(frozen=True)
class Constants:
    """Curvature of the clients' plain losses f'_m: one entry per client; properties give the worst of all."""

    client_smoothness: np.ndarray  # (M,) L_m
    client_strong_convexity: np.ndarray  # (M,) mu_m
    client_component_smoothness: np.ndarray  # (M,) largest smoothness of a single row's loss (Lc')
    exact: bool  # whether L_m and mu_m are attained; otherwise they are bounds on the safe side
    source: str  # where the numbers come from, in one sentence
    loss: ConvexLoss | None = None  # f'_m in matrix form
    of_columns: Callable[[np.ndarray], Constants] | None = None  # the same for some of the design's columns
    rows: Rows | None = None  # what they were measured on
    over: OverClients | None = None  # how a function of every client's rows is computed

    @property
    def clients(self) -> int:
        """M."""
        return len(self.client_smoothness)

    @property
    def smoothness(self) -> float:
        """L = max_m L_m."""
        return float(self.client_smoothness.max())

    @property
    def strong_convexity(self) -> float:
        """mu = min_m mu_m."""
        return float(self.client_strong_convexity.min())

    @property
    def component_smoothness(self) -> float:
        """Lc' = the largest smoothness of a single row's loss."""
        return float(self.client_component_smoothness.max())

    @property
    def condition_number(self) -> float:
        """kappa = L / mu; infinite without strong convexity."""
        return self.smoothness / self.strong_convexity if self.strong_convexity > 0 else np.inf

    @functools.cached_property
    def client_rank(self) -> np.ndarray:
        """(M,) dimensions of the model that a client's rows determine, as far as double precision tells."""
        assert self.loss is not None
        assert self.rows is not None
        assert self.over is not None
        loss, rows = self.loss, self.rows
        return self.over(lambda client: [_rank(loss, weighted_design(loss, rows, client))], rows.clients)[:, 0]

    def assuming(self, strong_convexity: float) -> Constants:
        """The same with mu' given, where a run relies on the curvature near its optimum and not everywhere."""
        given = np.full(self.clients, float(strong_convexity))
        source = f"{self.source}; mu' = {strong_convexity:.3g} is given, not proven"
        return dataclasses.replace(self, client_strong_convexity=given, exact=False, source=source)

    def batch_smoothness(self, batch_size: int) -> float:
        """Expected smoothness of a batch's gradient: L + (Lc' - L)/b, worst client; 0 rows means all of them.

        E |g(v) - g(v*)|^2 <= 2 L_b (f(v) - f*) for b rows drawn with replacement; without, it is no larger.
        """
        return float(self.client_batch_smoothness(batch_size).max())

    def client_batch_smoothness(self, batch_size: int) -> np.ndarray:
        """(M,) the same of each client."""
        if batch_size == 0:
            return self.client_smoothness
        # a row's loss is curved at least as much as the mean; below 0 this could only be rounding
        excess = np.maximum(self.client_component_smoothness - self.client_smoothness, 0.0)
        return self.client_smoothness + excess / batch_size


# Largest second derivative of a row's loss by its outputs: 1, s(1-s) <= 1/4, |diag(p) - p p'| <= 1/2.
_OUTPUT_CURVATURE = {"squared": 1.0, "logistic": 0.25, "cross_entropy": 0.5}
_SOURCES = {
    "squared": "exact: eigenvalues of X'X/n, plus l2",
    "logistic": "exact: L = lambda_max(X'X)/(4n) + l2, attained at zero; mu = l2, the infimum",
    "cross_entropy": "upper bound: L <= lambda_max(X'X)/(2n) + l2; mu = l2, the infimum",
}


def one_by_one(function: Callable[[int], Sequence[float]], clients: int) -> np.ndarray:
    """(clients, k) what the function of a client's number returns."""
    # one client at a time: designs of all at once need not fit into memory
    return np.array([function(client) for client in range(clients)], float).reshape(clients, -1)


def client_constants(objective: Objective | ClientLoss, rows: Rows, over: OverClients = one_by_one) -> Constants | None:
    """Constants of every client's f'_m on its own rows; None for a model without known constants."""
    loss = convex_loss(objective)
    if loss is None:
        return None

    def of_columns(columns: Any) -> Constants:
        def of_client(client: int) -> tuple[float, float, float]:
            return _one_client(loss, weighted_design(loss, rows, client)[:, columns])

        smoothness, strong_convexity, component = over(of_client, rows.clients).T + loss.l2
        exact = loss.criterion != "cross_entropy"
        return Constants(smoothness, strong_convexity, component, exact, _SOURCES[loss.criterion], loss)

    return dataclasses.replace(of_columns(slice(None)), of_columns=of_columns, rows=rows, over=over)


def weighted_design(loss: ConvexLoss, rows: Rows, client: int) -> np.ndarray:
    """One client's design with every row times the root of its weight: X'X/n is then that of the weighted loss."""
    design, weights = loss.design(rows.of(client)[0]), rows.weights_of(client)
    return design if weights is None else np.sqrt(weights)[:, None] * design


def _rank(loss: ConvexLoss, design: np.ndarray) -> int:
    if loss.diagonal:
        return int((design**2).any(axis=0).sum())
    return int(np.linalg.matrix_rank(design)) if len(design) else 0


def _one_client(loss: ConvexLoss, design: np.ndarray) -> tuple[float, float, float]:
    """(L, mu, Lc') of one client before l2."""
    if len(design) == 0:
        return 0.0, 0.0, 0.0
    least, largest = _spectrum(design, loss.diagonal)
    row = (design**2).max(axis=1) if loss.diagonal else (design**2).sum(axis=1)
    curvature = _OUTPUT_CURVATURE[loss.criterion]
    # far from zero a logistic or softmax loss is as good as linear, so only l2 curves it everywhere
    return curvature * largest, least if loss.criterion == "squared" else 0.0, curvature * float(row.max())


def _spectrum(design: np.ndarray, diagonal: bool) -> tuple[float, float]:
    """Smallest and largest eigenvalue of X'X/n."""
    rows, columns = design.shape
    if diagonal:
        second_moments = (design**2).mean(axis=0)
        return float(second_moments.min()), float(second_moments.max())
    wide = columns > rows  # the smaller of X'X and XX' has the same nonzero eigenvalues
    eigenvalues = np.linalg.eigvalsh((design @ design.T if wide else design.T @ design) / rows)
    return 0.0 if wide else max(float(eigenvalues[0]), 0.0), max(float(eigenvalues[-1]), 0.0)


@dataclasses.dataclass(frozen=True)
class BlockConstants:
    """Constants of F(w, beta), Unified 2023, assumption 1: F is L^w-smooth in w and L^beta-smooth in beta.

    The components' are the same of F_i = (1/M) sum_m f_m,i, one row per client.
    """

    strong_convexity: float  # mu of F, jointly
    shared_smoothness: float  # L^w
    personal_smoothness: float  # L^beta; f_m itself is (M L^beta)-smooth in beta_m
    component_shared_smoothness: float  # Lc^w
    component_personal_smoothness: float  # Lc^beta
    source: str


def block_constants(objective: Objective, own: Constants | None) -> BlockConstants | None:
    """mu, L^w and L^beta of F from the constants of f'_m; None where either is not known.

    The table's values (`table_constants`); where the table's mu needs a condition that is broken, the smallest
    eigenvalue of the 2 x 2 matrix that bounds every client's Hessian from below, which always holds.
    """
    table = table_constants(objective, own)
    if table is None or own is None:
        return None
    matrices = _lower_bounds(objective, own)
    if not matrices or (condition(objective, own) is None and table.strong_convexity > 0):
        return table
    least = min(_smallest_eigenvalue(*matrix) for matrix in matrices) / own.clients
    source = f"{table.source}; mu from the 2 x 2 bound, which needs no condition"
    return dataclasses.replace(table, strong_convexity=least, source=source)


def table_constants(objective: Objective, own: Constants | None) -> BlockConstants | None:
    """Table 2 of Unified 2023, corrected (E002-7), whether or not its conditions hold: what a reproduction of it uses.

    Without rescaling the w block is M times as curved and the same mu still holds: |w| is only the shorter for it.
    """
    rule = _TABLE.get(type(objective))
    row = None if rule is None or own is None else rule(objective, own)
    if row is None or own is None:
        return None
    if isinstance(objective, RescaledObjective) and not objective.rescale:
        row = dataclasses.replace(
            row,
            shared_smoothness=own.clients * row.shared_smoothness,
            component_shared_smoothness=own.clients * row.component_shared_smoothness,
            source=f"{row.source}, without rescaling (L^w times M, the same mu as a bound)",
        )
    return dataclasses.replace(row, source=f"{row.source}; {own.source}")


_WAY_OUT = "Raise it, or go on with the smaller mu that holds without it."


def condition(objective: Objective, own: Constants) -> str | None:
    """One sentence where the table's mu does not hold because its condition is broken, None where it does."""
    mu = own.strong_convexity
    if isinstance(objective, MT2):
        lam = float(objective.penalty)
        needed = 1.5 * lam / mu if mu > 0 else np.inf if lam > 0 else 0.0
        if not objective.relaxation >= needed:
            return (
                f"MT2.relaxation must be at least 3 lam/(2 mu') = {needed:.3g} for F to be lam/(2M)-strongly convex "
                f"(Unified 2023, lemma 1), got {float(objective.relaxation):g}. {_WAY_OUT}"
            )
    if isinstance(objective, MX2) and not mu <= objective.penalty / 2:
        return (
            f"MX2.penalty must be at least 2 mu' = {2 * mu:.3g} for F to be mu'/(3M)-strongly convex (Unified 2023, "
            f"lemma 2), got {float(objective.penalty):g}. {_WAY_OUT}"
        )
    if isinstance(objective, APFL2):
        mixing = _mixing(objective)
        needed = float((mixing**2 + (1 - mixing) ** 2 / 2).max())
        if not objective.relaxation >= needed:
            return (
                f"APFL2.relaxation must be at least max(a^2 + (1-a)^2/2) = {needed:.3g} for F to be "
                "mu'(1-a_max)^2/(2M)-strongly convex (Unified 2023, lemma 3, corrected), got "
                f"{float(objective.relaxation):g}. {_WAY_OUT}"
            )
    return None


def _lower_bounds(objective: Objective, own: Constants) -> list[tuple[float, float, float]]:
    """(a, b, c) with Hessian of f_m >= [[a, b], [b, c]] (times the identity) in (u, beta_m), of every client.

    Summed over clients, u's square M times is w's once: so F is (smallest eigenvalue / M)-strongly convex. Attained
    when every f'_m has the Hessian mu' I.
    """
    mu = own.strong_convexity
    if isinstance(objective, MT2):
        lam = float(objective.penalty)
        return [(objective.relaxation * mu + lam, -lam, mu + lam)]
    if isinstance(objective, MX2):
        lam = float(objective.penalty)
        return [(lam, -lam, mu + lam)]
    if isinstance(objective, APFL2):
        relaxation = float(objective.relaxation)
        return [(mu * (relaxation + a * a), mu * a * (1 - a), mu * (1 - a) ** 2) for a in _mixing(objective).tolist()]
    return []


def _smallest_eigenvalue(first: float, mixed: float, second: float) -> float:
    """Of [[first, mixed], [mixed, second]], positive semidefinite: the determinant over the largest one."""
    # not (a + c)/2 - hypot: where one eigenvalue is tiny, that difference loses all its digits
    largest = (first + second) / 2 + float(np.hypot((first - second) / 2, mixed))
    return max((first * second - mixed**2) / largest, 0.0) if largest > 0 else 0.0


def _mixing(objective: APFL2) -> np.ndarray:
    mixing: Any = objective.mixing.values if isinstance(objective.mixing, PerClient) else objective.mixing
    return np.atleast_1d(np.asarray(mixing, np.float64))


def _row(
    strong_convexity: float, own: Constants, blocks: Callable[[float], tuple[float, float]], source: str
) -> BlockConstants:
    """One row of the table, with rescaling: L^w and L^beta by L', and the same expressions with Lc' for L'."""
    return BlockConstants(strong_convexity, *blocks(own.smoothness), *blocks(own.component_smoothness), source)


def _traditional(objective: GlobalModel, own: Constants) -> BlockConstants:
    source = "traditional objective (Unified 2023, table 2): mu', L', 0"
    return _row(own.strong_convexity, own, lambda smooth: (smooth, 0.0), source)


def _fully_personal(objective: LocalOnly, own: Constants) -> BlockConstants:
    M, source = own.clients, "fully personal objective (Unified 2023, table 2): mu'/M, 0, L'/M"
    return _row(own.strong_convexity / M, own, lambda smooth: (0.0, smooth / M), source)


def _additive(objective: Additive, own: Constants) -> BlockConstants:
    source = "additive objective: 0 (w up and every theta down changes nothing), L', L'/M"
    return _row(0.0, own, lambda smooth: (smooth, smooth / own.clients), source)


def _mt2(objective: MT2, own: Constants) -> BlockConstants:
    M, relaxation, lam = own.clients, float(objective.relaxation), float(objective.penalty)
    source = "MT2 (Unified 2023, lemma 1; its table halves both L): lam/(2M), (Lam L' + lam)/M, (L' + lam)/M"
    return _row(lam / (2 * M), own, lambda smooth: ((relaxation * smooth + lam) / M, (smooth + lam) / M), source)


def _mx2(objective: MX2, own: Constants) -> BlockConstants:
    M, lam = own.clients, float(objective.penalty)
    source = "MX2 (Unified 2023, table 2): mu'/(3M), lam/M, (L' + lam)/M"
    return _row(own.strong_convexity / (3 * M), own, lambda smooth: (lam / M, (smooth + lam) / M), source)


def _apfl2(objective: APFL2, own: Constants) -> BlockConstants:
    M, mixing, relaxation = own.clients, _mixing(objective), float(objective.relaxation)
    most, least = float(mixing.max()), float(mixing.min())

    def blocks(smooth: float) -> tuple[float, float]:
        return (relaxation + most**2) * smooth / M, (1 - least) ** 2 * smooth / M

    source = (
        "APFL2 (Unified 2023, lemma 3, whose mu is twice too large): mu'(1-a_max)^2/(2M), (Lam + a_max^2) L'/M, "
        "(1-a_min)^2 L'/M"
    )
    return _row(own.strong_convexity * (1 - most) ** 2 / (2 * M), own, blocks, source)


def shares_of(objective: Objective, clients: int) -> np.ndarray:
    """(M,) alpha_m, the share of w in a client's model: FLIX's personalization, 1 for other objectives."""
    share: Any = getattr(objective, "personalization", 1.0)
    values = share.values if isinstance(share, PerClient) else share
    return np.broadcast_to(np.asarray(values, np.float64), (clients,))


def term_constants(objective: Objective, own: Constants) -> Constants:
    """The constants of f_m in w: alpha_m^2 times those of f'_m on FLIX, the same ones elsewhere."""
    if not isinstance(objective, FLIX):
        return own
    squares = shares_of(objective, own.clients) ** 2
    return dataclasses.replace(
        own,
        client_smoothness=squares * own.client_smoothness,
        client_strong_convexity=squares * own.client_strong_convexity,
        client_component_smoothness=squares * own.client_component_smoothness,
        source=f"times alpha^2 of FLIX; {own.source}",
    )


def _flix(objective: FLIX, own: Constants) -> BlockConstants:
    terms = term_constants(objective, own)
    strong, smooth, component = (
        float(values.mean())
        for values in (terms.client_strong_convexity, terms.client_smoothness, terms.client_component_smoothness)
    )
    source = "FLIX (Scafflix 2023): mean alpha^2 mu', mean alpha^2 L', 0"
    return BlockConstants(strong, smooth, 0.0, component, 0.0, source)


def _ws2(objective: WS2, own: Constants) -> BlockConstants:
    columns = None if own.loss is None else split_columns(objective, own.loss)
    mu = own.strong_convexity / own.clients
    if columns is None or own.of_columns is None:
        shared, personal = own, own
        source = "WS2 (Unified 2023, lemma 4, corrected by 1/M): mu'/M, L'/M, L'/M, bounds for either block"
    else:
        shared, personal = (own.of_columns(block) for block in columns)
        source = "WS2 (Unified 2023, lemma 4, corrected by 1/M): mu'/M, and L'/M of each block's own columns"
    return _block_row(mu, shared, personal, own.clients, source)


def _residual(objective: Residual, own: Constants) -> BlockConstants | None:
    if own.loss is None or own.of_columns is None:
        return None
    columns = residual_columns(objective, own.loss)
    shared, personal = (own.of_columns(block) for block in columns)
    overlap = np.intersect1d(*columns).size > 0
    # moving weight between the two models of a column changes no output: only l2 curves that direction
    mu = own.loss.l2 if overlap else own.of_columns(np.concatenate(columns)).strong_convexity
    source = (
        "residual learning (Unified 2023, table 2, rescaled): mu of both models' columns together, L_R^w/M, L_R^beta/M"
    )
    return _block_row(mu / own.clients, shared, personal, own.clients, source)


def _block_row(
    strong_convexity: float, shared: Constants, personal: Constants, clients: int, source: str
) -> BlockConstants:
    """Of a model that is divided: each block has the curvature of its own columns."""
    whole = shared.smoothness / clients, personal.smoothness / clients
    single = shared.component_smoothness / clients, personal.component_smoothness / clients
    return BlockConstants(strong_convexity, *whole, *single, source)


_TABLE: dict[type[Objective], Callable[[Any, Constants], BlockConstants | None]] = {
    GlobalModel: _traditional,
    FLIX: _flix,
    LocalOnly: _fully_personal,
    Additive: _additive,
    MT2: _mt2,
    MX2: _mx2,
    APFL2: _apfl2,
    WS2: _ws2,
    Residual: _residual,
}
