# SPDX-License-Identifier: Apache-2.0
"""What a method asks of one client and of the server: bytes kept between rounds, and floating-point operations.

Nothing is trained. Bytes are read off the types. Operations are counted by the compiler on the program of *one* client
without padding; the compiler counts a loop's body once, so that what is repeated is counted again here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun

from idiolect.core import keys
from idiolect.core.addressing import address
from idiolect.core.algorithm import Algorithm
from idiolect.core.data import ClientData, Rows
from idiolect.core.keys import Key, Purpose, StartKeys
from idiolect.engines import door
from idiolect.engines.client import Round, Task, receive, send, step
from idiolect.engines.start import LOOK_AHEAD


class Storage(NamedTuple):
    """Bytes kept between rounds, and of the model that a client predicts with; rows of data are not counted."""

    client_bytes: int  # the state of the client with most rows
    server_bytes: int
    model_bytes: int


class Flops(NamedTuple):
    """Floating-point operations of one client, as the compiler counts them before it optimises."""

    training: float  # one round's local work
    adaptation: float  # making the personal model from what was delivered
    prediction: float  # of the personal model, one row
    rows: int  # the client's training rows
    steps: float  # its local steps per round; the mean where they are drawn
    complete: bool  # false where a loop ends by its own test: it is counted as one turn


def storage(algorithm: Algorithm, rows: Rows, precision: str) -> Storage:
    """Read off the types."""
    with door.run_precision(precision):
        data = _example(rows, int(rows.counts.max(initial=1)), door.PRECISIONS[precision])

        def start(held: ClientData) -> tuple[Any, Any, Any]:
            root = keys.root_key(0)
            server = algorithm.init_server(root)
            own, sent = address((algorithm, algorithm.deliver(root, server)), 0)
            state, _ = own.init_client(StartKeys(root, root), held)
            return state, server, own.models(root, sent, state, held)[0].personal

        return Storage(*(_bytes(part) for part in jax.eval_shape(start, data)))


def client_flops(algorithm: Algorithm, server: Any, seed: int, rows: Rows, precision: str) -> Flops:
    """Of a client with as many rows as the mean client, client 0 where settings differ from client to client."""
    number = max(1, round(float(rows.counts.mean())))
    with door.run_precision(precision), jax.ensure_compile_time_eval():
        # what does not depend on rows or parameters, the number of steps say, is known while tracing
        data = _example(rows, number, door.PRECISIONS[precision])
        root = keys.root_key(seed)
        shapes = jax.tree.map(_shape, server)
        held = data._replace(count=np.int32(number))
        steps = _steps(algorithm, root, server, number)

        def rows_of(inputs: Any, targets: Any) -> ClientData:
            return held._replace(inputs=inputs, targets=targets)

        state = jax.eval_shape(
            lambda *part: address(algorithm, 0).init_client(StartKeys(root, root), rows_of(*part))[0], *data[:2]
        )

        def task(server: Any, state: Any, *part: Any) -> Task:
            return Task(Round(algorithm, root, 0, algorithm.broadcast(root, server)), 0, state, rows_of(*part))

        def begin(server: Any, state: Any, *part: Any) -> Any:
            return receive(task(server, state, *part))[0]

        def move(server: Any, working: Any, t: Any, *part: Any) -> Any:
            return step(task(server, (), *part), t, working)[0]

        def end(server: Any, working: Any, state: Any, *part: Any) -> Any:
            own = task(server, state, *part)
            upload, kept, _ = send(own, working)
            settle, sent = own.seen[0].settle, own.seen[1]
            return upload, kept if settle is None else settle(root, sent, kept, own.data)

        def adapt(server: Any, state: Any, *part: Any) -> Any:
            own, sent = address((algorithm, algorithm.deliver(root, server)), 0)
            return own.models(root, sent, state, rows_of(*part))[0].personal

        def predict(model: Any, inputs: Any) -> Any:
            return address(algorithm, 0).predict(model, inputs)

        working = jax.eval_shape(begin, shapes, state, *data[:2])
        moment = jax.ShapeDtypeStruct((), jnp.int32)
        received, one_step, sent_up = (
            _count(function, *arguments, *data[:2])
            for function, arguments in (
                (begin, (shapes, state)),
                (move, (shapes, working, moment)),
                (end, (shapes, working, state)),
            )
        )
        adapted = _count(adapt, shapes, state, *data[:2])
        model = jax.eval_shape(adapt, shapes, state, *data[:2])
        one_row = jax.ShapeDtypeStruct((1, *data.inputs.shape[1:]), data.inputs.dtype)
        predicted = _count(predict, model, one_row)
    training = received.flops + steps * one_step.flops + sent_up.flops
    complete = all(part.complete for part in (received, one_step, sent_up, adapted))
    return Flops(training, adapted.flops, predicted.flops, number, steps, complete)


class _Counted(NamedTuple):
    flops: float
    complete: bool


def _count(function: Any, *arguments: Any) -> _Counted:
    return _program(_rolled(jax.make_jaxpr(function)(*arguments)))


def _program(program: ClosedJaxpr) -> _Counted:
    once = jax.jit(jaxpr_as_fun(program)).lower(*program.in_avals).cost_analysis()
    more = _repeated(program)
    return _Counted(float((once or {}).get("flops", 0.0)) + more.flops, more.complete)


def _repeated(program: Any) -> _Counted:
    """What the compiler's count leaves out: every turn of a loop but the first."""
    total, complete = 0.0, True
    for equation in getattr(program, "jaxpr", program).eqns:
        name, inside = equation.primitive.name, [_repeated(part) for part in _nested(equation.params)]
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


def _nested(params: dict[str, Any]) -> list[Any]:
    """The programs among an equation's parameters."""
    groups = [value if isinstance(value, tuple | list) else (value,) for value in params.values()]
    return [one for group in groups for one in group if isinstance(one, ClosedJaxpr | Jaxpr)]


def _steps(algorithm: Algorithm, root: Key, server: Any, rows: int) -> float:
    """Local steps of a client with so many rows; where the server draws them, their mean over some rounds."""

    def in_round(number: int) -> float:
        sent = algorithm.broadcast(keys.round_key(root, Purpose.BROADCAST, number), server)
        return float(algorithm.steps(sent, rows))

    first = algorithm.steps(algorithm.broadcast(root, server), rows)
    return float(first) if isinstance(first, int) else float(np.mean([in_round(one) for one in range(LOOK_AHEAD)]))


def _example(rows: Rows, number: int, dtype: Any) -> ClientData:
    """The shapes of a client with so many rows."""

    def shape(values: np.ndarray) -> jax.ShapeDtypeStruct:
        kind = dtype if np.issubdtype(values.dtype, np.floating) else jax.dtypes.canonicalize_dtype(values.dtype)
        return jax.ShapeDtypeStruct((number, *values.shape[1:]), kind)

    weights = None if rows.weights is None else jax.ShapeDtypeStruct((number,), dtype)
    return ClientData(shape(rows.inputs), shape(rows.targets), jax.ShapeDtypeStruct((), jnp.int32), weights)


def _shape(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf))


def _bytes(tree: Any) -> int:
    """Of every array, PerClient ones whole."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
