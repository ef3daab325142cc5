# SPDX-License-Identifier: Apache-2.0
"""ASVRCD-PFL (Unified 2023, algorithm 4; algorithm 3 is not it, E002-4) and SVRCD-PFL (algorithm 7 corrected, E002-5).

    x = theta1 z + theta2 v + (1 - theta1 - theta2) y            (SVRCD: x = y, no z)
    draw a component j; with probability p_w sample w (one round), otherwise beta:
    w:     g_w = (1/p_w) mean_m [grad_w f_mj(x) - grad_w f_mj(v)] + grad_w F(v),   g_m = (1/M) grad_beta f_m(v)
    beta:  g_m = (1/(p_beta M)) [grad_beta f_mj(x) - grad_beta f_mj(v)] + (1/M) grad_beta f_m(v),   g_w = grad_w F(v)
    y = x - eta g;  z = nu z + (1 - nu) x + (gamma / eta) (y - x);  v = the old y with probability rho

`step_size` is eta, `momentum` theta1, `anchor` theta2, `mirror_step` gamma, nu = 1 - gamma mu with `strong_convexity`
mu, `shared_probability` p_w, `refresh_probability` rho. A refresh is a round of its own and costs every component.
Theory: p_w = Lc^w / (Lc^w + Lc^beta), rho = p_w / n, eta = 1 / (4 Lx) with Lx = 2 max(Lc^w / p_w, Lc^beta / p_beta),
theta2 = 1/2, theta1 = min{1/2, sqrt(eta mu max{1/2, theta2/rho})}, gamma = 1 / max{2 mu, 4 theta1 / eta}; then it
converges linearly to the exact optimum. SVRCD has no step theory of its own and takes the same eta, p_w and rho. Each
client draws j among its own rows, so with unequal n_m a component of client m weighs 1 / (M n_m).
"""

from __future__ import annotations

from idiolect.algorithms.block_descent import BlockDescent, Coefficients
from idiolect.algorithms.references import UNIFIED
from idiolect.core import Changes, Method, setting, settings
from idiolect.theory.solver_rules import ASVRCD_PFL, SVRCD_PFL


@settings
class VarianceReduced(BlockDescent):
    """Descent from components whose variance a snapshot takes out; still abstract."""

    reduces_variance = True
    changes = Changes(
        {"gradient": None}, unbiased="its snapshot takes the variance out only if what arrives is right in the mean"
    )

    batch_size: int = setting(default=1, at_least=0, doc="components per iteration; 0: all, exact gradients")
    step_size: float = setting(default=None, above=0, theory=True, doc="step eta")
    shared_probability: float = setting(
        default=None, at_least=0, at_most=1, theory=True, doc="p_w, the chance that an iteration samples w"
    )
    refresh_probability: float = setting(
        default=None, above=0, at_most=1, theory=True, doc="rho, the chance that an iteration refreshes v"
    )

    @property
    def without_momentum(self) -> Coefficients:
        """Coefficients of plain variance-reduced descent."""
        # neither z nor v is mixed into x = y, so that the one rule of `BlockDescent` serves both solvers
        return Coefficients(
            shared_step=self.step_size,
            personal_step=self.step_size,
            shared_probability=self.two_block_probability(self.shared_probability),
            refresh_probability=self.refresh_probability,
        )


@settings
class SVRCDPFL(VarianceReduced):
    """Variance-reduced descent on one block at a time, from components."""

    accelerated = False

    @property
    def coefficients(self) -> Coefficients:
        """No momentum."""
        return self.without_momentum


@settings
class Accelerated(VarianceReduced):
    """Variance-reduced descent with momentum; still abstract."""

    momentum: float = setting(default=None, at_least=0, below=1, theory=True, doc="theta1, weight of z in x")
    anchor: float = setting(default=0.5, at_least=0, below=1, doc="theta2, weight of v in x")
    mirror_step: float = setting(default=None, above=0, theory=True, doc="gamma, the step of z")
    strong_convexity: float = setting(default=None, at_least=0, theory=True, doc="mu of F; nu = 1 - gamma mu")

    @property
    def with_momentum(self) -> Coefficients:
        """As in algorithm 4."""
        return self.without_momentum._replace(
            momentum=self.momentum,
            anchor=self.anchor,
            # nu: z is drawn to x as strongly as F is convex; without strong convexity it is pure momentum
            keep=1 - self.mirror_step * self.strong_convexity,
            mirror_step=self.mirror_step,
        )


@settings
class ASVRCDPFL(Accelerated):
    """Accelerated and variance-reduced: optimal in rounds or in gradients of beta, from components."""

    @property
    def coefficients(self) -> Coefficients:
        """With momentum."""
        return self.with_momentum


_ACCELERATED = "accelerated, variance-reduced descent by blocks; exact"
_PLAIN = "variance-reduced descent by blocks, no momentum; exact"
_ERRATA = ("E002-4", "E002-7", "E002-11", "E002-12")
METHODS = {
    "asvrcd_pfl": Method(ASVRCDPFL, "mx2", {}, UNIFIED, _ACCELERATED, theory=ASVRCD_PFL, errata=_ERRATA),
    "svrcd_pfl": Method(SVRCDPFL, "mx2", {}, UNIFIED, _PLAIN, theory=SVRCD_PFL, errata=("E002-5",)),
}
