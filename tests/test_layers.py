# SPDX-License-Identifier: Apache-2.0
"""Architecture is a test: imports point downwards, files stay small, every file says its licence."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "idiolect"
BELOW_EXPERIMENTS = {
    "core",
    "models",
    "objectives",
    "algorithms",
    "data",
    "metrics",
    "accounting",
    "protection",
    "theory",
    "collaborate",
    "engines",
}
MAY_IMPORT = {
    "record": set(),  # without jax, so that everything may stand on it
    "core": set(),
    "models": {"core"},
    "objectives": {"core", "models"},
    "algorithms": {"core", "theory"},  # a row of METHODS brings what theory knows of its algorithm
    "data": {"core"},
    "metrics": {"core"},
    "accounting": {"core"},
    "protection": {"core"},  # wrappers around any algorithm, none by name
    "theory": {"core", "objectives", "models"},  # constants are known for model families, told by their class
    "collaborate": {"core", "metrics", "theory"},
    "engines": {"core", "data.store", "metrics", "accounting"},
    "experiments": BELOW_EXPERIMENTS | {"visible"},
    "report": {"visible"},
    # what the commands do, without the commands; rows in, sentences out
    "api": {"experiments", "report", "core.checks", "data.packs", "data.tables", "accounting.ledger"},
    # data sets to get, to refuse a request, to let code in, to start, to print
    "cli": {
        *("experiments", "report", "data.catalogue", "data.dataset_files", "data.fetching"),
        *("core.checks", "core.importing", "search_path", "visible"),
    },
}
FILES = sorted(PACKAGE.rglob("*.py"))
FOLDERS = sorted({path.relative_to(PACKAGE).parts[0] for path in FILES if path.parent != PACKAGE})
CODE_LINES = 400
STANDARD = set(sys.stdlib_module_names)


def imported(path: Path) -> set[str]:
    """Every module a file imports, at any depth of nesting, as dotted names."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            # `from idiolect.data import store` names a module, `from idiolect.data.store import x` does too
            found |= {f"{node.module}.{alias.name}" for alias in node.names} if node.module else set()
    return found


def siblings(path: Path) -> set[str]:
    """What a file imports of this package, without the package's name."""
    names = {name.removeprefix("idiolect.") for name in imported(path) if name.startswith("idiolect.")}
    return names - {"__version__"}


TYPES_ONLY = {"typing_extensions"}  # imported for type checkers, never at run time


def test_what_serves_type_checkers_is_not_imported_at_run_time():
    for path in FILES:
        before, found, _ = path.read_text(encoding="utf-8").partition("import typing_extensions")
        assert not found or before.rstrip().endswith("if TYPE_CHECKING:"), path


def outsiders(path: Path) -> set[str]:
    """Top-level names of what a file imports from elsewhere, the standard library left out."""
    return {name.partition(".")[0] for name in imported(path)} - STANDARD - {"idiolect", *TYPES_ONLY}


def files_of(folder: str) -> list[Path]:
    return [path for path in FILES if path.relative_to(PACKAGE).parts[0] == folder]


def allowed(name: str, permitted: set[str]) -> bool:
    return any(name == allowance or name.startswith(f"{allowance}.") for allowance in permitted)


@pytest.mark.parametrize("folder", FOLDERS)
def test_imports_point_downwards(folder):
    assert folder in MAY_IMPORT, f"{folder} has no rule"
    for path in files_of(folder):
        wrong = {name for name in siblings(path) if not allowed(name, MAY_IMPORT[folder] | {folder, "record"})}
        assert not wrong, f"{path.relative_to(PACKAGE)} imports {sorted(wrong)}"


def test_nothing_imports_papers_benchmarks_tests_or_examples():
    for path in FILES:
        assert not outsiders(path) & {"papers", "benchmarks", "tests", "examples"}, path


def test_core_stands_on_jax_numpy_and_the_standard_library():
    for path in files_of("core"):
        assert outsiders(path) <= {"jax", "numpy"}, path


def test_core_and_engines_work_with_jax_numpy_and_optax_alone():
    for path in files_of("core") + files_of("engines"):
        messages = {"safetensors"} if path.match("engines/deploy/wire.py") else set()
        assert outsiders(path) <= {"jax", "numpy", "optax"} | messages, path


def test_a_transport_is_known_to_its_adapter_only():
    users = {(name, path.relative_to(PACKAGE).parent.as_posix()) for path in FILES for name in outsiders(path)}
    assert {user for user in users if user[0] in ("flwr", "nvflare")} == {
        ("flwr", "experiments/flower"),
        ("nvflare", "experiments/flare"),
    }


def test_reports_and_the_command_line_start_without_jax():
    """In a fresh process, because any test may have imported it here; everything at import time counts."""
    modules = [
        ".".join(("idiolect", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
        for path in files_of("report") + files_of("cli") + files_of("record") + files_of("api")
    ]
    program = f"import sys, {', '.join(modules)}\nsys.exit('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr or "jax was imported"


def test_reports_never_name_jax():
    for path in files_of("report") + files_of("record"):
        assert "jax" not in outsiders(path), path


def code_lines(path: Path) -> int:
    """Lines that hold code: no blank lines, comments or docstrings."""
    ignored = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines: set[int] = set()
    with tokenize.open(path) as source:
        for token in tokenize.generate_tokens(source.readline):
            if token.type not in ignored:
                lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, node.end_lineno + 1))
    return len(lines)


def test_the_rules_would_notice(tmp_path):
    """The checks themselves: nested and plain imports are found, docstrings are no code."""
    sample = tmp_path / "sample.py"
    sample.write_text(
        '"""One\n\ntwo."""\n\nimport idiolect.engines.door\n\n\ndef f():\n    from idiolect.data import store\n'
    )
    assert siblings(sample) == {"engines.door", "data.store"}
    assert code_lines(sample) == 3
    assert not allowed("data.federation", MAY_IMPORT["engines"])
    assert allowed("data.store", MAY_IMPORT["engines"])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_a_file_is_small_has_a_subject_and_a_licence(path):
    assert code_lines(path) <= CODE_LINES
    assert path.stem not in {"utils", "util", "helpers", "common", "misc"}
    text = path.read_text()
    if text.strip():
        assert text.startswith("# SPDX-License-Identifier: Apache-2.0\n")


def test_type_checkers_know_every_public_name():
    """Names are loaded on first use, which a type checker does not follow: it reads a list of its own."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    names = importlib.import_module("idiolect").__all__
    assert sorted(alias.asname for node in block.body for alias in node.names) == sorted(names)


def test_there_is_something_to_check():
    assert {"core", "engines", "algorithms", "objectives"} <= set(FOLDERS)
    assert len(FILES) > 50
