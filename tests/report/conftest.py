# SPDX-License-Identifier: Apache-2.0
"""Synthetic run folders: small, seeded, with the holes that real runs have."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from idiolect.record.codec import to_json
from idiolect.record.divergence import Divergence
from idiolect.record.schema import Gain, MethodSummary, RunSummary, Scores
from idiolect.report import build_report

RECORDED = (0, 1, 2, 5, 10, 20, 30, 40, 50)
COSTS = ("download_bytes", "upload_bytes", "gradients_shared", "gradients_personal", "gradients_both")


@dataclasses.dataclass(frozen=True)
class Method:
    """What one synthetic method does: how far it lifts clients over training alone, and what a round costs."""

    name: str
    algorithm: str
    lift: float = 0.0  # mean gain in accuracy
    has_shared: bool = True
    bytes_per_client: int = 40_000  # each way, each round
    gradients: tuple[int, int, int] = (0, 0, 640)  # shared, personal, both: per client and round
    diverges_at: int | None = None
    speed: float = 0.15


LOCAL = Method("local", "local", has_shared=False, bytes_per_client=0, gradients=(0, 640, 0), speed=0.3)
FEDAVG = Method("fedavg", "local_sgd", lift=0.015, gradients=(640, 0, 0), speed=0.08)
PERSONAL = Method("personal heads", "lsgd_pfl", lift=0.05, has_shared=False, bytes_per_client=31_000)
WILD = Method("fedavg-wild", "local_sgd", gradients=(640, 0, 0), diverges_at=7)
USUAL = (LOCAL, FEDAVG, PERSONAL, WILD)


def write_run(
    folder: Path,
    methods: tuple[Method, ...] = USUAL,
    clients: int = 20,
    seeds: int = 2,
    names: Callable[[int], str] = lambda m: f"hospital-{m + 1:02d}",
    score: str = "accuracy",
    finished: bool = True,
    solved: bool = False,
) -> Path:
    """Write a run folder; without the method `local` no client has a gain. `solved`: the optimum is known."""
    folder.mkdir(parents=True)
    higher = score == "accuracy"
    generator = np.random.default_rng(20250417)
    alone = np.clip(0.72 + 0.09 * generator.standard_normal((1, clients)), 0.3, 0.97)
    alone = alone + 0.01 * generator.standard_normal((seeds, clients))
    rows = generator.integers(40, 400, clients)
    has_alone = any(method.algorithm == "local" for method in methods)
    history, people, entries = [], [], []
    for method in methods:
        own = 0.05 * generator.standard_normal((1, clients)) if method.algorithm != "local" else 0.0
        noise = 0.01 * generator.standard_normal((seeds, clients)) if method.algorithm != "local" else 0.0
        scores = np.clip(alone + method.lift + own + noise, 0.05, 0.995)
        scores[:, 0] = np.nan  # the first client has no test rows
        scores, base = (scores, alone) if higher else (1.2 - scores, 1.2 - alone)
        if method.diverges_at is not None:
            scores = np.full_like(scores, np.nan)
        gain = (scores - base) if higher else (base - scores)
        for seed in range(seeds):
            lines = _history(method, seed, scores[seed], score, higher, clients)
            gaps = [{"suboptimality": 10.0 ** -(place + seed)} if solved else {} for place in range(len(lines))]
            history += [line | gap for line, gap in zip(lines, gaps)]
            people += _people(method, seed, scores[seed], base[seed], gain[seed], rows, names, score, has_alone)
        entries.append(_entry(method, scores, gain, higher, has_alone, clients))
    pq.write_table(pa.Table.from_pylist(_same_keys(history)), folder / "history.parquet")
    pq.write_table(pa.Table.from_pylist(_same_keys(people)), folder / "clients.parquet")
    summary = RunSummary(
        name=folder.name,
        scores=(score,),
        higher_is_better={score: higher},
        score_reason=f"Scored by {score}: the classes are balanced.",
        notes=("3 rows without a target were left out.",),
        warnings=("Client hospital-01 has no test rows.",),
        methods=tuple(entries),
    )
    (folder / "summary.json").write_text(json.dumps(to_json(summary)))
    (folder / "spec.toml").write_text('name = "demo"\nseeds = [0, 1]\n\n[data]\nclient = "hospital"\n')
    machine = {"python": "3.11.9", "jax": "0.10.0", "devices": ["cpu:0"], "cpu_count": 2}
    (folder / "machine.json").write_text(json.dumps(machine | {"command_line": "idiolect compare data.csv"}))
    if finished:
        (folder / "done").touch()
    return folder


def _history(method, seed, scores, score, higher, clients):
    """A curve that starts 0.3 below its end and closes the distance geometrically."""
    lines, sign = [], 1 if higher else -1
    end = np.nanmean(scores) if np.isfinite(scores).any() else 0.5
    jitter = np.random.default_rng([seed, len(method.name)])
    for round_number in RECORDED:
        rest = 0.3 * np.exp(-method.speed * round_number) + 0.006 * jitter.standard_normal()
        mean = end - sign * rest
        worst = mean - sign * 0.12
        if method.diverges_at is not None and round_number >= method.diverges_at:
            mean = worst = None
        work = round_number * clients
        model = "shared" if method.name == "fedavg" else "personal"
        lines.append(
            {
                "method": method.name,
                "seed": seed,
                "round": round_number,
                "seconds": 0.02 * round_number,
                "rounds": round_number,
                "download_bytes": work * method.bytes_per_client,
                "upload_bytes": work * method.bytes_per_client,
                "delivery_bytes": 0,
                "gradients_shared": work * method.gradients[0],
                "gradients_personal": work * method.gradients[1],
                "gradients_both": work * method.gradients[2],
                f"validation_personal_{score}_mean": mean,
                f"validation_personal_{score}_worst_decile": worst,
                f"validation_personal_{score}_spread": 0.09,
                f"validation_{model}_{score}_mean": mean,
            }
        )
    return lines


def _people(method, seed, scores, base, gain, rows, names, score, has_alone):
    lines = []
    for m, value in enumerate(scores):
        known = has_alone and np.isfinite(gain[m])
        half = 0.0 if method.algorithm == "local" else 0.6 / np.sqrt(rows[m])
        low, high = (gain[m] - half, gain[m] + half) if known else (None, None)
        verdict = "unclear"
        if known:
            verdict = "helped" if low > 0 else "hurt" if high < 0 else "same" if half == 0 else "unclear"
        answer = None if np.isnan(value) else float(value)
        lines.append(
            {
                "method": method.name,
                "seed": seed,
                "client": names(m),
                "train_rows": int(rows[m]),
                "validation_rows": int(rows[m]) // 5,
                "test_rows": 0 if m == 0 else int(rows[m]) // 4,
                f"test_shared_{score}_selected": answer if method.has_shared else None,
                f"test_personal_{score}_selected": answer,
                f"test_personal_{score}_last": answer,
                "local_score": float(base[m]) if has_alone and m else None,
                "score": answer,
                "gain": float(gain[m]) if known else None,
                "gain_low": None if low is None else float(low),
                "gain_high": None if high is None else float(high),
                "verdict": verdict,
                "held_out": False,
            }
        )
    return lines


def _entry(method, scores, gain, higher, has_alone, clients):
    """The summary's entry, computed from the same scores as the tables."""
    present = scores[:, 1:]
    dead = method.diverges_at is not None
    tenth = max(1, present.shape[1] // 10)
    ordered = np.sort(present, axis=1) if higher else -np.sort(-present, axis=1)
    gains = gain[:, 1:]
    mean = float(present.mean())
    score = Scores(mean, float(present.std(axis=1).mean()), float(ordered[:, :tenth].mean()))
    score = dataclasses.replace(score, **{f"p{p}": float(np.percentile(present, p)) for p in (10, 25, 50, 75, 90)})
    error = 2 * gains.std() / np.sqrt(gains.size)
    rounds = RECORDED[-1]
    costs = (method.bytes_per_client, method.bytes_per_client, *method.gradients)
    entry = MethodSummary(
        method=method.name,
        algorithm=method.algorithm,
        objective="global_model" if method.has_shared else "split_model",
        summary=f"{method.name}: one line about it",
        seeds=tuple(range(len(scores))),
        settings={"step_size": 0.1, "local_steps": 5},
        selected_rounds=(rounds,) * len(scores),
        rounds=rounds,
        delivery_bytes=clients * method.bytes_per_client,
        **{name: rounds * clients * cost for name, cost in zip(COSTS, costs, strict=True)},
        useful_steps=rounds * clients * 5,
        executed_steps=rounds * clients * 6,
        seconds=1.25,
    )
    if dead:
        return dataclasses.replace(entry, diverged=Divergence(method.diverges_at, "hospital-03"))
    entry = dataclasses.replace(
        entry,
        score=score,
        seed_means=tuple(float(mean) for mean in present.mean(axis=1)),
        interval=(mean - 0.02, mean + 0.02),
        shared_mean=mean if method.has_shared else None,
        last_mean=mean,
    )
    if not has_alone:
        return entry
    percents = [100 * float(part.mean()) for part in (gains > 0, gains < 0, gains == 0)]
    middle = float(gains.mean())
    gain = Gain(middle, middle - float(error), middle + float(error), present.shape[1], "local")
    return dataclasses.replace(entry, helped=percents[0], hurt=percents[1], same=percents[2], gain=gain)


def _same_keys(lines):
    keys = dict.fromkeys(key for line in lines for key in line)
    return [{key: line.get(key) for key in keys} for line in lines]


@pytest.fixture
def make_run(tmp_path):
    """A function that writes a run folder: make_run(name, **what differs)."""
    return lambda name="demo", **options: write_run(tmp_path / name, **options)


@pytest.fixture
def folder(make_run):
    """Three methods that finished and one that diverged, two seeds, twenty clients."""
    return make_run()


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """The usual folder with its report built; for tests that only look."""
    folder = write_run(tmp_path_factory.mktemp("runs") / "demo")
    build_report(folder)
    return folder


@pytest.fixture
def folder_without_alone(make_run):
    return make_run("no-local", methods=(FEDAVG, PERSONAL))


@pytest.fixture
def methods():
    return {method.name: method for method in USUAL}


def mark_new(folder, number):
    """Mark the last clients of a folder as new, in place."""
    clients = pq.read_table(folder / "clients.parquet")
    names = clients["client"].to_pylist()
    new = sorted(set(names))[-number:]
    column = pa.array([name in new for name in names])
    place = clients.column_names.index("held_out")
    pq.write_table(clients.set_column(place, "held_out", column), folder / "clients.parquet")


@pytest.fixture
def hold_out():
    """A function that marks the last clients of a folder as new, in place: hold_out(folder, number)."""
    return mark_new


@pytest.fixture
def edit_summary():
    """A function that changes a folder's summary.json in place: edit_summary(folder, change)."""

    def edit(folder, change):
        file = folder / "summary.json"
        summary = json.loads(file.read_text())
        change(summary)
        file.write_text(json.dumps(to_json(summary)))

    return edit
