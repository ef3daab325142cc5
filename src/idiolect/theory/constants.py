# SPDX-License-Identifier: Apache-2.0
"""Smoothness and strong convexity: mu_m <= Hessian of f'_m <= L_m everywhere, and F's own by block."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

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
from idiolect.theory.convex import ConvexLoss, convex_loss

OverClients = Callable[[Callable[[int], Sequence[float]], int], np.ndarray]  # see `one_by_one`


def one_by_one(function: Callable[[int], Sequence[float]], clients: int) -> np.ndarray:
    """(clients, k) what the function of a client's number returns."""
    # one client at a time: designs of all at once need not fit into memory
    return np.array([function(client) for client in range(clients)], float).reshape(clients, -1)


def numbers_of(setting: Any) -> np.ndarray:
    """A setting in float64: a number, or one per client."""
    return np.asarray(setting.values if isinstance(setting, PerClient) else setting, np.float64)


def per_client(setting: Any, clients: int) -> np.ndarray:
    """(M,) every client's number."""
    return np.broadcast_to(numbers_of(setting), (clients,))


@dataclasses.dataclass(frozen=True)
class Constants:
    """Curvature of the clients' plain losses f'_m: one entry per client; properties give the worst of all."""

    client_smoothness: np.ndarray  # (M,) L_m
    client_strong_convexity: np.ndarray  # (M,) mu_m
    client_component_smoothness: np.ndarray  # (M,) largest smoothness of a single row's loss (Lc')
    exact: bool  # whether L_m and mu_m are attained; otherwise they are bounds on the safe side
    source: str  # where the numbers come from, in one sentence
    loss: ConvexLoss | None = None  # f'_m in matrix form
    rows: Rows | None = None  # what they were measured on
    over: OverClients = one_by_one  # how a function of every client's rows is computed

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

    @property
    def symbols(self) -> dict[str, float]:
        """The worst client's numbers by what papers call them."""
        return {"mu'": self.strong_convexity, "L'": self.smoothness, "Lc'": self.component_smoothness}

    @functools.cached_property
    def client_rank(self) -> np.ndarray:
        """(M,) dimensions of the model that a client's rows determine, as far as double precision tells."""
        assert self.loss is not None
        assert self.rows is not None
        loss, rows = self.loss, self.rows
        return self.over(lambda client: [_rank(loss, weighted_design(loss, rows, client))], rows.clients)[:, 0]

    def of_columns(self, columns: np.ndarray) -> Constants:
        """The same for some of the design's columns; without rows every block is as curved as the whole."""
        return self if self.loss is None or self.rows is None else _measure(self.loss, self.rows, columns, self.over)

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


def client_constants(objective: Objective | ClientLoss, rows: Rows, over: OverClients = one_by_one) -> Constants | None:
    """Constants of every client's f'_m on its own rows; None for a model without known constants."""
    loss = convex_loss(objective)
    return None if loss is None else _measure(loss, rows, slice(None), over)


def _measure(loss: ConvexLoss, rows: Rows, columns: np.ndarray | slice, over: OverClients) -> Constants:
    def of_client(client: int) -> tuple[float, float, float]:
        return _one_client(loss, weighted_design(loss, rows, client)[:, columns])

    smoothness, strong_convexity, component = over(of_client, rows.clients).T + loss.l2
    exact = loss.criterion != "cross_entropy"
    return Constants(smoothness, strong_convexity, component, exact, _SOURCES[loss.criterion], loss, rows, over)


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


class Components(NamedTuple):
    """What a solver that draws components sees of F."""

    shared: float  # Lc^w
    personal: float  # Lc^beta
    draws: float  # n: as many cost what one full gradient costs

    def expected_smoothness(self, shared_probability: float) -> float:
        """Unified 2023, lemma 15: Lx = 2 max(Lc^w/p_w, Lc^beta/p_beta); a block that is flat needs no draws."""
        return 2 * max(ratio(self.shared, shared_probability), ratio(self.personal, 1 - shared_probability))


def ratio(above: float, below: float) -> float:
    """above/below; 0 where a block that is flat makes both vanish, infinite where only `below` does."""
    if below > 0:
        return above / below
    return math.inf if above > 0 else 0.0


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

    @property
    def symbols(self) -> dict[str, float]:
        """The numbers by what the paper calls them."""
        return dict(zip(("mu", "L^w", "L^beta", "Lc^w", "Lc^beta"), dataclasses.astuple(self)))

    def of_batches(self, rows: float, batch_size: int) -> Components:
        """Lc^w, Lc^beta and n as batches of b see them: L + (Lc - L)/b and n/b; b = 0 is exact: L and 1.

        A mean of b independent draws has the expected smoothness Lc/b + (1 - 1/b) L, block by block.
        """
        whole = self.shared_smoothness, self.personal_smoothness
        single = self.component_shared_smoothness, self.component_personal_smoothness
        if batch_size == 0:
            return Components(*whole, 1.0)
        shared, personal = (mean + max(one - mean, 0.0) / batch_size for mean, one in zip(whole, single))
        return Components(shared, personal, max(rows / batch_size, 1.0))


class _Known(NamedTuple):
    """What is known of F: the table's row, and where its mu has a condition, what holds without."""

    table: BlockConstants
    # (a, b, c) with Hessian of f_m >= [[a, b], [b, c]] (times the identity) in (u, beta_m), of every client. Summed
    # over clients, u's square M times is w's once: so F is (smallest eigenvalue / M)-strongly convex. Attained when
    # every f'_m has the Hessian mu' I.
    bounds: Sequence[tuple[float, float, float]] = ()
    broken: str | None = None  # why the table's mu does not hold


def block_constants(objective: Objective, own: Constants | None) -> BlockConstants | None:
    """mu, L^w and L^beta of F from the constants of f'_m; None where either is not known.

    The table's values (`table_constants`); where the table's mu needs a condition that is broken, the smallest
    eigenvalue of the 2 x 2 matrix that bounds every client's Hessian from below, which always holds.
    """
    known = _know(objective, own)
    if known is None or own is None:
        return None
    table = known.table
    if not known.bounds or (known.broken is None and table.strong_convexity > 0):
        return table
    least = min(_smallest_eigenvalue(*bound) for bound in known.bounds) / own.clients
    source = f"{table.source}; mu from the 2 x 2 bound, which needs no condition"
    return dataclasses.replace(table, strong_convexity=least, source=source)


def table_constants(objective: Objective, own: Constants | None) -> BlockConstants | None:
    """Table 2 of Unified 2023, corrected (E002-7), whether or not its conditions hold: what a reproduction of it uses.

    Without rescaling the w block is M times as curved and the same mu still holds: |w| is only the shorter for it.
    """
    known = _know(objective, own)
    return None if known is None else known.table


def condition(objective: Objective, own: Constants) -> str | None:
    """One sentence where the table's mu does not hold because its condition is broken, None where it does."""
    known = _know(objective, own) if isinstance(objective, MT2 | MX2 | APFL2) else None  # the others have none
    if known is None or known.broken is None:
        return None
    return f"{known.broken}. Raise it, or go on with the smaller mu that holds without it."


def _know(objective: Objective, own: Constants | None) -> _Known | None:
    rule = _TABLE.get(type(objective))
    known = None if rule is None or own is None else rule(objective, own)
    if known is None or own is None:
        return None
    row = known.table
    if isinstance(objective, RescaledObjective) and not objective.rescale:
        row = dataclasses.replace(
            row,
            shared_smoothness=own.clients * row.shared_smoothness,
            component_shared_smoothness=own.clients * row.component_shared_smoothness,
            source=f"{row.source}, without rescaling (L^w times M, the same mu as a bound)",
        )
    return known._replace(table=dataclasses.replace(row, source=f"{row.source}; {own.source}"))


def _smallest_eigenvalue(first: float, mixed: float, second: float) -> float:
    """Of [[first, mixed], [mixed, second]], positive semidefinite: the determinant over the largest one."""
    # not (a + c)/2 - hypot: where one eigenvalue is tiny, that difference loses all its digits
    largest = (first + second) / 2 + float(np.hypot((first - second) / 2, mixed))
    return max((first * second - mixed**2) / largest, 0.0) if largest > 0 else 0.0


def _row(
    strong_convexity: float, own: Constants, blocks: Callable[[float], tuple[float, float]], source: str
) -> BlockConstants:
    """One row of the table, with rescaling: L^w and L^beta by L', and the same expressions with Lc' for L'."""
    return BlockConstants(strong_convexity, *blocks(own.smoothness), *blocks(own.component_smoothness), source)


def _traditional(objective: GlobalModel, own: Constants) -> _Known:
    source = "traditional objective (Unified 2023, table 2): mu', L', 0"
    return _Known(_row(own.strong_convexity, own, lambda smooth: (smooth, 0.0), source))


def _fully_personal(objective: LocalOnly, own: Constants) -> _Known:
    M, source = own.clients, "fully personal objective (Unified 2023, table 2): mu'/M, 0, L'/M"
    return _Known(_row(own.strong_convexity / M, own, lambda smooth: (0.0, smooth / M), source))


def _additive(objective: Additive, own: Constants) -> _Known:
    source = "additive objective: 0 (w up and every theta down changes nothing), L', L'/M"
    return _Known(_row(0.0, own, lambda smooth: (smooth, smooth / own.clients), source))


def _mt2(objective: MT2, own: Constants) -> _Known:
    M, mu, relaxation, lam = own.clients, own.strong_convexity, float(objective.relaxation), float(objective.penalty)
    source = "MT2 (Unified 2023, lemma 1; its table halves both L): lam/(2M), (Lam L' + lam)/M, (L' + lam)/M"
    row = _row(lam / (2 * M), own, lambda smooth: ((relaxation * smooth + lam) / M, (smooth + lam) / M), source)
    needed = 1.5 * lam / mu if mu > 0 else np.inf if lam > 0 else 0.0
    broken = (
        f"MT2.relaxation must be at least 3 lam/(2 mu') = {needed:.3g} for F to be lam/(2M)-strongly convex "
        f"(Unified 2023, lemma 1), got {relaxation:g}"
    )
    return _Known(row, [(relaxation * mu + lam, -lam, mu + lam)], None if relaxation >= needed else broken)


def _mx2(objective: MX2, own: Constants) -> _Known:
    M, mu, lam = own.clients, own.strong_convexity, float(objective.penalty)
    source = "MX2 (Unified 2023, table 2): mu'/(3M), lam/M, (L' + lam)/M"
    row = _row(mu / (3 * M), own, lambda smooth: (lam / M, (smooth + lam) / M), source)
    broken = (
        f"MX2.penalty must be at least 2 mu' = {2 * mu:.3g} for F to be mu'/(3M)-strongly convex (Unified 2023, "
        f"lemma 2), got {lam:g}"
    )
    return _Known(row, [(lam, -lam, mu + lam)], None if mu <= lam / 2 else broken)


def _apfl2(objective: APFL2, own: Constants) -> _Known:
    M, mu, relaxation = own.clients, own.strong_convexity, float(objective.relaxation)
    mixing = per_client(objective.mixing, M)
    most, least = float(mixing.max()), float(mixing.min())

    def blocks(smooth: float) -> tuple[float, float]:
        return (relaxation + most**2) * smooth / M, (1 - least) ** 2 * smooth / M

    source = (
        "APFL2 (Unified 2023, lemma 3, whose mu is twice too large): mu'(1-a_max)^2/(2M), (Lam + a_max^2) L'/M, "
        "(1-a_min)^2 L'/M"
    )
    row = _row(mu * (1 - most) ** 2 / (2 * M), own, blocks, source)
    bounds = [(mu * (relaxation + a * a), mu * a * (1 - a), mu * (1 - a) ** 2) for a in mixing.tolist()]
    needed = float((mixing**2 + (1 - mixing) ** 2 / 2).max())
    broken = (
        f"APFL2.relaxation must be at least max(a^2 + (1-a)^2/2) = {needed:.3g} for F to be "
        f"mu'(1-a_max)^2/(2M)-strongly convex (Unified 2023, lemma 3, corrected), got {relaxation:g}"
    )
    return _Known(row, bounds, None if relaxation >= needed else broken)


def shares_of(objective: Objective, clients: int) -> np.ndarray:
    """(M,) alpha_m, the share of w in a client's model: FLIX's personalization, 1 for other objectives."""
    return per_client(getattr(objective, "personalization", 1.0), clients)


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


def _flix(objective: FLIX, own: Constants) -> _Known:
    terms = term_constants(objective, own)
    strong, smooth, component = (
        float(values.mean())
        for values in (terms.client_strong_convexity, terms.client_smoothness, terms.client_component_smoothness)
    )
    source = "FLIX (Scafflix 2023): mean alpha^2 mu', mean alpha^2 L', 0"
    return _Known(BlockConstants(strong, smooth, 0.0, component, 0.0, source))


def split_positions(objective: WS2, loss: ConvexLoss) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The shared and the personal block of the model, with positions among the coefficients in place of values."""
    # split like values, so that the split itself says where every entry goes
    positions = np.arange(loss.size).reshape(loss.shape)
    blocks = objective.split.divide(loss.to_params(positions))
    shared, personal = ({name: np.asarray(part) for name, part in block.items()} for block in blocks)
    return shared, personal


def split_columns(objective: WS2, loss: ConvexLoss) -> tuple[np.ndarray, np.ndarray] | None:
    """The design's columns of either block; None where a column's coefficients are divided between both."""
    width = loss.shape[1]
    shared, personal = (
        np.unique(np.concatenate([part.reshape(-1) for part in block.values()]) // width)
        for block in split_positions(objective, loss)
    )
    return None if np.intersect1d(shared, personal).size else (shared, personal)


def residual_columns(objective: Residual, loss: ConvexLoss) -> tuple[np.ndarray, np.ndarray]:
    """The design's columns that the shared and the personal model see; both have a bias where the model has one."""
    bias = np.arange(loss.features, loss.columns)
    shared, personal = (np.arange(loss.features)[objective.columns(block)] for block in ("shared", "personal"))
    return np.concatenate([shared, bias]), np.concatenate([personal, bias])


def _ws2(objective: WS2, own: Constants) -> _Known:
    columns = None if own.loss is None else split_columns(objective, own.loss)
    mu, source = own.strong_convexity / own.clients, "WS2 (Unified 2023, lemma 4, corrected by 1/M): mu'/M, "
    if columns is None:
        return _block_row(mu, [own, own], f"{source}L'/M, L'/M, bounds for either block")
    return _block_row(mu, map(own.of_columns, columns), f"{source}and L'/M of each block's own columns")


def _residual(objective: Residual, own: Constants) -> _Known | None:
    if own.loss is None:
        return None
    columns = residual_columns(objective, own.loss)
    overlap = np.intersect1d(*columns).size > 0
    # moving weight between the two models of a column changes no output: only l2 curves that direction
    mu = own.loss.l2 if overlap else own.of_columns(np.concatenate(columns)).strong_convexity
    source = (
        "residual learning (Unified 2023, table 2, rescaled): mu of both models' columns together, L_R^w/M, L_R^beta/M"
    )
    return _block_row(mu / own.clients, map(own.of_columns, columns), source)


def _block_row(strong_convexity: float, sides: Iterable[Constants], source: str) -> _Known:
    """Of a model that is divided: each block has the curvature of its own columns."""
    curvatures = [(side.smoothness / side.clients, side.component_smoothness / side.clients) for side in sides]
    (shared, component_shared), (personal, component_personal) = curvatures
    return _Known(BlockConstants(strong_convexity, shared, personal, component_shared, component_personal, source))


_TABLE: dict[type[Objective], Callable[[Any, Constants], _Known | None]] = {
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
