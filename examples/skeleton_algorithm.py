# SPDX-License-Identifier: Apache-2.0
"""FedAvg as a skeleton to copy: w_m <- w_m - eta grad f_m(w_m; batch), K times from w_m = w; then w <- mean_m w_m.

`step_size` is eta, `local_steps` K, `shared` w. The mean weighs clients by their rows."""

from __future__ import annotations

from typing import NamedTuple

from idiolect.core import NOTHING, Batched, Fit, Method, setting, settings, step_key, tree


class ServerState(NamedTuple):  # what the server keeps between rounds
    shared: tree.Params


class Broadcast(NamedTuple):  # what goes down
    shared: tree.Params


class Working(NamedTuple):  # one client's state inside a round
    shared: tree.Params
    drawn: object  # the round's batches


class Upload(NamedTuple):  # what goes up
    shared: tree.Params
    weight: object


@settings
class Skeleton(Batched):
    """FedAvg, to be copied and changed."""

    step_size: float = setting(default=0.1, above=0, way_out="Try 0.1.", doc="step eta")

    def fit(self, chance=1.0):
        one_model = self.objective.has_shared and not self.objective.has_personal
        return Fit(None if one_model else "it trains one shared model; use the global_model objective")

    def init_server(self, key):
        return ServerState(self.objective.init_shared(key))

    def broadcast(self, key, server):
        return Broadcast(server.shared)

    def receive(self, key, sent, client, data):
        return Working(sent.shared, self.draw_batches(key, data)), NOTHING

    def step(self, key, t, sent, working, data):
        batch = self.batch(t, working.drawn, data)
        gradient, tally = self.objective.gradient_shared(step_key(key, t), working.shared, (), batch)
        return working._replace(shared=tree.descend(working.shared, self.step_size, gradient)), tally

    def send(self, key, sent, working, client, data):
        return Upload(working.shared, data.count.astype(float)), client, NOTHING

    def server_step(self, key, server, sent, received):
        return ServerState(received.mean.shared)

    def shared_model(self, server):
        return server.shared


METHODS = {"skeleton": Method(Skeleton, "global_model", {}, "McMahan et al. 2017", "FedAvg, to be copied")}
