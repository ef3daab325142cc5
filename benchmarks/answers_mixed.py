# SPDX-License-Identifier: Apache-2.0
"""statsmodels' mixed models: random intercepts, and random slopes on the features that matter most."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg, special
from statsmodels.genmod.bayes_mixed_glm import BinomialBayesMixedGLM
from statsmodels.regression.mixed_linear_model import MixedLM

from benchmarks.answers_rows import Side, Sides

SLOPES = 3  # features with a random slope: the covariance of more rarely converges
SMALL = 1000  # rows up to which all optimisers are tried: beyond, the slowest takes a minute, and only if it must
SLOWEST = "powell"
OPTIMISERS = ("lbfgs", "bfgs", SLOWEST)


def mixed_intercepts(sides: Sides) -> np.ndarray:
    """MixedLM: fixed effects of all features, a random intercept per client."""
    return _mixed(sides, [])


def mixed_slopes(sides: Sides) -> np.ndarray:
    """MixedLM: random slopes too, on the features with the largest pooled coefficients; fewer until it converges."""
    order = leading_features(sides.learn)
    for amount in range(min(SLOPES, len(order)), 0, -1):
        try:
            return _mixed(sides, order[:amount])
        except (ValueError, np.linalg.LinAlgError):
            continue
    return _mixed(sides, [])


def leading_features(learn: Side) -> list[int]:
    """Features by the size of their coefficient in one ridge regression of all rows, the largest first."""
    matrix = learn.inputs - learn.inputs.mean(axis=0)
    gram = matrix.T @ matrix + np.eye(matrix.shape[1])
    return [int(place) for place in np.argsort(-np.abs(np.linalg.solve(gram, matrix.T @ learn.targets)))]


def independent_columns(matrix: np.ndarray) -> np.ndarray:
    """Columns that no others give (indicators of all values of a text do): a mixed model has no penalty to choose."""
    _, upper, order = linalg.qr(matrix, mode="economic", pivoting=True)
    sizes = np.abs(np.diag(upper))
    return np.sort(order[: int((sizes > 1e-8 * sizes[0]).sum())])


def _mixed(sides: Sides, slopes: list[int]) -> np.ndarray:
    learn, test = sides.learn, sides.test
    centre, scale = learn.targets.mean(), learn.targets.std()
    fixed = [np.column_stack([np.ones(len(side.targets)), side.inputs]) for side in (learn, test)]
    kept = independent_columns(fixed[0])
    own = [np.column_stack([np.ones(len(side.targets)), side.inputs[:, slopes]]) for side in (learn, test)]
    targets = (learn.targets - centre) / scale
    fitted = _likeliest(MixedLM(targets, fixed[0][:, kept], groups=learn.owner, exog_re=own[0]))
    residuals = targets - fixed[0][:, kept] @ np.asarray(fitted.fe_params)
    effects = _effects(fitted, own[0], residuals, learn.owner)
    nothing = np.zeros(1 + len(slopes))
    personal = np.array([effects.get(int(client), nothing) for client in test.owner])
    return centre + scale * (fixed[1][:, kept] @ np.asarray(fitted.fe_params) + (own[1] * personal).sum(axis=1))


def _likeliest(model: Any) -> Any:
    """The likeliest of the fits that converged: each optimiser fails, or ends far from the best, on some table."""
    found: list[Any] = []
    for method in OPTIMISERS:
        if found and method == SLOWEST and len(model.endog) > SMALL:
            break
        try:
            fitted = model.fit(reml=True, method=[method], maxiter=200)
        except (ValueError, np.linalg.LinAlgError):
            continue
        if fitted.converged and np.isfinite(fitted.llf) and np.isfinite(fitted.params).all():
            found.append(fitted)
    if not found:
        raise ValueError("no optimiser converged")
    return max(found, key=lambda fitted: fitted.llf)


def _effects(fitted: Any, own: np.ndarray, residuals: np.ndarray, owner: np.ndarray) -> dict[int, np.ndarray]:
    """Each client's expected random effects given its residuals.

    The same as statsmodels' `random_effects`, which inverts their covariance: on the boundary, where that is singular,
    it fails or explodes.
    """
    spread = np.asarray(fitted.cov_re)
    effects = {}
    for client in np.unique(owner):
        rows = own[owner == client]
        total = rows @ spread @ rows.T + fitted.scale * np.eye(len(rows))
        effects[int(client)] = spread @ rows.T @ np.linalg.solve(total, residuals[owner == client])
    return effects


def bayes_intercepts(sides: Sides) -> np.ndarray:
    """BinomialBayesMixedGLM by variational Bayes: a random intercept per client; two classes only."""
    if sides.classes != 2:
        raise ValueError("BinomialBayesMixedGLM knows two classes")
    learn, test = sides.learn, sides.test
    fixed = [np.column_stack([np.ones(len(side.targets)), side.inputs]) for side in (learn, test)]
    kept = independent_columns(fixed[0])
    own = np.eye(len(sides.names))
    idents = np.zeros(len(sides.names), int)
    model = BinomialBayesMixedGLM(learn.targets, fixed[0][:, kept], own[learn.owner], idents)
    fitted = model.fit_vb()
    odds = fixed[1][:, kept] @ fitted.fe_mean + fitted.vc_mean[test.owner]
    chances = special.expit(odds)
    return np.column_stack([1 - chances, chances])
