# SPDX-License-Identifier: Apache-2.0
"""ACD-PFL (Unified 2023, algorithm 2 corrected by E002-1, 2, 3): accelerated block-coordinate descent, exact gradients.

    x = (1 - theta) y + theta z                                  for w and every beta_m
    with probability p_w (one round), g = mean_m grad_w f_m(x):
        w_y = w_x - g / L^w;  w_z = [w_z + eta nu w_x - eta g / (sqrt(L^w) S)] / (1 + eta nu)
    otherwise (no message), g_m = (1/M) grad_beta f_m(x): the same for beta_m with L^beta
    the block that is not sampled: y = x, z = [z + eta nu x] / (1 + eta nu)

S = sqrt(L^w) + sqrt(L^beta), p_w = sqrt(L^w) / S, nu = mu / S^2, theta = (sqrt(nu^2 + 4 nu) - nu) / 2, eta = 1 / theta.
`strong_convexity` is mu of F, `shared_smoothness` L^w, `personal_smoothness` L^beta. It contracts
(F(y) - F*) / theta^2 + S^2 / (2 (1 - theta)) |z - x*|^2 by 1 - theta per iteration in expectation: about sqrt(L^w / mu)
log(1/eps) rounds and sqrt(L^beta / mu) log(1/eps) gradients of beta, both optimal. A `shared_probability` of one's
own is allowed: S then is the larger of sqrt(L) / p over the blocks.
"""

from __future__ import annotations

import jax.numpy as jnp

from idiolect.algorithms.block_descent import BlockDescent, Coefficients
from idiolect.algorithms.references import UNIFIED
from idiolect.core import Method, setting, settings
from idiolect.core.types import Scalar
from idiolect.theory.solver_rules import ACD_PFL


@settings
class ACDPFL(BlockDescent):
    """Accelerated descent on one block at a time; the shared block costs a round, the personal one does not."""

    strong_convexity: float = setting(default=None, above=0, theory=True, doc="mu of F")
    shared_smoothness: float = setting(default=None, at_least=0, theory=True, doc="L^w: smoothness of F in w")
    personal_smoothness: float = setting(
        default=None, at_least=0, theory=True, doc="L^beta: smoothness of F in beta, 1/M of f_m's"
    )
    shared_probability: float | None = setting(
        default=None, above=0, at_most=1, doc="p_w, the chance that an iteration samples w; unset: sqrt(L^w) / S"
    )

    @property
    def coefficients(self) -> Coefficients:
        """The corrected box, with the gradient of the sampled block divided by its probability."""
        shared, personal = jnp.asarray(self.shared_smoothness), jnp.asarray(self.personal_smoothness)
        roots = jnp.sqrt(shared), jnp.sqrt(personal)
        probability: Scalar = roots[0] / (roots[0] + roots[1])
        if self.shared_probability is not None:
            probability = self.two_block_probability(self.shared_probability)
        total = jnp.maximum(_ratio(roots[0], probability), _ratio(roots[1], 1 - probability))
        nu = self.strong_convexity / total**2
        theta = (jnp.sqrt(nu**2 + 4 * nu) - nu) / 2
        eta = 1 / theta
        return Coefficients(
            shared_step=_ratio(probability, shared),
            personal_step=_ratio(1 - probability, personal),
            shared_probability=probability,
            momentum=theta,
            keep=1 / (1 + eta * nu),
            mirror_step=eta / (total**2 * (1 + eta * nu)),
        )


def _ratio(above: Scalar, below: Scalar) -> jnp.ndarray:
    """above / below; 0 where a block that does not exist makes both vanish."""
    return jnp.where(below > 0, above / jnp.where(below > 0, below, 1), 0)


_SUMMARY = "accelerated descent by blocks, exact gradients, few rounds"
_ERRATA = ("E002-1", "E002-2", "E002-3", "E002-7")
METHODS = {"acd_pfl": Method(ACDPFL, "mx2", {}, UNIFIED, _SUMMARY, theory=ACD_PFL, errata=_ERRATA)}
