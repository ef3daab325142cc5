# SPDX-License-Identifier: Apache-2.0
"""A run killed without warning continues in a new process as if nothing had happened."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from idiolect.core.keys import Purpose, host_generator

SCRIPT = """
import hashlib, sys, time
from pathlib import Path
import jax, numpy as np
from idiolect.algorithms import ALGORITHMS
from idiolect.core.data import Rows
from idiolect.data.federation import Federation
from idiolect.data.task import Task
from idiolect.engines.checkpoint import Checkpoint
from idiolect.engines.door import Training
from idiolect.engines.simulate import Options, simulate
from idiolect.experiments.compilation import enable_cache
from idiolect.models import Linear
from idiolect.objectives import ClientLoss, GlobalModel

enable_cache()
folder, seconds, states = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
draw = np.random.default_rng(0)
sizes = (3, 5, 4, 5)
offsets = np.concatenate([[0], np.cumsum(sizes)])
rows = Rows(draw.normal(size=(17, 3)), draw.integers(0, 3, 17).astype(np.int32), offsets)
federation = Federation(rows, rows, rows, tuple("abcd"), Task.classification(("x", "y", "z")))
objective = GlobalModel(ClientLoss(model=Linear(3, 3), criterion="cross_entropy", l2=0.1))
algorithm = ALGORITHMS["scaffold"].algorithm(objective, epochs=1, batch_size=2)
training = Training(rounds=60, cohort=3, dropout=0.2, record_every=2, block=2, executor="batched")

def progress(done, rounds):
    print(done, flush=True)
    time.sleep(seconds)

options = Options(
    checkpoint=Checkpoint(folder / "checkpoint", every=4), resume=True, progress=progress,
    state_folder=folder / "states" if states == "disk" else None,
)
run = simulate(algorithm, federation, training, seed=5, options=options)
states = run.plan.population.file.read(np.arange(4)) if run.states is None else jax.tree.leaves(run.states)
history = [sorted((k, v) for k, v in row.items() if k != "seconds") for row in run.history]
leaves = [np.asarray(leaf) for leaf in (*jax.tree.leaves(run.server), *states)]
digest = hashlib.sha256(b"".join(leaf.tobytes() for leaf in leaves) + repr((history, run.ledger)).encode())
print("digest", digest.hexdigest(), flush=True)
"""
LIMIT_SECONDS = 90  # far more than a run takes on a busy core; a hang fails instead of waiting


def command(script, folder, seconds, states):
    return [sys.executable, str(script), str(folder), str(seconds), states]


def digest_of(script, folder, states, environment):
    done = subprocess.run(
        command(script, folder, 0.0, states),
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split("\n")
    first = int(lines[0]) if lines[0].isdigit() else None
    return next(line for line in lines if line.startswith("digest")), first


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("script") / "train.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture(scope="module")
def uninterrupted(script, environment):
    """The digest of the same run, never killed, with client states in memory."""
    digest, first = digest_of(script, script.parent / "whole", "memory", environment)
    assert first == 2
    return digest


@pytest.mark.parametrize("states", ["memory", "disk"])
def test_killed_and_resumed_is_never_interrupted(states, script, uninterrupted, tmp_path, environment):
    process = subprocess.Popen(
        command(script, tmp_path, 0.05, states),
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + LIMIT_SECONDS
        while not (tmp_path / "checkpoint" / "latest.npz").exists():
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        # anywhere in the remaining 56 rounds of 25 ms each, writing of checkpoints included
        time.sleep(float(host_generator(7, Purpose.BOOTSTRAP).uniform(0, 0.7)))
        assert process.poll() is None, "the run ended before it could be killed"
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == -signal.SIGKILL

    resumed, first = digest_of(script, tmp_path, states, environment)
    assert first > 2  # it did continue, from a checkpoint
    assert resumed == uninterrupted
