# SPDX-License-Identifier: Apache-2.0
"""`idiolect pack`, and what runs on its folder."""

from __future__ import annotations

import json
import tomllib

import numpy as np
import pytest

from idiolect.cli import app
from idiolect.record import standing
from idiolect.record.errors import RequestError

COMPARE = "--methods local,fedavg --rounds 3 --step-sizes 0.1 -q --format json"


def run(command):
    """One command, its exit code ignored: what it refuses is raised."""
    app(command.split(), standalone_mode=False)


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """A table of 8 clients in the working directory."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    lines = ["site,age,dose,outcome"]
    for row in range(160):
        age, dose = draw.normal(size=2)
        lines.append(f"s{row % 8},{age:.4f},{dose:.4f},{'yes' if age + (row % 8 - 4) * dose > 0 else 'no'}")
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_a_comparison_of_a_pack_is_that_of_its_table(rows, capsys):
    run("pack rows.csv --client site --target outcome")
    said = capsys.readouterr()
    assert "8 clients hold 160 rows" in said.err
    assert tomllib.loads(said.out[said.out.index("[data]") :])["data"] == {"source": "pack", "path": "runs/rows-pack"}
    assert standing.way_on() == "runs/rows-pack is complete. `idiolect verify runs/rows-pack` looks at it."
    run(f"compare rows.csv --client site --target outcome --out one {COMPARE}")
    run(f"compare runs/rows-pack --out two {COMPARE}")
    capsys.readouterr()
    first, second = (json.loads((rows / name / "summary.json").read_text())["methods"] for name in ("one", "two"))
    timeless = [
        [{k: v for k, v in method.items() if "seconds" not in k} for method in each] for each in (first, second)
    ]
    assert timeless[0] == timeless[1]
    noted = [(rows / name / "rows.json").read_text() for name in ("one", "two")]
    assert noted[0] == noted[1]  # they count as tested on the same rows
    run("verify runs/rows-pack")
    assert "files are as the run wrote them" in capsys.readouterr().out


def test_a_spec_file_can_be_packed(rows, capsys):
    (rows / "my.toml").write_text(
        '[data]\nsource = "table"\npath = "rows.csv"\nclient = "site"\ntarget = "outcome"\n[methods.local]\n'
    )
    run("pack my.toml --out ready --format json")
    assert json.loads(capsys.readouterr().out)["folder"] == "ready"
    with pytest.raises(RequestError, match=r"my.toml is a spec file and names its rows itself"):
        run("pack my.toml --client site --out other")


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("pack --data two_clients --set data.settings.zeta=1.0 --out p", "is made anew by every run"),
        ("pack rows.csv --out p", "needs --client COLUMN"),
        ("compare ready --client site", r"--client is for a TABLE, and the rows in ready are packed"),
        ("compare ready --set data.train=0.5", r"\[data\] train was settled when the rows were packed, got 0.5"),
        ("compare --data pack", r"source 'pack' needs path"),
    ],
)
def test_what_makes_no_sense_is_refused(rows, command, sentence):
    run("pack rows.csv --client site --target outcome --out ready -q")
    with pytest.raises(RequestError, match=sentence):
        run(command)
