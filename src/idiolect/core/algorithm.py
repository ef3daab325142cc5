# SPDX-License-Identifier: Apache-2.0
"""The contract: one algorithm is one small file of pure functions that never knows which engine runs it.

```
server                              the wire                    client m
init_server(key)                                                init_client(keys, data)
broadcast(key, server)         ->   Broadcast              ->   receive(key, sent, client, data)
                                                                step(key, t, sent, working, data)  x steps(sent, rows)
server_step(key, server,       <-   reduction(Upload, ..)  <-   send(key, sent, working, client, data)
            sent, received)    ->   Broadcast (optional)   ->   settle(key, sent, client, data)
shared_model(server)                deliver(key, server)   ->   models(key, sent, client, data)
```

Only `Broadcast` and `Upload` cross the wire. `ClientState` stays on the client, `Working` lives inside one round.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Generic, NamedTuple, TypeVar, cast

from idiolect.core.checks import RequestError, setting
from idiolect.core.data import Array, ClientData
from idiolect.core.keys import Key, StartKeys
from idiolect.core.kinds import KeepsPrepared
from idiolect.core.objective import Objective, Prepares
from idiolect.core.reduction import Reduction, weighted_mean
from idiolect.core.settings import Settings, settings
from idiolect.core.tally import NOTHING, Tally
from idiolect.core.tree import Params, Tree


class Models(NamedTuple):
    """The models of one client."""

    personal: Params  # what it predicts with
    # without a `shared_model`: the whole model before the client's rows move a parameter, which may be chosen by them;
    # the generalized accuracy is measured on it
    received: Params | None = None


class Fit(NamedTuple):
    """Whether an algorithm can be run as asked."""

    refused: str | None = None  # why not: the rest of a sentence that begins with "it cannot minimise its objective:"
    warning: str | None = None  # what theory does not cover


if TYPE_CHECKING:
    import typing_extensions

    Server = typing_extensions.TypeVar("Server", default=Tree)
    Client = typing_extensions.TypeVar("Client", default=Tree)
    Sent = typing_extensions.TypeVar("Sent", default=Tree)
    Working = typing_extensions.TypeVar("Working", default=Tree)
    Upload = typing_extensions.TypeVar("Upload", default=Tree)
else:  # defaults, which spare a parameter list wherever any algorithm will do, are for type checkers
    Server, Client, Sent, Working, Upload = map(TypeVar, ("Server", "Client", "Sent", "Working", "Upload"))


@settings
class Algorithm(Settings, abc.ABC, Generic[Server, Client, Sent, Working, Upload]):
    """Base of every algorithm: six methods to write, the rest have defaults.

    Generic in its five tuples, so that a type checker sees a wrong hand-over.
    """

    carries_statistics: ClassVar[bool] = False  # walks by `tree.descend` alone: running statistics stay right

    # settings that only the server may see, who listens to whom, say: None at a site, whose half must not read them
    server_only: ClassVar[tuple[str, ...]] = ()

    # (key, sent, client, data) -> client: finishes the round with the new Broadcast, which the cohort that uploaded
    # gets back at once, billed as a download; None: the round ends with `server_step`
    settle: ClassVar[Callable[..., Tree] | None] = None

    objective: Objective = dataclasses.field(kw_only=False)
    clients: int = setting(default=0, at_least=0, doc="number of clients M; filled in by the engine")

    @abc.abstractmethod
    def init_server(self, key: Key) -> Server:
        """What the server keeps: a ServerState."""

    @abc.abstractmethod
    def broadcast(self, key: Key, server: Server) -> Sent:
        """What goes down: a Broadcast. A leaf wrapped in PerClient is addressed: client i gets row i."""

    @abc.abstractmethod
    def receive(self, key: Key, sent: Sent, client: Client, data: ClientData) -> tuple[Working, Tally]:
        """The Working state of one round's local work; batch orders are drawn here, once."""

    @abc.abstractmethod
    def step(self, key: Key, t: Array, sent: Sent, working: Working, data: ClientData) -> tuple[Working, Tally]:
        """One local step. The key is fixed for (round, client): fold `t` in when randomness is needed."""

    @abc.abstractmethod
    def send(
        self, key: Key, sent: Sent, working: Working, client: Client, data: ClientData
    ) -> tuple[Upload, Client, Tally]:
        """What goes up (an Upload with its `weight`) and what is kept (a ClientState)."""

    @abc.abstractmethod
    def server_step(self, key: Key, server: Server, sent: Sent, received: Tree) -> Server:
        """The next ServerState."""

    def init_client(self, keys: StartKeys, data: ClientData) -> tuple[Client, Tally]:
        """What a client keeps between rounds and never sends; empty for stateless methods."""
        return cast(Client, ()), NOTHING

    def steps(self, sent: Sent, rows: Array) -> Array:
        """Local steps of a client with `rows` rows, never read from a PerClient leaf; `Batched` makes them settings."""
        return 1

    @property
    def reduction(self) -> Reduction:
        """How uploads are combined."""
        return weighted_mean

    def shared_model(self, server: Server) -> Params | None:
        """The one model for all clients, if there is one."""
        return None

    def deliver(self, key: Key, server: Server) -> Sent:
        """What `models` receives; billed once per client."""
        return self.broadcast(key, server)

    def point(self, sent: Sent, client: Client) -> tuple[Params, Params]:
        """Where the method stands in F(w, beta): w as delivered and beta_m; the empty tuple for what F lacks."""
        shared = getattr(sent, "shared", ()) if self.objective.has_shared else ()
        return shared, getattr(client, "personal", ()) if self.objective.has_personal else ()

    def models(self, key: Key, sent: Sent, client: Client, data: ClientData) -> tuple[Models, Tally]:
        """What client m predicts with, from what `deliver` sent; may fine-tune on its training rows."""
        shared, personal = self.point(sent, client)
        own = cast(Tree, client).prepared if isinstance(self.objective, Prepares) else personal
        model, tally = self.objective.personalize(key, shared, own, data.batch())
        return Models(model), tally

    def predict(self, model: Params, inputs: Array) -> Array:
        """Outputs of `shared_model` or of one of `models`."""
        return self.objective.predict(model, inputs)

    def fit(self, chance: float = 1.0) -> Fit:
        """Whether the objective, the number of clients (0: not known yet) and the settings suit the algorithm.

        `chance` is the probability that a client takes part in a round.
        """
        return Fit()


def beyond_theory(chance: float, why: str) -> Fit:
    """A fit that is not proven when clients are absent."""
    return Fit(warning=why if chance < 1 else None)


def fit_of(algorithm: Algorithm, chance: float = 1.0) -> Fit:
    """`algorithm.fit`, and what no algorithm needs to say for itself."""
    objective = algorithm.objective
    if isinstance(objective, Prepares) and not isinstance(algorithm, KeepsPrepared):
        return Fit(
            "its clients keep something that they prepared from their own rows, which this algorithm does not carry; "
            "use scafflix, flix_gd or flix_sgd"
        )
    fit, kept = algorithm.fit(chance), objective.statistics
    if fit.refused is not None or kept is None:
        return fit
    lost = kept.lost
    if not algorithm.carries_statistics:
        lost = "this algorithm does not carry; use fedavg, fedbn or another of those that docs/networks.md names"
    why = lost and f"its model keeps running statistics (batch normalisation), which {lost}, or {kept.way_out}"
    return fit._replace(refused=why)


def population(algorithm: Algorithm) -> int:
    """M; refuses to compute with an M that no engine has filled in."""
    if algorithm.clients == 0:
        name = type(algorithm).__name__
        raise RequestError(f"{name}.clients must be the number of clients M, got 0. Pass clients=M or use an engine.")
    return algorithm.clients
