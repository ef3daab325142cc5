# SPDX-License-Identifier: Apache-2.0
"""statsmodels' mixed models: random intercepts, and random slopes on the features that matter most."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg, special

from benchmarks.answers_rows import Side, Sides

SLOPES = 3  # features with a random slope: the covariance of more rarely converges


def mixed_intercepts(sides: Sides) -> np.ndarray:
    """MixedLM: fixed effects of all features, a random intercept per client."""
    return _mixed(sides, [])


def mixed_slopes(sides: Sides) -> np.ndarray:
    """MixedLM: random slopes too, on the features with the largest pooled coefficients; fewer where it fails."""
    order = leading_features(sides.learn)
    for amount in range(min(SLOPES, len(order)), 0, -1):
        try:
            return _mixed(sides, order[:amount])
        except (ValueError, np.linalg.LinAlgError):
            continue
    raise ValueError("no random slope converged")


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
    from statsmodels.regression.mixed_linear_model import MixedLM

    learn, test = sides.learn, sides.test
    centre, scale = learn.targets.mean(), learn.targets.std()
    fixed = [np.column_stack([np.ones(len(side.targets)), side.inputs]) for side in (learn, test)]
    kept = independent_columns(fixed[0])
    own = [np.column_stack([np.ones(len(side.targets)), side.inputs[:, slopes]]) for side in (learn, test)]
    model = MixedLM((learn.targets - centre) / scale, fixed[0][:, kept], groups=learn.owner, exog_re=own[0])
    fitted = model.fit(reml=True, method=["bfgs", "powell"], maxiter=200)
    if not np.isfinite(fitted.params).all():
        raise ValueError("the parameters are not finite")
    effects = _effects(fitted)
    nothing = np.zeros(1 + len(slopes))
    personal = np.array([effects.get(int(client), nothing) for client in test.owner])
    return centre + scale * (fixed[1][:, kept] @ np.asarray(fitted.fe_params) + (own[1] * personal).sum(axis=1))


def _effects(fitted: Any) -> dict[int, np.ndarray]:
    """Each client's random effects; none where their covariance is singular, which is the model without them."""
    try:
        return {int(client): np.asarray(values) for client, values in fitted.random_effects.items()}
    except (ValueError, np.linalg.LinAlgError):
        if np.asarray(fitted.cov_re).trace() > 1e-6:
            raise
        return {}


def bayes_intercepts(sides: Sides) -> np.ndarray:
    """BinomialBayesMixedGLM by variational Bayes: a random intercept per client; two classes only."""
    from statsmodels.genmod.bayes_mixed_glm import BinomialBayesMixedGLM

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
