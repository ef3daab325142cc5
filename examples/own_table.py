# SPDX-License-Identifier: Apache-2.0
"""Your own table: one row per example, a column that names the client, a column to predict.

python examples/own_table.py                                   # writes a small table of its own and compares on it
python examples/own_table.py visits.csv --client clinic --target admitted
"""

from __future__ import annotations

import argparse
import csv
import math
import tempfile
from pathlib import Path

import numpy as np

from idiolect import ALGORITHMS, OBJECTIVES, ClientLoss, Federation, Linear, Training, simulate
from idiolect.metrics import default_score, paired_gain, summarise

METHODS = ("local", "fedavg", "personalized_local_sgd")


def write_table(path: Path, clinics: int = 12, rows: int = 25) -> None:
    """Clinics that agree about age but not about blood pressure; one value in ten is missing."""
    draw = np.random.default_rng(0)
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["clinic", "age", "pressure", "ward", "admitted"])
        for clinic in range(clinics):
            sign = 1 if clinic % 2 else -1
            for _ in range(rows):
                age, pressure = draw.normal(60, 12), draw.normal(130, 15)
                odds = (age - 60) / 6 + sign * (pressure - 130) / 10
                admitted = "yes" if draw.random() < 1 / (1 + math.exp(-odds)) else "no"
                shown = "" if draw.random() < 0.1 else f"{pressure:.0f}"
                writer.writerow([f"clinic {clinic}", f"{age:.0f}", shown, draw.choice(["north", "south"]), admitted])


def compare(path: Path, client: str, target: str, rounds: int) -> None:
    """Train each method and say, per method, how clients fare against training alone."""
    federation = Federation.from_table(path, client=client, target=target, task="classification")
    for sentence in (*federation.describe(), *federation.notes):
        print(sentence)
    score, reason = default_score(federation.task.kind, federation.class_balance())
    print(reason)
    model = Linear(math.prod(federation.input_shape), federation.task.outputs)
    answers = {}
    for name in METHODS:
        method = ALGORITHMS[name]
        objective = OBJECTIVES[method.objective](ClientLoss(model=model))
        algorithm = method(objective, epochs=1, batch_size=10)
        run = simulate(algorithm, federation, Training(rounds=rounds, record_every=5), scores=(score, "log_loss"))
        answers[name] = np.asarray(run.recorder.selected["test"]["personal"][score])
        line = f"{name:<24} {summarise(answers[name], True).mean:.3f}  bytes {run.ledger.total_bytes:>8}"
        if name != "local":
            gain = paired_gain(answers[name], answers["local"], higher_is_better=True)
            line += f"  gain {gain.mean:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]  better {gain.better:.0f} %"
        print(line)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", nargs="?", type=Path)
    parser.add_argument("--client", default="clinic")
    parser.add_argument("--target", default="admitted")
    parser.add_argument("--rounds", type=int, default=30)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = given.table or Path(folder) / "visits.csv"
        if given.table is None:
            write_table(path)
        compare(path, given.client, given.target, given.rounds)


if __name__ == "__main__":
    main()
