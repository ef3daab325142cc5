# SPDX-License-Identifier: Apache-2.0
"""Flower as the transport: who is a site, which answers count, and four methods over stock commands as simulated."""

from __future__ import annotations

import itertools
import threading
import time
from types import SimpleNamespace

import jax
import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

pytest.importorskip("flwr", reason="the extra flower (flwr) is not installed: it moves typer, rich and protobuf")

from flwr.app import ConfigRecord, Error, Message, Metadata, RecordDict
from flwr.app.message import make_message
from flwr.supercore.task_identity import TaskIdentity

from idiolect.core.checks import RequestError
from idiolect.engines.simulate import open_session
from idiolect.experiments.deploy.site_file import FILE
from idiolect.experiments.flower import local, processes
from idiolect.experiments.flower.demo import run_flower_demo
from idiolect.experiments.flower.kits import make_flower_kits
from idiolect.experiments.flower.relay import block_of, content_of
from idiolect.experiments.flower.server import FlowerTransport, site_keys
from idiolect.experiments.prepare import prepare
from idiolect.experiments.spec import from_table

pytestmark = pytest.mark.filterwarnings("ignore")  # what Flower and its packages warn of is not ours

SITES = ("amber", "birch")
METHODS = ("fedavg", "scafflix", "ditto", "all_for_all")  # a mean, settle and probabilities, states, addressed sends
ROWS = 24


def spec_of(path):
    return from_table(
        {
            "name": "trial",
            "seeds": [1],
            "data": {"source": "table", "path": str(path), "client": "site", "target": "y", "preparation": "federated"},
            "model": {"name": "linear", "l2": 0.1},
            "training": {"rounds": 2, "record_every": 2, "executor": "batched", "block": 2},
            "tuning": {"auto": False},
            "evaluation": {"scores": ["log_loss"], "optimum": "never"},
            "methods": {name: {} for name in METHODS},
        }
    )


def site_table(site):
    draw = np.random.default_rng([7, site])
    rows = draw.normal(size=(ROWS, 3)).round(4)
    signs = rows @ [1.0, -0.5, 0.3 * site] + 0.3 * draw.normal(size=ROWS) > 0
    return pa.table({**dict(zip("abc", rows.T)), "y": np.where(signs, "yes", "no")})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("flower")
    pooled = [site_table(place).append_column("site", pa.array([site] * ROWS)) for place, site in enumerate(SITES)]
    pacsv.write_csv(pa.concat_tables(pooled), folder / "pooled.csv")
    return folder


@pytest.fixture(scope="module")
def kits(folder):
    return make_flower_kits(folder / "kits", spec_of(folder / "pooled.csv"), SITES, "localhost", 18000)


class Grid:
    """Flower's grid with nodes that answer as given: bytes, an error, something else, or nothing."""

    def __init__(self, nodes, answers):
        self.nodes, self.answers, self.sent = nodes, answers, {}

    def get_nodes(self):
        return self.nodes

    def push_messages(self, messages):
        numbered = {f"message-{len(self.sent) + place}": one for place, one in enumerate(messages)}
        self.sent |= numbered
        return list(numbered)

    def pull_messages(self, numbers):
        return [reply for number in numbers for reply in self._replies(number)]

    def _replies(self, number):
        asked = self.sent[number]
        answer = self.answers.get(asked.metadata.dst_node_id)
        if answer is None:
            return []
        about = Metadata(1, "", asked.metadata.dst_node_id, 1, number, "0", time.time(), 9.0, "query")
        return [make_message(about, **answer)]


def node(number, key, status="online"):
    return SimpleNamespace(node_id=number, public_key=key, status=status)


def test_a_site_is_the_node_with_its_key(kits):
    keys = site_keys(kits["server"])
    assert set(keys) == set(SITES)
    nodes = [node(1, keys["amber"]), node(2, keys["birch"], "offline"), node(3, b""), node(4, b"another key")]
    assert FlowerTransport(Grid(nodes, {}), keys).sites == ["amber"]
    with pytest.raises(RequestError, match="same key"):
        FlowerTransport(Grid(nodes, {}), {"amber": b"x", "birch": b"x"})


def test_answers_are_bytes_of_sites_in_time(monkeypatch):
    for name in ("_run_id", "_task_id", "_node_id"):  # which Flower sets in a process of its own
        monkeypatch.setattr(TaskIdentity, name, 1)
    keys = {name: name.encode() for name in "abcd"}
    nodes = [node(place, key) for place, key in enumerate(keys.values())]
    answers = {
        0: {"content": content_of(b"own")},
        1: {"error": Error(1, "it failed")},
        2: {"content": RecordDict({"other": ConfigRecord({"block": b"x"})})},
    }
    transport = FlowerTransport(Grid(nodes, answers), keys)
    began = time.monotonic()
    assert transport.exchange(3, dict.fromkeys("abcde", b"asked"), 0.4) == {"a": b"own"}
    assert time.monotonic() - began < 5
    asked = transport.grid.sent["message-0"]
    assert (block_of(asked), asked.metadata.group_id, asked.metadata.ttl) == (b"asked", "3", 0.4)
    assert isinstance(asked, Message)


def test_one_process_answers_those_that_flower_starts(tmp_path):
    path, over = tmp_path / "handler", []
    thread = threading.Thread(target=lambda: over.append(local.serve(path, lambda block: block[::-1], lambda: False)))
    thread.start()
    while not path.exists():
        time.sleep(0.01)
    large = bytes(range(256)) * 20_000
    assert local.ask(path, b"abc") == b"cba"
    assert local.ask(path, large) == large[::-1]
    assert local.ask(path, b"") == b""  # the run is over
    thread.join(10)
    assert over == [True]


def test_a_site_that_does_not_agree_to_shipped_code_is_not_started(kits):
    with pytest.raises(RequestError, match="shipped_code"):
        processes.join(kits["amber"], print)
    with pytest.raises(RequestError, match="deploy serve"):
        processes.join(kits["server"], print)


def test_a_node_that_came_before_it_was_registered_is_started_again(kits, monkeypatch):
    agreed = kits["birch"] / FILE
    text = agreed.read_text()
    agreed.write_text(text.replace("shipped_code = false", "shipped_code = true"))
    started, said = [], []

    def node(kit, where, path):
        """Ends at once; the second one says that the run is over."""
        started.append(path)
        ends = "from pathlib import Path; from idiolect.experiments.flower.local import ask; ask(Path(%r), b'')"
        return ["python", "-c", ends % str(path) if len(started) > 1 else "pass"]

    monkeypatch.setattr(processes, "_supernode", node)
    monkeypatch.setattr(processes, "AGAIN", 0.0)
    monkeypatch.setattr(processes, "PARTING", 0.0)
    processes.join(kits["birch"], said.append)
    agreed.write_text(text)
    assert len(started) == 2
    assert "started again" in said[1]


def test_kits_hold_private_keys_and_an_app_without_code(kits):
    assert (kits["amber"] / "flower" / "node.key").stat().st_mode & 0o777 == 0o600
    app = kits["server"] / "flower" / "app"
    assert [path.name for path in app.iterdir()] == ["pyproject.toml"]
    assert "shipped_code = false" in (kits["birch"] / FILE).read_text()
    assert processes.environment(app)["FLWR_TELEMETRY_ENABLED"] == "0"


@pytest.fixture(scope="module")
def both(folder):
    """A whole system of stock commands, with TLS and node keys, and the simulation of the same spec."""
    spec = spec_of(folder / "pooled.csv")
    tables = {site: site_table(place) for place, site in enumerate(SITES)}
    result = run_flower_demo(folder / "deployed", spec, tables, print)
    prepared = prepare(spec)
    runs = {
        method.label: open_session([built.algorithm], prepared.federation, spec.training, [1], prepared.scores).run()[0]
        for method, built in zip(prepared.methods, prepared.built)
    }
    return SimpleNamespace(result=result, kits=folder / "deployed" / "kits", runs=runs)


@pytest.mark.parametrize("method", METHODS)
def test_scores_and_models_equal_the_simulation(both, method):
    run, table = both.runs[method], pq.read_table(both.result / "clients.parquet", filters=[("method", "=", method)])
    for when, split in itertools.product(("last", "selected"), ("validation", "test")):
        ours = table[f"{split}_personal_log_loss_{when}"].to_numpy()
        np.testing.assert_allclose(ours, getattr(run.recorder, when)[split]["personal"]["log_loss"], rtol=0, atol=1e-6)
    stacked = jax.tree.leaves(run.personal_models(run.selected))
    for place, site in enumerate(SITES):
        file = both.kits / site / "kept" / "run" / "models" / f"{method}-seed1" / "personal.safetensors"
        own = {leaf.shape[1:]: leaf[0] for leaf in load_file(file).values()}
        for leaf in stacked:
            np.testing.assert_allclose(own[leaf.shape[1:]], leaf[place], rtol=0, atol=1e-6)
