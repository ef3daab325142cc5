# SPDX-License-Identifier: Apache-2.0
"""The documentation is true: its code runs, its output is what comes out, its links and tables hold."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import runpy
import shlex
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

from idiolect import ALGORITHMS, Training, own_code, simulate
from idiolect.algorithms import find
from idiolect.core.algorithm import fit_of
from idiolect.engines.debug import debug
from idiolect.engines.door import EXECUTORS

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])
FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```\s*$", re.S | re.M)
LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
MACHINE_PATH = re.compile(r"(?<![\w.$])/(?:home|work|root|tmp|mnt|Users)/")


def name_of(page):
    return str(page.relative_to(ROOT))


def fences(page):
    """(info, body) of every fence of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [(found["info"].strip(), textwrap.dedent(found["body"])) for found in FENCE.finditer(text)]


def load(path):
    """A file outside the package as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def tables():
    return load(ROOT / "docs" / "tables.py")


@pytest.fixture
def shell(tmp_path, monkeypatch, capsys, one_drawing):
    """Runs `idiolect ...` in a folder of its own, with the repository importable; gives output and exit code."""
    from idiolect.cli import app
    from idiolect.cli.failures import exit_code_of

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.setenv("IDIOLECT_CACHE", "off")

    def run(command):
        words = shlex.split(command)
        assert words[0] == "idiolect", command
        monkeypatch.setattr(sys, "argv", words)
        capsys.readouterr()
        code = exit_code_of(app)
        printed = capsys.readouterr()
        errors = [line for line in printed.err.splitlines() if line.startswith("Error:")]
        return "\n".join([printed.out, *errors, *([f"exit {code}"] if code else [])])

    return run


def plain(text):
    """Lines without what may differ between machines: numbers, signs, the mark of the best, spaces."""
    lines = (re.sub(r"[+*\-\N{MINUS SIGN}]", "", line) for line in text.splitlines())
    lines = (re.sub(r"\d+(\.\d+)?", "#", line) for line in lines)
    return [" ".join(line.split()) for line in lines if line.strip()]


def same(shown, printed):
    return printed.startswith(shown[:-3].rstrip()) if shown.endswith(" ...") else printed == shown


def matches(shown, printed):
    """Whether `printed` is what a page shows; `...` stands for any lines, at a line's end for the rest of it."""
    pieces = [[]]
    for line in plain(shown):
        if line == "...":
            pieces.append([])
        else:
            pieces[-1].append(line)
    lines, place = plain(printed), 0
    for number, piece in enumerate(pieces):
        places = range(place, len(lines) - len(piece) + 1)
        if number == 0:
            places = places[:1]
        if number == len(pieces) - 1 and piece:
            places = [at for at in places if at + len(piece) == len(lines)]
        found = next((at for at in places if all(map(same, piece, lines[at:]))), None)
        if found is None:
            return False
        place = found + len(piece)
    return len(pieces) > 1 or place == len(lines)


def test_matching_can_fail():
    assert matches("a 1.5*\n...\nz", "a   2.5\nb\nc\nz")
    assert not matches("a\n...\nz", "a\nb\nz\ny")
    assert not matches("a\nz", "a\nb\nz")
    assert not matches("b\n...", "a\nb")
    assert matches("a b ...", "a b c d")
    assert not matches("a b ...", "a c b")


RUNNABLE = [page for page in PAGES if any(info.startswith(("python", "console run")) for info, _ in fences(page))]


@pytest.mark.parametrize("page", RUNNABLE, ids=name_of)
def test_code_runs_and_prints_what_the_page_shows(page, shell):
    namespace = {"__name__": "page"}
    for info, body in fences(page):
        if info == "python":
            exec(compile(body, name_of(page), "exec"), namespace)
        elif info.startswith("toml file="):
            Path(info.removeprefix("toml file=")).write_text(body, encoding="utf-8")
        elif info == "console run":
            for part in re.split(r"^\$ ", body, flags=re.M)[1:]:
                command, _, shown = part.partition("\n")
                printed = shell(command)
                assert matches(shown, printed), f"{command}\nprinted\n{printed}"


def test_pages_with_code_are_found():
    assert {"docs/command-line.md", "docs/concepts.md", "CONTRIBUTING.md"} <= {name_of(page) for page in RUNNABLE}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_toml_is_toml_and_no_path_belongs_to_a_machine(page):
    for info, body in fences(page):
        if info.startswith("toml"):
            tomllib.loads(body)
    assert not MACHINE_PATH.search(page.read_text(encoding="utf-8"))


def anchors(page):
    """The anchors of a page's headings, as they are made from their words."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_resolve(page):
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for found in LINK.finditer(text):
        target, _, anchor = found["target"].partition("#")
        if "://" in target:
            continue
        goal = (page.parent / target).resolve() if target else page
        assert goal.exists(), found["target"]
        assert ROOT in goal.parents, found["target"]
        if anchor:
            assert anchor in anchors(goal), found["target"]


@pytest.mark.parametrize("page", [page for page in PAGES if "docs" in page.parts], ids=name_of)
def test_tables_are_what_the_code_says(page, tables):
    text = page.read_text(encoding="utf-8")
    assert tables.filled(text) == text, "run `python docs/tables.py`"


def test_a_setting_that_no_page_explains_is_noticed(tables, monkeypatch):
    longer = dataclasses.make_dataclass(
        "Longer", [("brand_new", int, 3)], bases=(tables.RECORDS["output"],), frozen=True
    )
    monkeypatch.setitem(tables.RECORDS, "output", longer)
    with pytest.raises(KeyError, match="brand_new"):
        tables.table("output")
    monkeypatch.setitem(tables.RECORDS, "output", dataclasses.make_dataclass("Shorter", [("models", str, "x")]))
    with pytest.raises(KeyError, match="checkpoint_every"):
        tables.table("output")


def test_the_networks_table_says_what_may_be_set(tables):
    table = tables.table("networks")
    assert "| `mlp` | `normalize` | text | `\"none\"` | one of 'none', 'layer', 'batch' |" in table
    assert "| `mlp` | `hidden` | list of integers | `[64]` | at least 1 |" in table
    assert "| `cnn` | `compute` | text | `\"float32\"` | one of 'float32', 'bfloat16' |" in table


def test_every_part_of_a_spec_has_a_table(tables):
    from idiolect.experiments.spec import Spec

    marked = set(re.findall(r"<!-- table ([\w ]+) -->", (ROOT / "docs/spec.md").read_text(encoding="utf-8")))
    assert set(tables.RECORDS) <= marked
    parts = {field.name for field in dataclasses.fields(Spec)} - {"name", "seeds", "methods"}
    assert parts <= set(tables.RECORDS)


def test_every_registered_algorithm_has_a_page(tables):
    index = (ROOT / "docs/algorithms/README.md").read_text(encoding="utf-8")
    for page, names in tables.pages().items():
        text = (ROOT / f"docs/algorithms/{page}.md").read_text(encoding="utf-8")
        assert f"({page}.md)" in index
        for kind in tables.BY_PAGE:
            assert f"<!-- table {kind} {page} -->" in text, (page, kind)
        for name in names:
            assert f"`{name}`" in text
            assert f"`{name}`" in index
    assert {name for names in tables.pages().values() for name in names} == set(ALGORITHMS)


EXAMPLES = {
    "own_table.py": (["--rounds", "2"], "personalized_local_sgd"),
    "personalized_local_sgd.py": (["--rounds", "3", "--local-steps", "3"], "alpha = 1:"),
    "sweep_step_sizes.py": (["--rounds", "2", "--step-sizes", "0.1", "0.3", "--seeds", "0"], "chosen: step_size"),
    "new_clients.py": (
        ["--rounds", "2", "--clients", "6", "--held-out", "2", "--methods", "local", "fedavg"],
        "4 clients train; new: ",
    ),
    "resume.py": (["--rounds", "10", "--stop-after", "5"], "every number is the same\nledgers equal: True"),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_run(name, monkeypatch, capsys, tmp_path):
    arguments, wanted = EXAMPLES[name]
    path = ROOT / "examples" / name
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    assert wanted in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []  # an example leaves nothing behind


def test_every_example_is_run_and_short():
    scripts = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "examples").glob("*.py")}
    assert set(scripts) == set(EXAMPLES) | {"skeleton_algorithm.py"}
    assert all(text.count("\n") < 100 for text in scripts.values())
    guide = " ".join((ROOT / "CONTRIBUTING.md").read_text().split())
    assert f"in {scripts['skeleton_algorithm.py'].count(chr(10))} lines" in guide


@pytest.fixture(scope="module")
def skeleton():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        with own_code():
            return find("examples.skeleton_algorithm:Skeleton").algorithm


SKELETON = {"step_size": 0.3, "epochs": 1, "batch_size": 2}


PARTIAL = Training(rounds=3, cohort=4, dropout=0.2, record_every=3, executor="batched")


@pytest.fixture(scope="module")
def fedavg(workbench, ragged):
    return simulate(workbench.build("fedavg", **SKELETON), ragged, PARTIAL, seed=1)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_the_skeleton_is_fedavg_in_every_executor(executor, skeleton, fedavg, workbench, ragged):
    training = dataclasses.replace(PARTIAL, executor=executor, chunk=2 if executor == "chunked" else 0)
    algorithm = skeleton(workbench.build_objective("global_model"), **SKELETON)
    run = simulate(algorithm, ragged, training, seed=1)
    assert workbench.distance(run.server.shared, fedavg.server.shared) < 1e-6
    assert run.ledger.gradients_shared == fedavg.ledger.gradients_shared > 0
    assert run.ledger.upload_bytes == fedavg.ledger.upload_bytes


def test_the_skeleton_in_plain_python(skeleton, workbench, ragged):
    training = Training(rounds=1, cohort=3, precision="float64", executor="batched", record_every=1)
    algorithm = skeleton(workbench.build_objective("global_model"), local_steps=2, batch_size=2)
    run = simulate(algorithm, ragged, training, seed=1)
    assert workbench.distance(run.server.shared, debug(algorithm, ragged, training, seed=1).server.shared) < 1e-12


@pytest.mark.parametrize("objective", ["local_only", "additive"])
def test_the_skeleton_refuses_what_does_not_fit(objective, skeleton, workbench):
    assert "global_model" in fit_of(skeleton(workbench.build_objective(objective))).refused


def test_the_skeleton_is_found_by_its_path_from_a_shell(tmp_path):
    command = [str(Path(sys.executable).parent / "idiolect"), "explain", "examples.skeleton_algorithm:Skeleton"]
    shown = subprocess.run(
        [*command, "--objective", "global_model", "--plugins", ROOT],
        cwd=tmp_path,
        env={"PATH": ""},
        capture_output=True,
        text=True,
    )
    assert shown.returncode == 0, shown.stderr
    assert "up: 2604 bytes" in shown.stdout  # (64 * 10 + 10) parameters and a weight of 4 bytes each
    lost = subprocess.run(command, cwd=ROOT, env={"PATH": ""}, capture_output=True, text=True)
    assert lost.returncode == 2
    assert "importable" in lost.stderr


def test_the_licence_is_whole():
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    for phrase in ("Version 2.0, January 2004", "9. Accepting Warranty", "END OF TERMS AND CONDITIONS", "APPENDIX"):
        assert phrase in text
    assert len(text) == 11358  # the text that apache.org publishes
