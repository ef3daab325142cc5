# SPDX-License-Identifier: Apache-2.0
"""The contract: one algorithm is one small file of pure functions that never knows which engine runs it.

```
server                              the wire                    client m
init_server(key)                                                init_client(key, data)
broadcast(key, server)         ->   Broadcast              ->   receive(key, sent, client, data)
                                                                step(key, t, sent, working, data)  x steps(sent, rows)
server_step(key, server,       <-   reduction(Upload, ..)  <-   send(key, sent, working, client, data)
            sent, received)    ->   Broadcast (optional)   ->   settle(key, sent, client, data)
shared_model(server)                deliver(key, server)   ->   personal_model(key, sent, client, data)
```

Only `Broadcast` and `Upload` cross the wire. `ClientState` stays on the client, `Working` lives inside one round.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np

from idiolect.core import batches
from idiolect.core.checks import setting
from idiolect.core.data import Batch, ClientData
from idiolect.core.keys import Key
from idiolect.core.objective import Objective
from idiolect.core.reduction import Reduction, weighted_mean
from idiolect.core.settings import Settings, settings
from idiolect.core.tally import NOTHING, Tally
from idiolect.core.tree import Params


class Messages(NamedTuple):
    """Messages of some rounds and their bytes, down and up. What one client sends another counts on both sides."""

    down: int
    up: int
    download_bytes: int
    upload_bytes: int


@runtime_checkable
class Routes(Protocol):
    """What an algorithm that routes inputs between two versions of some layers also has."""

    @property
    def route_names(self) -> tuple[str, ...]:
        """What each exit routes."""

    def shared_shares(self, model: Params, inputs: Any) -> Any:
        """Of a personal model, the share of each exit's shared version: (rows, exits), or (rows, time, exits)."""


@settings
class Algorithm(Settings, abc.ABC):
    """Base of every algorithm: seven methods to write, the rest have defaults."""

    without: ClassVar[tuple[str, ...]] = ()  # settings of this base that the method has no use for
    needs_everybody: ClassVar[str] = ""  # why a round with absent clients is meaningless; empty: it is not
    beyond_theory: ClassVar[str] = ""  # what is not proven when clients are absent; empty: nothing
    starts_alike: ClassVar[bool] = False  # clients start where the server does: `init_client` gets its key
    more_than_parameters: ClassVar[bool] = False  # personal models hold more than parameters of the objective's model
    listens: ClassVar[bool] = False  # its setting `neighbours`, who listens to whom, comes from [collaboration]
    takes_prepared: ClassVar[bool] = False  # keeps what clients prepare, as `ClientState.prepared`
    carries_statistics: ClassVar[bool] = False  # walks by `tree.descend` alone: running statistics stay right

    objective: Objective = dataclasses.field(kw_only=False)
    local_steps: int = setting(default=1, at_least=1, doc="local steps per round (K) when epochs is 0")
    epochs: int = setting(default=0, at_least=0, doc="passes over the client's rows per round; 0: use local_steps")
    batch_size: int = setting(default=0, at_least=0, doc="rows per local step; 0: all rows, exact gradients")
    clients: int = setting(default=0, at_least=0, doc="number of clients M; filled in by the engine")

    @abc.abstractmethod
    def init_server(self, key: Key) -> Any:
        """What the server keeps: a ServerState."""

    @abc.abstractmethod
    def broadcast(self, key: Key, server: Any) -> Any:
        """What goes down: a Broadcast. A leaf wrapped in PerClient is addressed: client i gets row i."""

    @abc.abstractmethod
    def receive(self, key: Key, sent: Any, client: Any, data: ClientData) -> tuple[Any, Tally]:
        """The Working state of one round's local work; batch orders are drawn here, once."""

    @abc.abstractmethod
    def step(self, key: Key, t: Any, sent: Any, working: Any, data: ClientData) -> tuple[Any, Tally]:
        """One local step. The key is fixed for (round, client): fold `t` in when randomness is needed."""

    @abc.abstractmethod
    def send(self, key: Key, sent: Any, working: Any, client: Any, data: ClientData) -> tuple[Any, Any, Tally]:
        """What goes up (an Upload with its `weight`) and what is kept (a ClientState)."""

    @abc.abstractmethod
    def server_step(self, key: Key, server: Any, sent: Any, received: Any) -> Any:
        """The next ServerState."""

    @abc.abstractmethod
    def personal_model(self, key: Key, sent: Any, client: Any, data: ClientData) -> tuple[Params, Tally]:
        """What client m predicts with; may fine-tune on its training rows."""

    def init_client(self, key: Key, data: ClientData) -> tuple[Any, Tally]:
        """What a client keeps between rounds and never sends; empty for stateless methods."""
        return (), NOTHING

    def steps(self, sent: Any, rows: Any) -> Any:
        """Local steps of a client with `rows` rows; never read from a PerClient leaf."""
        return self.epochs * batches.batches_per_epoch(rows, self.batch_size) if self.epochs else self.local_steps

    @property
    def common_start(self) -> bool:
        """Whether `init_client` gets the server's own key."""
        return self.starts_alike or self.objective.prepares

    @property
    def reduction(self) -> Reduction:
        """How uploads are combined."""
        return weighted_mean

    @property
    def settles(self) -> bool:
        """Whether the cohort that uploaded gets the new Broadcast back (`settle`), billed as a download."""
        return False

    def settle(self, key: Key, sent: Any, client: Any, data: ClientData) -> Any:
        """Finish the round on a client that has just uploaded."""
        return client

    def shared_model(self, server: Any) -> Params | None:
        """The one model for everybody, if there is one."""
        return None

    def received_model(self, key: Key, sent: Any, client: Any, data: ClientData) -> Params | None:
        """Without a `shared_model`: the whole model that client m has before its rows move a parameter, if any.

        The generalized accuracy is measured on it; it may be chosen by the client's rows, not changed by them. The
        arguments are those of `personal_model`.
        """
        return None

    def deliver(self, key: Key, server: Any) -> Any:
        """What `personal_model` receives; billed once per client."""
        return self.broadcast(key, server)

    def point(self, sent: Any, client: Any) -> tuple[Params, Params]:
        """Where the method stands in F(w, beta): w as delivered and beta_m; the empty tuple for what it lacks."""
        return getattr(sent, "shared", ()), getattr(client, "personal", ())

    def carry(self, earlier: Algorithm, server: Any, clients: Any) -> tuple[Any, Any]:
        """(server, clients) to go on with when settings change from `earlier`'s to these, between two rounds.

        `clients` has a row per client, and PerClient settings are whole. Default: everything stays as it is; a method
        whose states are right for its old settings only must mend them here.
        """
        return server, clients

    def takes_part(self) -> Any:
        """Who is ever in a round, one truth value or one per client: the others cost no message and no step.

        Asked on the host, where PerClient settings are whole. A client left out keeps what `init_client` gave it.
        """
        return self.objective.takes_part()

    def predict(self, model: Params, inputs: Any) -> Any:
        """Outputs of `shared_model`, `received_model` or `personal_model`."""
        return self.objective.predict(model, inputs)

    def traffic(self, sent: Any, cohort: int) -> tuple[int, int] | None:
        """Bytes (down, up) of one round where types do not tell (peer to peer); None: read off the types."""
        return None

    def traffic_of(
        self, sent: Any, upload: Any, rounds: np.ndarray, clients: np.ndarray, present: np.ndarray
    ) -> Messages | None:
        """What some rounds sent, where that depends on who took part; None: `traffic`, or the types, tell.

        `sent` and `upload` are types; `rounds` are round numbers, `clients` and `present` (rounds, cohort). Runs on the
        host, with the settings as admitted.
        """
        return None

    @property
    def delivers(self) -> bool:
        """Whether models are handed out at the end; not where every client holds its own already."""
        return True

    def misplaced(self, clients: int) -> str | None:
        """What does not suit this number of clients: the rest of a sentence that begins with the class's name."""
        return None

    def skip(self) -> str | None:
        """Why this algorithm cannot minimise its objective, or None when it can."""
        return None

    def misfit(self) -> str | None:
        """`skip`, after what no algorithm needs to say for itself."""
        if self.objective.prepares and not self.takes_prepared:
            return (
                "its clients keep something that they prepared from their own rows, which this algorithm does not "
                "carry; use scafflix, flix_gd or flix_sgd"
            )
        return self.skip() or (self._misses_statistics() if self.objective.keeps_statistics else None)

    def _misses_statistics(self) -> str | None:
        """Why running statistics would be lost, or None."""
        lost = self.objective.drops_statistics()
        if not self.carries_statistics:
            lost = "this algorithm does not carry; use fedavg, fedbn or another of those that docs/networks.md names"
        way_out = self.objective.without_statistics()
        return lost and f"its model keeps running statistics (batch normalisation), which {lost}, or {way_out}"

    def draw_batches(self, key: Key, data: ClientData) -> Any:
        """The rows of a whole round, for a Working state; empty when every step uses all rows."""
        if self.batch_size == 0:
            return ()
        if self.epochs:
            return batches.draw_orders(key, self.epochs, data)
        return batches.draw_with_replacement(key, self.local_steps, self.batch_size, data)

    def batch(self, t: Any, drawn: Any, data: ClientData) -> Batch:
        """The rows of step `t`, from what `draw_batches` drew."""
        if self.batch_size == 0:
            return data.batch()
        if self.epochs:
            return batches.take_from_order(data, drawn, t, self.batch_size)
        return batches.take_drawn(data, drawn, t)
