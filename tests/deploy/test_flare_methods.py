# SPDX-License-Identifier: Apache-2.0
"""A dozen methods over a FLARE system on loopback, killed once in the middle, equal the simulation."""

from __future__ import annotations

import itertools
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

pytest.importorskip("nvflare", reason="the extra flare (nvflare) is not installed")

from idiolect.engines.deploy.wire import HEADER_BYTES, HEADER_BYTES_OF_ARRAY
from idiolect.engines.simulate import open_session
from idiolect.experiments.flare import demo, jobs
from idiolect.experiments.flare.kits import SERVER, Federation, make_flare_kits
from idiolect.experiments.prepare import prepare
from idiolect.experiments.spec import from_table

pytestmark = pytest.mark.filterwarnings("ignore")  # what FLARE and its packages warn of is not ours

SECONDS = 400.0  # that a part of this may take on a busy machine
SITES = ("amber", "birch", "cedar")
ROUNDS, RECORD_EVERY, ROWS = 6, 3, 24
# every reduction (weighted mean, grouped mean, total, gather, nothing), settle, addressed settings and Broadcasts,
# prepared clients, server optimizers, states at clients and at the server, models that hold rows
METHODS = (
    *("fedavg", "scaffold", "scafflix", "l2gd", "ifca", "all_for_all"),
    *("local", "fedadam", "ditto", "acd_pfl", "apfl", "knn_per"),
)
IN_A_HURRY = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
)


def site_table(site: int) -> pa.Table:
    draw = np.random.default_rng([7, site])
    rows = draw.normal(size=(ROWS, 3)).round(4)
    signs = rows @ [1.0, -0.5, 0.3 * site] + 0.3 * draw.normal(size=ROWS) > 0
    return pa.table({**dict(zip("abc", rows.T)), "y": np.where(signs, "yes", "no")})


def spec_of(path: Path):
    return from_table(
        {
            "name": "trial",
            "seeds": [1],
            "data": {"source": "table", "path": str(path), "client": "site", "target": "y", "preparation": "federated"},
            "model": {"name": "linear", "l2": 0.1},
            "training": {
                "rounds": ROUNDS,
                "record_every": RECORD_EVERY,
                "precision": "float64",
                "executor": "batched",
                "block": RECORD_EVERY,
            },
            "tuning": {"auto": False},
            "evaluation": {"scores": ["log_loss"], "optimum": "never"},
            "methods": {name: {} for name in METHODS},
        }
    )


def wait_until(condition, seconds=SECONDS) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it takes too long"
        time.sleep(0.1)


def deploy(folder: Path, spec, tables) -> SimpleNamespace:
    """Start all; kill the server and a site once a method is trained; start them and the run again."""
    kits = make_flare_kits(folder, spec, Federation(SITES, port=demo.free_port(), leads=(demo.LEAD,)))
    for site, table in tables.items():
        pacsv.write_csv(table, kits[site] / "rows.csv")
    result, lead = kits[SERVER] / "result", kits[demo.LEAD]
    steady = {site: kits[site] for site in SITES[:-1]}
    mortal = {name: kits[name] for name in (SERVER, SITES[-1])}
    with demo.running(steady):
        with demo.running(mortal), jobs.session(lead, SECONDS) as session:
            demo.wait_for(session, SITES)
            jobs.submit(session, "first", len(SITES))
            wait_until(lambda: len(list((result / "checkpoint").glob("*/latest.npz"))) > 1)
        before = sorted(path.parent.name for path in result.glob("checkpoint/*/latest.npz"))
        with demo.running(mortal), jobs.session(lead, SECONDS) as session:
            demo.wait_for(session, SITES)
            jobs.submit(session, "second", len(SITES))
            wait_until((result / "done").exists)
    return SimpleNamespace(kits=kits, result=result, before=before)


def simulate(spec) -> SimpleNamespace:
    """The same without sites, method after method; strict as every test, which is said anew in a thread."""
    with jax.numpy_dtype_promotion("strict"):
        prepared, runs = prepare(spec), {}
        for method, built in zip(prepared.methods, prepared.built):
            session = open_session([built.algorithm], prepared.federation, spec.training, [1], prepared.scores)
            runs[method.label] = session.run()[0]
        return SimpleNamespace(runs=runs, names=prepared.federation.names)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The deployment and the simulation of one spec."""
    folder = tmp_path_factory.mktemp("methods")
    tables = {site: site_table(place) for place, site in enumerate(SITES)}
    pooled = [table.append_column("site", pa.array([site] * ROWS)) for site, table in tables.items()]
    pacsv.write_csv(pa.concat_tables(pooled), folder / "pooled.csv")
    spec = spec_of(folder / "pooled.csv")
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as pool:
        patch.setenv("XLA_FLAGS", IN_A_HURRY)  # of the processes that are started
        patch.setenv("IDIOLECT_CACHE", str(tmp_path_factory.mktemp("programs")))
        simulated = pool.submit(simulate, spec)  # while FLARE's processes start
        found = deploy(folder / "deployed", spec, tables)
    return SimpleNamespace(**vars(found), **vars(simulated.result()))


def test_it_was_interrupted(both):
    assert 1 < len(both.before) < len(METHODS)


@pytest.mark.parametrize("method", METHODS)
def test_scores_and_models_equal_the_simulation(both, method):
    run, table = both.runs[method], pq.read_table(both.result / "clients.parquet", filters=[("method", "=", method)])
    assert table["client"].to_pylist() == list(both.names) == list(SITES)
    for when, split in itertools.product(("last", "selected"), ("validation", "test")):
        ours = table[f"{split}_personal_log_loss_{when}"].to_numpy()
        theirs = getattr(run.recorder, when)[split]["personal"]["log_loss"]
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-10, err_msg=f"{when} {split}")
    stacked = jax.tree.leaves(run.personal_models(run.selected))
    for place, site in enumerate(SITES):
        file = both.kits[site] / "kept" / "run" / "models" / f"{method}-seed1" / "personal.safetensors"
        own = {leaf.shape[1:]: leaf[0] for leaf in load_file(file).values()}
        for leaf in stacked:  # rows have the same number everywhere: those of a model that holds some are not padded
            np.testing.assert_allclose(own[leaf.shape[1:]], leaf[place], rtol=0, atol=1e-10)


@pytest.mark.parametrize("method", METHODS)
def test_bytes_are_those_of_the_ledger_and_headers(both, method):
    """The ledger is the simulation's; what was sent, of methods trained after the restart, is the ledger's."""
    history = pq.read_table(both.result / "history.parquet", filters=[("method", "=", method)]).to_pylist()[-1]
    ledger = both.runs[method].ledger
    counted = {"up": ledger.upload_bytes, "down": ledger.download_bytes}
    assert counted == {"up": history["upload_bytes"], "down": history["download_bytes"]}
    traffic = json.loads((both.result / "traffic.json").read_text())[f"{method}-seed1"]["kinds"].get("round")
    if traffic is None or f"{method}-seed1" in both.before:
        return
    for way, billed in counted.items():
        assert traffic[f"{way}_arrays"] <= 1.02 * billed + 8 * traffic["messages"]
        headers = traffic[f"{way}_bytes"] - traffic[f"{way}_arrays"]
        assert headers <= traffic["messages"] * (HEADER_BYTES + 10 * HEADER_BYTES_OF_ARRAY)


def test_a_round_takes_less_than_the_third_of_a_second(both):
    """Once programs are compiled. A busy machine slows some rounds down: the quickest method counts."""
    table = pq.read_table(both.result / "history.parquet").to_pylist()
    seconds = {(row["method"], row["round"]): row["seconds"] for row in table}
    spent = [seconds[method, ROUNDS] - seconds[method, RECORD_EVERY] for method in METHODS]
    assert min(spent) / (ROUNDS - RECORD_EVERY) < 0.3
