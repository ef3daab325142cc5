# SPDX-License-Identifier: Apache-2.0
"""ASCD-PFL (Unified 2023, algorithm 5): accelerated block-coordinate descent on single components.

    x = theta z + (1 - theta) y
    draw a component j; with probability p_w sample w (one round):  g = (1/p_w) mean_m grad_w f_mj(x)
    otherwise sample beta:                                             g_m = (1/(p_beta M)) grad_beta f_mj(x)
    sampled block:   y = x - eta g;  z = nu z + (1 - nu) x + (gamma / eta) (y - x)
    other block:     y = x;  z = nu z + (1 - nu) x        (`unsampled` "x": the general update with g = 0)
                     y and z stay                         (`unsampled` "stale": as printed and as released, E002-3)

`step_size` is eta, `momentum` theta, `mirror_step` gamma, nu = 1 - gamma mu with `strong_convexity` mu,
`shared_probability` p_w. The printed v-lines are never read (E002-12). The paper takes eta, gamma and nu of ASVRCD and
theta = min{0.8, 1/eta}. Stops at a noise floor that shrinks with eta, the same under both rules for the other block.
"""

from __future__ import annotations

from idiolect.algorithms.block_descent import BlockDescent, Coefficients, Iterate
from idiolect.algorithms.references import UNIFIED
from idiolect.core import Method, setting, settings
from idiolect.core.types import Scalar
from idiolect.theory.solver_rules import ASCD_PFL


@settings
class ASCDPFL(BlockDescent):
    """Accelerated descent on one block at a time, one component at a time: fast at first, then a floor."""

    batch_size: int = setting(default=1, at_least=0, doc="components per iteration; 0: all, exact gradients")
    step_size: float = setting(default=None, above=0, theory=True, doc="step eta")
    momentum: float = setting(default=None, at_least=0, at_most=1, theory=True, doc="theta, weight of z in x")
    mirror_step: float = setting(default=None, above=0, theory=True, doc="gamma, the step of z")
    strong_convexity: float = setting(default=None, at_least=0, theory=True, doc="mu of F; nu = 1 - gamma mu")
    shared_probability: float = setting(
        default=None, at_least=0, at_most=1, theory=True, doc="p_w, the chance that an iteration samples w"
    )
    unsampled: str = setting(
        default="x", choices=("x", "stale"), doc="the block that is not sampled follows x, or stays as printed"
    )

    def _coast(self, iterate: Iterate, step: Scalar) -> Iterate:
        """The theory's rule, or the printed one."""
        return super()._coast(iterate, step) if self.unsampled == "x" else iterate

    @property
    def coefficients(self) -> Coefficients:
        """As in algorithm 5."""
        return Coefficients(
            shared_step=self.step_size,
            personal_step=self.step_size,
            shared_probability=self.two_block_probability(self.shared_probability),
            momentum=self.momentum,
            keep=1 - self.mirror_step * self.strong_convexity,
            mirror_step=self.mirror_step,
        )


_SUMMARY = "accelerated descent by blocks on single rows; to a floor"
_ERRATA = ("E002-3", "E002-7", "E002-12")
METHODS = {"ascd_pfl": Method(ASCDPFL, "mx2", {}, UNIFIED, _SUMMARY, theory=ASCD_PFL, errata=_ERRATA)}
