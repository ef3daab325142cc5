# SPDX-License-Identifier: Apache-2.0
"""Clients of the reproductions: data that come with clients, and the losses f'_m of problems and networks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from idiolect import ClientLoss, Federation, Split
from idiolect.data import Problem
from idiolect.data.dataset_files import dataset_file
from idiolect.data.shared_files import mnist_writers
from idiolect.data.speeches import shakespeare
from idiolect.experiments.build import build_client_loss
from idiolect.experiments.spec import ModelSpec
from idiolect.experiments.strict import fill

# data that come with clients, of which some can be held out, and their files
NATURAL = {"mnist_writers": "images/mnist_writers.npz.xz", "shakespeare": "text/shakespeare_speeches.jsonl.xz"}


def natural_file(source: str) -> Path:
    """Where writers or roles are; RequestError with the command that gets them where they are not here."""
    return dataset_file(NATURAL[source])


def natural_federation(source: str, size: Mapping[str, Any], seed: int) -> Federation:
    """Writers or roles, as many as the size of an experiment says."""
    options: dict[str, Any] = {"split": Split(*size["split"]), "held_out": size.get("held_out", 0), "seed": seed}
    if source == "mnist_writers":
        return mnist_writers(size["clients"], **options)
    return shakespeare(size["clients"], length=size["length"], **options)


def problem_loss(problem: Problem) -> ClientLoss:
    """f'_m of a synthetic problem."""
    return build_client_loss(ModelSpec(), problem.federation, problem)


def network_loss(name: str, settings: Mapping[str, Any], federation: Federation) -> ClientLoss:
    """f'_m of a registered model on a federation, with settings as in [model] of a spec."""
    return build_client_loss(fill(ModelSpec, {"name": name, **settings}, f"{name} model"), federation, None)
