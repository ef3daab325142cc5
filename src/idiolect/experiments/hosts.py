# SPDX-License-Identifier: Apache-2.0
"""One run over several hosts, on JAX's own runtime: all of them run the same program, and the first writes the folder.

The others run in a temporary folder of their own, which begins as the first one's stands: whatever is read back from
it, choices and checkpoints say, is read alike everywhere, and no host waits for another that decided otherwise.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import jax
import numpy as np
from jax.experimental import multihost_utils

from idiolect.engines.shard import start_devices
from idiolect.experiments.spec import Spec, to_table
from idiolect.record import standing
from idiolect.record.errors import LostHostError, RequestError
from idiolect.record.lock import LOCK
from idiolect.theory.constants import one_by_one

PATIENCE = 300  # seconds until all hosts must have met
# plain digits, since JAX hands the address to the system as it stands; an address of IPv6 has colons, and brackets
_ASKED = re.compile(
    r"(?P<address>([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?\]):(?P<port>[0-9]{1,5})),"
    r"(?P<count>[0-9]{1,6}),(?P<number>[0-9]{1,6})"
)
_PIECE = 1 << 26  # bytes that are sent at once
# how transports say that the other end is gone
_LOST = ("Gloo", "Connection reset", "Connection closed", "Broken pipe", "UNAVAILABLE", "DEADLINE_EXCEEDED", "NCCL")


def join(asked: str, spec: Spec) -> Spec:
    """Meet the other hosts; the spec with all devices that they have.

    `asked` is ADDRESS:PORT,HOSTS,NUMBER with the address of host 0, or "auto": from the variables of SLURM, Open MPI or
    Kubernetes.
    """
    if spec.tuning.minutes is not None:
        raise RequestError(
            f"tuning.minutes = {spec.tuning.minutes:g} is for one host, since clocks differ between several; leave it "
            "out, and bound training.rounds instead."
        )
    where = _parse(asked)
    if spec.training.devices == "auto":
        start_devices("auto")  # JAX divides a CPU only until its devices are counted, below
    # JAX would answer SIGTERM itself, and a command that should end would go on
    jax.config.update("jax_enable_preemption_service", False)
    try:
        _meet(asked, where)
    except ValueError as error:
        raise RequestError(
            f"--hosts auto needs an environment of SLURM, Open MPI or Kubernetes, and JAX found none ({error}); give "
            "ADDRESS:PORT,HOSTS,NUMBER instead."
        ) from None
    standing.join_others(is_first())
    training = dataclasses.replace(spec.training, devices=jax.device_count())
    return dataclasses.replace(spec, training=training)


def _meet(asked: str, where: tuple[str | None, int | None, int | None]) -> None:
    """Wait for the other hosts, and end the process with one sentence where they do not come."""
    failed: list[Exception] = []

    def initialize() -> None:
        try:
            # by itself JAX would end the process with a trace of its own
            jax.distributed.initialize(*where, initialization_timeout=2 * PATIENCE)
        except Exception as error:
            failed.append(error)

    # a thread of its own: Python hears no signal while its main thread waits inside of JAX
    waiting = threading.Thread(target=initialize, daemon=True)
    waiting.start()
    waiting.join(PATIENCE)
    if waiting.is_alive():
        sentence = f"After {PATIENCE} s not all hosts of --hosts {asked} had come; start all of them, with one address."
        print(f"Error: {sentence}", file=sys.stderr, flush=True)
        os._exit(1)  # nothing can call JAX back from waiting
    if failed:
        raise failed[0]


def _parse(asked: str) -> tuple[str | None, int | None, int | None]:
    if asked == "auto":
        return None, None, None
    found = _ASKED.fullmatch(asked)
    if found is None or not (int(found["number"]) < int(found["count"]) and 0 < int(found["port"]) < 2**16):
        raise RequestError(
            "--hosts must be 'auto' or ADDRESS:PORT,HOSTS,NUMBER with a number below that of hosts, such as "
            f"10.0.0.1:4000,2,0, got {asked!r}."
        )
    return found["address"], int(found["count"]), int(found["number"])


def over_hosts(function: Callable[[int], Sequence[float]], clients: int) -> np.ndarray:
    """What `one_by_one` returns, of which every host computes the clients whose rows are on its devices."""
    if not jax.distributed.is_initialized():
        return one_by_one(function, clients)
    devices = jax.devices()
    each = -(-clients // len(devices))  # as `Shards` cuts them
    owner = np.array([device.process_index for device in devices])[np.arange(clients) // each]
    counts = np.bincount(owner, minlength=jax.process_count())
    # where devices do not divide the clients, the last client's rows stand on those left over, too
    mine = np.flatnonzero(owner == jax.process_index()) if (owner == jax.process_index()).any() else [clients - 1]
    found = one_by_one(lambda place: function(mine[place]), len(mine))
    # as bytes: JAX would round double precision; and padded, because a collective needs one shape
    padded = np.zeros((counts.max(), found.shape[1]))
    padded[: len(found)] = found
    gathered = np.asarray(multihost_utils.process_allgather(padded.view(np.uint8)), np.uint8).view(np.float64)
    return np.concatenate([own[:count] for own, count in zip(gathered, counts)])


def is_first() -> bool:
    """Whether this host writes the run folder."""
    return jax.process_index() == 0


@contextlib.contextmanager
def workplace(folder: Path, spec: Spec, resume: bool) -> Iterator[Path]:
    """The run folder of this host; LostHostError where another one goes away before all have ended."""
    with contextlib.ExitStack() as stack:
        own = folder
        if not is_first():
            own = Path(stack.enter_context(tempfile.TemporaryDirectory())) / folder.name
        try:
            _begin_alike(own, spec, resume)
            yield own
            # the first host is also JAX's coordinator: if it left early, the others would take it for lost
            multihost_utils.sync_global_devices("the run has ended")
        except (RuntimeError, ValueError) as error:  # JAX raises both
            if isinstance(error, RequestError) or not any(word in str(error) for word in _LOST):
                raise
            raise LostHostError(standing.lost_host()) from error


def _begin_alike(folder: Path, spec: Spec, resume: bool) -> None:
    """Refuse another spec than the first host's; with `resume` have its files, too."""
    # choices and checkpoints of the first host decide what is still to do: every host must find the same
    names = _files(folder) if resume and is_first() else []
    ours = json.dumps(to_table(spec), sort_keys=True, default=str)
    sizes = [[name, (folder / name).stat().st_size] for name in names]
    theirs, files = json.loads(_from_first(json.dumps([ours, sizes]).encode()))
    if theirs != ours:
        raise RequestError("This host was given another spec than the first; give all of them the same one.")
    for name, size in files:
        _copy(folder / name, size)


def _files(folder: Path) -> list[str]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != LOCK)
    return [str(path.relative_to(folder)) for path in paths]


def _copy(path: Path, size: int) -> None:
    """The first host's file, at every other."""
    if not is_first():
        path.parent.mkdir(parents=True, exist_ok=True)
    # all hosts run this loop in step, piece by piece: a checkpoint may be larger than their free memory
    with open(path, "rb" if is_first() else "wb") as file:
        for start in range(0, size, _PIECE):
            piece = _from_first(file.read(min(_PIECE, size - start)) if is_first() else b"")
            if not is_first():
                file.write(piece)


def _from_first(content: bytes) -> bytes:
    """What the first host gave; all of them must call this."""
    # the length goes first: a collective needs arrays of one shape at every host
    length = int(multihost_utils.broadcast_one_to_all(np.int32(len(content))))
    values = np.frombuffer(content, np.uint8) if is_first() else np.zeros(length, np.uint8)
    return np.asarray(multihost_utils.broadcast_one_to_all(values), np.uint8).tobytes()
