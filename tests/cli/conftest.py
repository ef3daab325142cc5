# SPDX-License-Identifier: Apache-2.0
"""The command line in this process: a folder with a small table and a spec, and `idiolect ...` as a function."""

from __future__ import annotations

import shutil
import sys
from typing import NamedTuple

import numpy as np
import pytest

from idiolect.cli import app
from idiolect.cli.failures import exit_code_of

SPEC = """
[data]
source = "table"
path = "hospitals.csv"
client = "site"
target = "ill"
[training]
rounds = 3
record_every = 1
executor = "batched"
[defaults]
step_size = 0.1
batch_size = 4
epochs = 1
[methods.local]
[methods.fedavg]
[output]
models = "all"
"""


def table(kind="class", clients=4, rows=8):
    """A CSV text: a column `site`, features `age` and `dose`, and `ill`, whose slope differs between clients."""
    draw = np.random.default_rng(7)
    lines = ["site,age,dose,ill"]
    for client in range(clients):
        for age, dose in draw.normal(size=(rows, 2)):
            score = age + 0.5 * client * dose
            lines.append(f"s{client},{age:.4f},{dose:.4f},{int(score > 0) if kind == 'class' else f'{30 * score:.3f}'}")
    return "\n".join(lines) + "\n"


@pytest.fixture(autouse=True, scope="module")
def quick_figures(one_drawing):
    """Every command that ends in a report draws."""


@pytest.fixture(scope="session")
def workshop(tmp_path_factory):
    """Files that every test starts with."""
    folder = tmp_path_factory.mktemp("workshop")
    (folder / "hospitals.csv").write_text(table())
    (folder / "doses.csv").write_text(table("number"))
    (folder / "spec.toml").write_text(SPEC)
    return folder


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def error(self):
        """The last line of standard error."""
        return self.err.strip().splitlines()[-1] if self.err.strip() else ""


@pytest.fixture
def here(tmp_path, workshop, monkeypatch):
    """The current folder, with the workshop's files in it."""
    for file in workshop.iterdir():
        shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def idiolect(here, monkeypatch, capsys):
    """`idiolect('run', 'spec.toml')` -> exit code, standard output, standard error."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["idiolect", *map(str, arguments)])
        capsys.readouterr()
        code = exit_code_of(app)
        return Answer(code, *capsys.readouterr())

    return call


@pytest.fixture(scope="session")
def finished_once(tmp_path_factory, workshop):
    """A finished run of the spec, trained once; copy it before changing it."""
    folder = tmp_path_factory.mktemp("finished")
    for file in workshop.iterdir():
        shutil.copy(file, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["idiolect", "run", "spec.toml", "--out", "run", "--quiet"])
        assert exit_code_of(app) == 0
    return folder / "run"


@pytest.fixture
def finished(here, finished_once):
    """A copy of the finished run in the current folder, called `run`."""
    return shutil.copytree(finished_once, here / "run")
