# SPDX-License-Identifier: Apache-2.0
"""Rounds over FLARE and over Flower: a server and processes for each site on this machine, from their kits."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import json
import threading
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq

from idiolect.experiments.deploy.demo import demo_spec, demo_tables

LOOK_EVERY = 0.2  # seconds between looks at the server's memory
METHOD = "fedavg"
SERVERS = ("runner_process", "flwr-serverapp")
PACKAGES = {"flare": "nvflare", "flower": "flwr"}


def installed(framework: str) -> bool:
    """Whether it can be measured here."""
    return importlib.util.find_spec(PACKAGES[framework]) is not None


def over(framework: str, folder: Path, sites: int, rounds: int) -> dict[str, Any]:
    """FedAvg on heart disease, by what its run folder says; rounds 0 and 1 compile and are not counted."""
    demo = importlib.import_module(f"idiolect.experiments.{framework}.demo")
    spec = demo_spec(rounds)
    methods = tuple(method for method in spec.methods if method.label == METHOD)
    spec = dataclasses.replace(spec, methods=methods, training=dataclasses.replace(spec.training, record_every=1))
    with Watch() as watch:
        result = getattr(demo, f"run_{framework}_demo")(folder, spec, demo_tables(sites), lambda text: None)
    last, *rows = sorted(pq.read_table(result / "history.parquet").to_pylist(), key=lambda row: -row["round"])
    traffic = json.loads((result / "traffic.json").read_text())[f"{METHOD}-seed{spec.seeds[0]}"]["kinds"]["round"]
    early = next(row for row in rows if row["round"] == 2)
    headers = sum(traffic[f"{way}_bytes"] - traffic[f"{way}_arrays"] for way in ("down", "up"))
    return {
        "rounds": last["round"],
        "seconds per round": (last["seconds"] - early["seconds"]) / max(1, last["round"] - early["round"]),
        "bytes of arrays / ledger": (traffic["down_arrays"] + traffic["up_arrays"])
        / (last["download_bytes"] + last["upload_bytes"]),
        "bytes of a header": headers / (2 * traffic["messages"]),
        "peak of the server's process of the run, MB": watch.peak / 2**20,
    }


class Watch:
    """The highest memory of the server's process of the run, whatever the framework calls it."""

    def __init__(self) -> None:
        self.peak, self._over = 0, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(LOOK_EVERY):
            for child in psutil.Process().children(recursive=True):
                try:
                    if any(name in word for word in child.cmdline() for name in SERVERS):
                        self.peak = max(self.peak, child.memory_info().rss)
                except psutil.Error:  # it has just ended
                    continue
