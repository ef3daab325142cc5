# SPDX-License-Identifier: Apache-2.0
"""What a method asks of one client and of the server: bytes kept between rounds, and floating-point operations.

Nothing is trained. Bytes are read off the types. Operations are counted by the compiler on the program of *one* client
without padding; the compiler counts a loop's body once, so that what is repeated is counted again here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun

from idiolect.core import keys
from idiolect.core.addressing import address
from idiolect.core.algorithm import Algorithm
from idiolect.core.data import ClientData, Rows
from idiolect.core.keys import Key
from idiolect.core.tree import Tree, size_in_bytes
from idiolect.engines import door
from idiolect.engines.client import Round, Task, client_init, client_model, client_settle, receive, send, step
from idiolect.engines.server import deliver, open_round, server_init
from idiolect.engines.start import LOOK_AHEAD, example_of
from idiolect.record.schema import Flops, Storage


def storage(algorithm: Algorithm, rows: Rows, precision: str) -> Storage:
    """Read off the types."""
    with door.run_precision(precision):
        data = example_of(rows, int(rows.counts.max(initial=1)), door.PRECISIONS[precision])

        def start(held: ClientData) -> tuple[Tree, Tree, Tree]:
            root = keys.root_key(0)
            server, (state, _) = server_init(algorithm, root), client_init(algorithm, root, 0, held)
            models, _ = client_model(Task(deliver(algorithm, root, 0, server), 0, state, held))
            return state, server, models.personal

        return Storage(*map(size_in_bytes, jax.eval_shape(start, data)))


@dataclasses.dataclass(frozen=True)
class _Client:
    """The parts of one client's work, each a function of shapes: what comes first, then inputs and targets of rows."""

    algorithm: Algorithm
    root: Key
    held: ClientData

    def task(self, server: Tree, state: Tree, *part: Tree) -> Task:
        now = Round(self.algorithm, self.root, 0, self.algorithm.broadcast(self.root, server))
        return Task(now, 0, state, self.rows(*part))

    def rows(self, inputs: Tree, targets: Tree) -> ClientData:
        return self.held._replace(inputs=inputs, targets=targets)

    def init(self, *part: Tree) -> Tree:
        return client_init(self.algorithm, self.root, 0, self.rows(*part))[0]

    def receive(self, server: Tree, state: Tree, *part: Tree) -> Tree:
        return receive(self.task(server, state, *part))[0]

    def step(self, server: Tree, working: Tree, t: jax.Array, *part: Tree) -> Tree:
        return step(self.task(server, (), *part), t, working)[0]

    def send(self, server: Tree, working: Tree, state: Tree, *part: Tree) -> Tree:
        task = self.task(server, state, *part)
        upload, kept, _ = send(task, working)
        return upload, kept if self.algorithm.settle is None else client_settle(task._replace(state=kept))

    def adapt(self, server: Tree, state: Tree, *part: Tree) -> Tree:
        delivered = deliver(self.algorithm, self.root, 0, server)
        return client_model(Task(delivered, 0, state, self.rows(*part)))[0].personal

    def predict(self, model: Tree, inputs: Tree) -> Tree:
        return address(self.algorithm, 0).predict(model, inputs)


def client_flops(algorithm: Algorithm, server: Tree, seed: int, rows: Rows, precision: str) -> Flops:
    """Of a client with as many rows as the mean client, client 0 where settings differ from client to client."""
    number = max(1, round(float(rows.counts.mean())))
    with door.run_precision(precision), jax.ensure_compile_time_eval():
        # what does not depend on rows or parameters, the number of steps say, is known while tracing
        data = example_of(rows, number, door.PRECISIONS[precision])
        root, part = keys.root_key(seed), data[:2]
        one = _Client(algorithm, root, data._replace(count=np.int32(number)))
        server_shapes = jax.eval_shape(lambda: server)
        steps = _steps(algorithm, root, server, number)
        state = jax.eval_shape(one.init, *part)
        working = jax.eval_shape(one.receive, server_shapes, state, *part)
        received = _count(one.receive, server_shapes, state, *part)
        moved = _count(one.step, server_shapes, working, jax.ShapeDtypeStruct((), jnp.int32), *part)
        sent = _count(one.send, server_shapes, working, state, *part)
        adapted = _count(one.adapt, server_shapes, state, *part)
        model = jax.eval_shape(one.adapt, server_shapes, state, *part)
        one_row = jax.ShapeDtypeStruct((1, *data.inputs.shape[1:]), data.inputs.dtype)
        predicted = _count(one.predict, model, one_row)
    training = received.flops + steps * moved.flops + sent.flops
    complete = all(part.complete for part in (received, moved, sent, adapted))
    return Flops(training, adapted.flops, predicted.flops, number, steps, complete)


class _Counted(NamedTuple):
    flops: float
    complete: bool


def _count(function: Callable[..., Tree], *arguments: Tree) -> _Counted:
    return _program(_rolled(jax.make_jaxpr(function)(*arguments)))


def _program(program: ClosedJaxpr) -> _Counted:
    # counted by the compiler before it optimises: what it saves differs from machine to machine, the method does not
    once = jax.jit(jaxpr_as_fun(program)).lower(*program.in_avals).cost_analysis()
    more = _repeated(program)
    return _Counted(float((once or {}).get("flops", 0.0)) + more.flops, more.complete)


def _repeated(program: ClosedJaxpr | Jaxpr) -> _Counted:
    """What the compiler's count leaves out: every turn of a loop but the first."""
    total, complete = 0.0, True
    for equation in getattr(program, "jaxpr", program).eqns:
        name, inside = equation.primitive.name, [_repeated(part) for part in _nested(equation.params)]
        # how often a `while` turns is known only by running it
        complete &= all(part.complete for part in inside) and name != "while"
        repeats = [part.flops for part in inside]
        total += max(repeats, default=0.0) if name == "cond" else sum(repeats)  # of branches, it counts the dearest
        if name == "scan":
            total += (equation.params["length"] - 1) * _program(equation.params["jaxpr"]).flops
    return _Counted(total, complete)


def _rolled(program: Any) -> Any:
    """The same program with every unrolled loop rolled up: the compiler would count the copies."""
    if isinstance(program, tuple | list):
        return type(program)(_rolled(one) for one in program)
    if isinstance(program, ClosedJaxpr):
        return ClosedJaxpr(_rolled(program.jaxpr), program.consts)
    if not isinstance(program, Jaxpr):
        return program
    equations = []
    for equation in program.eqns:
        rolled = {"unroll": 1} if equation.primitive.name == "scan" else {}
        inside = {name: _rolled(value) for name, value in equation.params.items() if _nested({name: value})}
        equations.append(equation.replace(params=equation.params | inside | rolled))
    return program.replace(eqns=equations)


def _nested(params: dict[str, Any]) -> list[ClosedJaxpr | Jaxpr]:
    """The programs among an equation's parameters."""
    groups = [value if isinstance(value, tuple | list) else (value,) for value in params.values()]
    return [one for group in groups for one in group if isinstance(one, ClosedJaxpr | Jaxpr)]


def _steps(algorithm: Algorithm, root: Key, server: Tree, rows: int) -> float:
    """Local steps of a client with so many rows; where the server draws them, their mean over some rounds."""

    def in_round(number: int) -> float:
        return float(algorithm.steps(open_round(algorithm, root, number, server).sent, rows))

    first = algorithm.steps(algorithm.broadcast(root, server), rows)
    return float(first) if isinstance(first, int) else float(np.mean([in_round(one) for one in range(LOOK_AHEAD)]))
