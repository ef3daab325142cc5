# SPDX-License-Identifier: Apache-2.0
"""What attackers do to shared and to personal models, method against method under one epsilon, and scores by bytes.

Every number is a difference over the same honest clients: to the run without attackers and without a robust mean, to
FedAvg at the same epsilon, to the run whose uploads are whole; so its interval is that of the difference. Cells are
measured one by one, and a run goes on with those that the file of results does not have yet.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from benchmarks.measure import Result
from benchmarks.protection import METHODS, attackers, spec_of
from idiolect.core.checks import RequestError
from idiolect.engines.plan import Options
from idiolect.engines.simulate import open_session
from idiolect.experiments.prepare import prepare
from idiolect.experiments.protection import attackers_of
from idiolect.experiments.spec import Spec, from_table, to_table

STORE = Path(__file__).parent / "results" / "protection-attacks.json"
SOURCES = ("heart_disease", "landmine", "school")
ATTACKS = {"sign_flip": 3.0, "noise": 3.0, "label_flip": 1.0, "little_is_enough": 1.5, "inner_product": 3.0}
RULES = ("mean", "median", "geometric_median", "trimmed_mean", "krum", "norm_bound")
PART = 0.25  # of the clients that attack
EPSILONS = (10.0, 3.0, 1.0)
CODECS: dict[str, dict[str, Any]] = {
    "8 bits": {"kind": "quantise", "bits": 8},
    "top 1 in 10": {"kind": "top_k"},
    "rank 2": {"kind": "low_rank", "rank": 2},
    "rank 1": {"kind": "low_rank", "rank": 1},
    "signs, rank 2": {"kind": "low_rank", "rank": 2, "error_feedback": False},
    "last layer": {"kind": "whole", "only": ["dense_1"]},
}
WIDE = {"name": "mlp", "hidden": [32]}
Cell = dict[str, Any]


class Size(NamedTuple):
    """How much of it is measured."""

    sources: tuple[str, ...]
    methods: tuple[str, ...]
    attacks: tuple[str, ...]
    rules: tuple[str, ...]
    codecs: tuple[str, ...]
    epsilons: tuple[float, ...]
    rounds: int
    seeds: tuple[int, ...]


FULL = Size(SOURCES, tuple(METHODS), tuple(ATTACKS), RULES, tuple(CODECS), EPSILONS, 30, (0, 1))
QUICK = Size(("heart_disease",), ("fedavg",), ("inner_product",), ("mean",), ("rank 1",), (), 2, (0,))


def parts(quick: bool) -> Iterator[Result]:
    """All cells so far, after each of them."""
    size = QUICK if quick else FULL
    cells: dict[str, Cell] = {}
    if not quick and STORE.exists():
        cells = json.loads(STORE.read_text())["numbers"]
    for name, measure in plan(size, cells):
        if name not in cells:
            cells[name] = measure()
            yield Result(cells, text=table_text(cells))
    yield Result(cells, text=table_text(cells))


def plan(size: Size, cells: dict[str, Cell]) -> Iterator[tuple[str, Callable[[], Cell]]]:
    """Every cell by its name, and how it is measured; those that others are compared with first."""
    accounted = bool(size.epsilons) and importlib.util.find_spec("dp_accounting") is not None  # the extra `privacy`
    for source in size.sources:
        for method in size.methods:
            yield f"{source} {method} plain", lambda s=source, m=method: scores_of(sized(size, s, m))
        for rule, attack, method in itertools.product(size.rules, size.attacks, size.methods):
            yield (
                f"{source} {method} {rule} {attack}",
                lambda s=source, m=method, a=attack, r=rule: attacked(size, cells, s, m, a, r),
            )
        for method in size.methods if accounted else ():
            yield f"{source} {method} epsilon", lambda s=source, m=method: private(size, s, m)
        for method, name in itertools.product(size.methods[:1], ("whole", *size.codecs)):
            yield f"{source} {method} bytes {name}", lambda s=source, m=method, n=name: compressed(size, s, m, n)


def sized(size: Size, source: str, method: str, **sections: dict[str, Any]) -> Spec:
    """The spec of one run."""
    return spec_of(source, method, size.rounds, size.seeds, **sections)


def scores_of(*specs: Spec) -> Cell:
    """Scores of every client, the mean over seeds; of several specs that differ in floats alone one list each."""
    prepared = [prepare(spec) for spec in specs]
    first, count = specs[0], len(specs[0].seeds)
    lanes = [one.built[0].algorithm for one in prepared for _ in range(count)]
    score = first.evaluation.scores[0]
    seeds, options = list(first.seeds) * len(specs), Options(select_last=True)
    runs = open_session(lanes, prepared[0].federation, first.training, seeds, (score,), options).run()
    found: Cell = {"upload_bytes": runs[0].ledger.upload_bytes}
    for model in ("personal", "shared"):
        each = [run.recorder.last["test"].get(model, {}).get(score) for run in runs]
        if each[0] is not None:
            means = np.asarray(each, float).reshape(len(specs), count, -1).mean(axis=1)
            found[model] = np.round(means if len(specs) > 1 else means[0], 5).tolist()
    return found


def attacked(size: Size, cells: dict[str, Cell], source: str, method: str, attack: str, rule: str) -> Cell:
    """What attackers change for those who do not attack, against the plain run."""
    clients = len(cells[f"{source} {method} plain"]["personal"])
    number = attackers(clients, PART)
    sections: dict[str, Any] = {"attack": {"kind": attack, "strength": ATTACKS[attack], "clients": number}}
    if rule != "mean":
        sections["robustness"] = {"rule": rule, "attackers": number}
    spec, plain = sized(size, source, method, **sections), cells[f"{source} {method} plain"]
    try:
        found = scores_of(spec)
    except RequestError as refused:  # a rule that needs more clients, say
        return {"refused": str(refused)}
    wrong = attackers_of(spec, clients)
    return {
        model: paired(np.delete(found[model], wrong), np.delete(plain[model], wrong))
        for model in ("personal", "shared")
        if model in found
    }


def private(size: Size, source: str, method: str) -> Cell:
    """Scores of every client at each epsilon, with a clip that adapts."""
    common = {"clip": 0.5, "clipping": "adaptive"}
    specs = [sized(size, source, method, privacy={"epsilon": one} | common) for one in size.epsilons]
    found = scores_of(*specs)
    each = found["personal"] if len(specs) > 1 else [found["personal"]]
    return {f"{one:g}": scores for one, scores in zip(size.epsilons, each)}


def compressed(size: Size, source: str, method: str, codec: str) -> Cell:
    """Scores and bytes of a network with one hidden layer, whose uploads are matrices."""
    table = to_table(sized(size, source, method)) | {"model": WIDE}
    return scores_of(from_table(table if codec == "whole" else table | {"compression": CODECS[codec]}))


def paired(values: np.ndarray, others: np.ndarray) -> list[float]:
    """The mean of the differences, and the half-width of its 95 % interval; a model without numbers has no score."""
    apart = np.asarray(values, float) - np.asarray(others, float)
    apart = apart[np.isfinite(apart)]
    if len(apart) < 2:
        return [float("nan")] * 2
    half = stats.t.ppf(0.975, len(apart) - 1) * apart.std(ddof=1) / np.sqrt(len(apart))
    return [round(float(apart.mean()), 5), round(float(half), 5)]


def table_text(cells: dict[str, Cell]) -> str:
    """The tables for the documentation, as far as their cells are measured."""
    return "\n".join([*_attack_table(cells), *_epsilon_table(cells), *_bytes_table(cells)])


def _shown(found: list[float] | None) -> str:
    return "-" if found is None else f"{found[0]:+.3f} ± {found[1]:.3f}"


def _attack_table(cells: dict[str, Cell]) -> Iterator[str]:
    rows: dict[tuple[str, str, str], dict[str, Cell]] = {}
    for name, found in cells.items():
        source, method, rule, *attack = name.split(" ")
        if attack and rule in RULES:
            rows.setdefault((source, method, attack[0]), {})[rule] = found
    heads = [f"{rule}, {model}" for rule in RULES for model in ("shared", "personal")]
    yield from ("Change of the score by attackers", "", "| data, method, attack | " + " | ".join(heads) + " |")
    yield "|---" * (len(heads) + 1) + "|"
    for key, found in rows.items():
        shown = [_shown(found.get(rule, {}).get(model)) for rule in RULES for model in ("shared", "personal")]
        yield f"| {' '.join(key)} | " + " | ".join(shown) + " |"
    yield ""


def _epsilon_table(cells: dict[str, Cell]) -> Iterator[str]:
    yield from ("Personal models at an epsilon, less FedAvg's at the same", "")
    yield "| data, method | no privacy | " + " | ".join(f"epsilon {one:g}" for one in EPSILONS) + " |"
    yield "|---" * (len(EPSILONS) + 2) + "|"
    for name, found in cells.items():
        source, method, *kind = name.split(" ")
        base = cells.get(f"{source} fedavg epsilon")
        if kind != ["epsilon"] or method == "fedavg" or base is None:
            continue
        plain = [cells[f"{source} {one} plain"]["personal"] for one in (method, "fedavg")]
        pairs = [plain, *((found.get(f"{one:g}"), base.get(f"{one:g}")) for one in EPSILONS)]
        yield (
            f"| {source} {method} | " + " | ".join(_shown(paired(*pair) if pair[0] else None) for pair in pairs) + " |"
        )
    yield ""


def _bytes_table(cells: dict[str, Cell]) -> Iterator[str]:
    yield from ("Uploads of a network, less those of whole changes", "")
    yield from ("| data, method, codec | kB up | shared | personal |", "|---|---|---|---|")
    for name, found in cells.items():
        source, method, kind, *codec = name.split(" ")
        if kind != "bytes":
            continue
        whole = cells[f"{source} {method} bytes whole"]
        shown = [_shown(paired(found[model], whole[model])) for model in ("shared", "personal")]
        yield (
            f"| {source} {method} {' '.join(codec)} | {found['upload_bytes'] / 1000:.0f} | " + " | ".join(shown) + " |"
        )
