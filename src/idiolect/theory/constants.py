# SPDX-License-Identifier: Apache-2.0
"""Smoothness and strong convexity: mu_m <= Hessian of f'_m <= L_m everywhere, and F's own by block."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from idiolect.core.data import Rows
from idiolect.core.objective import Objective
from idiolect.objectives import Additive, ClientLoss, GlobalModel, LocalOnly
from idiolect.theory.convex import ConvexLoss, convex_loss


@dataclasses.dataclass(frozen=True)
class Constants:
    """Curvature of the clients' plain losses f'_m: one entry per client; properties give the worst of all."""

    client_smoothness: np.ndarray  # (M,) L_m
    client_strong_convexity: np.ndarray  # (M,) mu_m
    client_component_smoothness: np.ndarray  # (M,) largest smoothness of a single row's loss (Lc')
    exact: bool  # whether L_m and mu_m are attained; otherwise they are bounds on the safe side
    source: str  # where the numbers come from, in one sentence

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

    def batch_smoothness(self, batch_size: int) -> float:
        """Expected smoothness of a batch's gradient: L + (Lc' - L)/b, worst client; 0 rows means all of them.

        E |g(v) - g(v*)|^2 <= 2 L_b (f(v) - f*) for b rows drawn with replacement; without, it is no larger.
        """
        if batch_size == 0:
            return self.smoothness
        excess = np.maximum(self.client_component_smoothness - self.client_smoothness, 0.0)
        return float((self.client_smoothness + excess / batch_size).max())


@dataclasses.dataclass(frozen=True)
class BlockConstants:
    """Constants of F(w, beta), paper 002, assumption 1: F is L^w-smooth in w and L^beta-smooth in beta."""

    strong_convexity: float  # mu of F, jointly
    shared_smoothness: float  # L^w
    personal_smoothness: float  # L^beta; f_m itself is (M L^beta)-smooth in beta_m
    component_shared_smoothness: float  # Lc^w
    component_personal_smoothness: float  # Lc^beta
    source: str


# Largest second derivative of a row's loss by its outputs: 1, s(1-s) <= 1/4, |diag(p) - p p'| <= 1/2.
_OUTPUT_CURVATURE = {"squared": 1.0, "logistic": 0.25, "cross_entropy": 0.5}
_SOURCES = {
    "squared": "exact: eigenvalues of X'X/n, plus l2",
    "logistic": "exact: L = lambda_max(X'X)/(4n) + l2, attained at zero; mu = l2, the infimum",
    "cross_entropy": "upper bound: L <= lambda_max(X'X)/(2n) + l2; mu = l2, the infimum",
}


def client_constants(objective: Objective | ClientLoss, rows: Rows) -> Constants | None:
    """Constants of every client's f'_m on its own rows; None for a model without known constants."""
    loss = convex_loss(objective)
    if loss is None:
        return None
    per_client = np.array([_one_client(loss, rows.of(client)[0]) for client in range(rows.clients)])
    smoothness, strong_convexity, component = per_client.reshape(rows.clients, 3).T + loss.l2
    return Constants(
        smoothness, strong_convexity, component, loss.criterion != "cross_entropy", _SOURCES[loss.criterion]
    )


def _one_client(loss: ConvexLoss, inputs: np.ndarray) -> tuple[float, float, float]:
    """(L, mu, Lc') of one client before l2."""
    design = loss.design(inputs)
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


def _traditional(own: Constants) -> tuple[float, float, float]:
    return own.strong_convexity, 1.0, 0.0


def _fully_personal(own: Constants) -> tuple[float, float, float]:
    return own.strong_convexity / own.clients, 0.0, 1 / own.clients


def _additive(own: Constants) -> tuple[float, float, float]:
    return 0.0, 1.0, 1 / own.clients


_Blocks = Callable[[Constants], tuple[float, float, float]]  # (mu of F, L^w / L', L^beta / L')
_BLOCKS: dict[type[Objective], tuple[_Blocks, str]] = {
    GlobalModel: (_traditional, "traditional objective (paper 002, table 2): mu', L', 0"),
    LocalOnly: (_fully_personal, "fully personal objective (paper 002, table 2): mu'/M, 0, L'/M"),
    Additive: (_additive, "additive objective: 0 (w up and every theta down changes nothing), L', L'/M"),
}


def block_constants(objective: Objective, own: Constants | None) -> BlockConstants | None:
    """mu, L^w and L^beta of F from the constants of f'_m; None where either is not known."""
    known = _BLOCKS.get(type(objective))
    if known is None or own is None:
        return None
    rule, source = known
    strong_convexity, shared, personal = rule(own)
    return BlockConstants(
        strong_convexity,
        shared * own.smoothness,
        personal * own.smoothness,
        shared * own.component_smoothness,
        personal * own.component_smoothness,
        f"{source}; {own.source}",
    )
