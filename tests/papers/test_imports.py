# SPDX-License-Identifier: Apache-2.0
"""Reproductions stand on public names; what they still import from deeper is listed, and the list only shrinks."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from idiolect.experiments.reproductions import FOLDER, SOURCES
from papers.catalogue import SLUGS

FILES = sorted(FOLDER.rglob("*.py"))
# the package itself, and folders whose own names are public
PUBLIC = {"", "algorithms", "collaborate", "core", "data", "metrics", "models", "objectives", "theory"}
DEEPER = {
    "algorithms.flow",
    "collaborate.quadratic",
    "collaborate.threads",
    "collaborate.weights",
    "core.addressing",
    "core.checks",
    "core.keys",
    "core.mixing",
    "core.settings",
    "core.tree",
    "data.draws",
    "data.federation",
    "data.partition",
    "data.problem",
    "data.dataset_files",
    "data.shared_files",
    "data.speeches",
    "data.synthetic",
    "data.synthetic_logistic",
    "engines.cohorts",
    "engines.debug",
    "engines.door",
    "engines.evaluate",
    "engines.population",
    "engines.simulate",
    "experiments.build",
    "experiments.compilation",
    "experiments.run_folder",
    "experiments.spec",
    "experiments.strict",
    "metrics.summary",
    "objectives.flix",
    "record.files",
    "record.manifest",
    "record.reproduced",
    "record.schema",
    "record.sealed",
    "theory.all_for_all",
    "theory.constants",
    "theory.convex",
    "theory.rates",
    "theory.scafflix",
    "theory.step_sizes",
}


def imported(path: Path) -> set[str]:
    """Modules of the package that a file imports from, without the package's name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                is_module = (SOURCES / inner.replace(".", "/")).with_suffix(".py").is_file()
                found.add(inner if is_module else node.module)
    return {name.removeprefix("idiolect").lstrip(".") for name in found if name.split(".")[0] == "idiolect"}


def test_what_is_imported_from_deeper_than_public_names_is_listed():
    assert set().union(*map(imported, FILES)) - PUBLIC == DEEPER


def test_only_one_module_opens_sessions_of_the_engine():
    users = {path.name for path in FILES if "engines.simulate" in imported(path)}
    assert users == {"lanes.py"}


def test_every_slug_has_a_folder_and_every_folder_a_slug():
    folders = {path.parent.name for path in FOLDER.glob("*/expected.toml")}
    assert {slug.replace("-", "_") for slug in SLUGS} == folders
    for slug in SLUGS:
        names = {path.name for path in (FOLDER / slug.replace("-", "_")).iterdir()}
        assert {"README.md", "spec.toml", "expected.toml", "__init__.py"} <= names


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(FOLDER).as_posix())
def test_a_file_has_a_licence_and_is_small(path):
    text = path.read_text()
    assert text.startswith("# SPDX-License-Identifier: Apache-2.0\n")
    assert len(text.splitlines()) <= 400
