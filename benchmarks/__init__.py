# SPDX-License-Identifier: Apache-2.0
"""Speed, memory, scale and right answers of idiolect, measured in one run: `python -m benchmarks [NAME ...]`."""

import os
from pathlib import Path

# data files beside the checkout, where no folder is named; the package itself knows only its own and the user's
DATASETS = Path(__file__).resolve().parents[2] / "shared" / "datasets"
if DATASETS.is_dir():
    os.environ.setdefault("IDIOLECT_DATASETS", str(DATASETS))

NAMES = (
    "overhead",
    "unified",
    "softmax",
    "networks",
    "shard",
    "recording",
    "start",
    "scale",
    "growth",
    "memory",
    "neighbours",
    "coverage",
    "advice-coverage",
    "gpu",
    "networks-gpu",
    "rounds-gpu",
    "answers",
    "faults",
    "hosts",
    "rows",
    "deploy",
    "deploy-methods",
    "deploy-fuzz",
    "deploy-faults",
    "protection",
    "protection-clip",
    "protection-attacks",
    "protection-rows",
    "masks",
)
BY_NAME = ("peers", "peers-gpu")  # other libraries, which are fetched or at hand: never unless it is named
