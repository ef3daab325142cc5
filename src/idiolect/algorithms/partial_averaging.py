# SPDX-License-Identifier: Apache-2.0
"""Partial averaging (baselines of Flow 2023): one network, some layers w averaged, the others b_m kept by each client.

FedPer      w_m, b_m <- both one step along grad f_m([w_m, b_m]; batch),  K times; b_m the last layers;
LG-FedAvg   the same, b_m the first layers;  FedBN  the same, b_m the normalisation layers;
FedRep      b_m walks first, tau K steps beside the received w, then w_m walks K steps beside the new b_m;
FedBABU     w_m walks beside b, which stays at its common start; b_m is fine-tuned for the personal model only;
server      w <- w + beta mean_m (w_m - w).

`trains` says which blocks walk and in which order, `personal_passes` is tau, `personal` b_m; which layers it holds is
said by the objective's `personal_part`. All clients start alike. b_m never travels, down or up.
References: Arivazhagan et al. 2019, Liang et al. 2020, Li et al. 2021, Collins et al. 2021, Oh et al. 2022.
"""

from __future__ import annotations

import functools

import jax

from idiolect.algorithms.fine_tuning import FineTuned
from idiolect.algorithms.optimizers import PLAIN, Descent
from idiolect.algorithms.tuples import Broadcast, ClientState, Working
from idiolect.algorithms.walk import Gradient, walk
from idiolect.core import BY_ROWS, NOTHING, Fit, Method, Models, RowReads, setting, settings, step_key, tree
from idiolect.core.objective import Parted
from idiolect.core.types import Array, ClientData, Key, Params, StartKeys, Tally

BOTH, PERSONAL_FIRST, SHARED_ONLY = "both", "personal_then_shared", "shared"
_FIRST_PHASE = 2**31 - 1  # what its draws are named by: no epoch and no step has that number


@settings
class PartialAveraging(FineTuned[ClientState, Working]):
    """One network in two parts: one averaged, one personal."""

    carries_statistics = True

    trains: str = setting(
        default=BOTH, choices=(BOTH, PERSONAL_FIRST, SHARED_ONLY), doc="the parts that a round trains, in order"
    )
    personal_passes: int = setting(
        default=1, at_least=1, doc="personal_then_shared: personal steps (or epochs) to one of the shared part (tau)"
    )

    @property
    def row_reads(self) -> RowReads:
        """Both parts, since w_m walks beside b_m."""
        return RowReads(1 + self.personal_passes if self.trains == PERSONAL_FIRST else 1)

    def fit(self, chance: float = 1.0) -> Fit:
        """Needs one model in two parts."""
        parted = isinstance(self.objective, Parted)
        return Fit(None if parted else "it divides one model into a shared and a personal part; use the ws2 objective")

    def init_client(self, keys: StartKeys, data: ClientData) -> tuple[ClientState, Tally]:
        """The objective's start."""
        return ClientState(self.objective.init_personal(keys.common)), NOTHING

    def receive(self, key: Key, sent: Broadcast, client: ClientState, data: ClientData) -> tuple[Working, Tally]:
        """Start from w and the client's own part, which walks at once if it walks first."""
        personal, tally = client.personal, NOTHING
        if self.trains == PERSONAL_FIRST:
            # draws of its own: the same batches in both phases would tie them together
            own, descent = jax.random.fold_in(key, _FIRST_PHASE), Descent(PLAIN, self.step_size)
            steps, epochs = self.personal_passes * self.local_steps, self.personal_passes * self.epochs
            gradient = self._beside(sent.shared)
            personal, tally = walk(self, own, personal, data, gradient, descent, steps=steps, epochs=epochs)
        return Working(sent.shared, ClientState(personal), self.draw_batches(key, data)), tally

    def step(self, key: Key, t: Array, sent: Broadcast, working: Working, data: ClientData) -> tuple[Working, Tally]:
        """One gradient step on both parts, or on the shared one."""
        here = (step_key(key, t), working.shared, working.own.personal, self.batch(t, working.drawn, data))
        if self.trains != BOTH:
            gradient, tally = self.objective.gradient_shared(*here)
            return working._replace(shared=tree.descend(working.shared, self.step_size, gradient)), tally
        gradients, tally = self.objective.gradients(*here)
        shared, personal = tree.descend((working.shared, working.own.personal), self.step_size, gradients)
        return Working(shared, ClientState(personal), working.drawn), tally

    def models(self, key: Key, sent: Broadcast, client: ClientState, data: ClientData) -> tuple[Models, Tally]:
        """[w, b_m], after fine-tuning of b_m if asked for; [w, b] as received where no round trains b.

        Then b is the common start still, and a part of no client's own.
        """
        untouched = self.trains == SHARED_ONLY
        received = self.objective.deployed(sent.shared, client.personal) if untouched else None
        personal, spent = self.fine_tuned(key, client.personal, data, self._beside(sent.shared))
        model, more = self.objective.personalize(key, sent.shared, personal, data.batch())
        return Models(model, received), spent.plus(more)

    def _beside(self, shared: Params) -> Gradient:
        """The gradient of the personal part beside a fixed shared one."""
        return lambda key, personal, batch: self.objective.gradient_personal(key, shared, personal, batch)


_REP = {"trains": PERSONAL_FIRST}
_BABU = BY_ROWS | {"fine_tuning_steps": 10, "trains": SHARED_ONLY}
# WS2 as these methods mean it: the model's own parameters, without the rescaling of Hanzely et al. 2023
_HEAD, _BODY, _NORM = ({"personal_part": part, "rescale": False} for part in ("head", "body", "*norm*"))
_ARIVAZHAGAN = "Arivazhagan et al. 2019, Federated learning with personalization layers"
_COLLINS = "Collins et al. 2021, Exploiting shared representations for personalized federated learning"
_FEDBN = "Li et al. 2021, FedBN: federated learning on non-IID features via local batch normalization"
_LIANG = "Liang et al. 2020, Think locally, act globally: federated learning with local and global representations"
_OH = "Oh, Kim and Yun 2022, FedBABU: toward enhanced representation for federated image classification"
_method = functools.partial(Method, PartialAveraging, "ws2")
METHODS = {
    "fedper": _method(BY_ROWS, _ARIVAZHAGAN, "last layer personal, all trained together", _HEAD),
    "fedrep": _method(_REP, _COLLINS, "last layer personal and trained first, then the rest", _HEAD),
    "lg_fedavg": _method(BY_ROWS, _LIANG, "last layer shared, the others personal", _BODY),
    "fedbabu": _method(_BABU, _OH, "last layer never trained but fine-tuned at the end", _HEAD),
    "fedbn": _method({}, _FEDBN, "normalisation layers personal", _NORM),
}
