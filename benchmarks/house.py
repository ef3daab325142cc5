# SPDX-License-Identifier: Apache-2.0
"""The size of the house: code lines, contract, complexity, `Any`, comments; `python -m benchmarks.house [FOLDER]`."""

from __future__ import annotations

import ast
import io
import statistics
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
LAYOUT = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT, tokenize.ENCODING)
BRANCHES = (ast.If, ast.For, ast.While, ast.IfExp, ast.ExceptHandler, ast.comprehension, ast.Assert, ast.match_case)
Function = ast.FunctionDef | ast.AsyncFunctionDef


class File(NamedTuple):
    """One Python file: its tree, lines that hold code, and lines that hold a comment."""

    path: Path
    tree: ast.Module
    code: set[int]
    comments: int


def read(path: Path) -> File:
    """Count a line once, whatever is on it; docstrings and blank lines are no code."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    told = {line for node in _docstrings(tree) for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    code: set[int] = set()
    comments: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        if token.type not in LAYOUT:
            code.update(range(token.start[0], token.end[0] + 1))
    return File(path, tree, code - told, len(comments) - 1)  # less the licence


def _docstrings(tree: ast.Module) -> Iterator[ast.stmt]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | Function) and ast.get_docstring(node, clean=False) is not None:
            yield node.body[0]


def functions(tree: ast.AST) -> Iterator[Function]:
    """Every function and method, inner ones too."""
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def complexity(function: Function) -> int:
    """1 + branches, those of inner functions left to them."""
    count, waiting = 1, list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        if isinstance(node, Function | ast.Lambda):
            continue
        count += isinstance(node, BRANCHES) + (len(node.values) - 1 if isinstance(node, ast.BoolOp) else 0)
        count += len(node.ifs) if isinstance(node, ast.comprehension) else 0
        waiting += ast.iter_child_nodes(node)
    return count


def arguments(function: Function) -> int:
    """Of a call, without `self` and `cls`."""
    every = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return sum(one.arg not in ("self", "cls") for one in every)


def members(file: File, name: str) -> int:
    """Public methods, properties and values of a class."""
    owner = next(node for node in file.tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    found = set()
    for node in owner.body:
        if isinstance(node, Function):
            found.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        elif isinstance(node, ast.Assign):
            found |= {one.id for one in node.targets if isinstance(one, ast.Name)}
    return sum(not one.startswith("_") for one in found)


def measure(package: Path) -> dict[str, float]:
    """Every number of the table."""
    files = [read(path) for path in sorted(package.rglob("*.py"))]
    lines = sum(len(file.code) for file in files)
    every = [function for file in files for function in functions(file.tree)]
    wide = [one for file in files if "engines" in file.path.parts for one in functions(file.tree) if arguments(one) > 6]
    vague = sum(
        isinstance(node, ast.Name) and node.id == "Any" and isinstance(node.ctx, ast.Load)
        for file in files
        for node in ast.walk(file.tree)
    )
    long = sum((one.end_lineno or one.lineno) - one.lineno + 1 > 40 for one in every)
    return {
        "code lines in the package": lines,
        **_contract(package, files),
        "functions over 40 lines, %": 100 * long / len(every),
        "functions of complexity over 10, %": 100 * sum(complexity(one) > 10 for one in every) / len(every),
        "`Any` per 1,000 code lines": 1000 * vague / lines,
        "comment lines per code line": sum(file.comments for file in files) / lines,
        "engine functions of more than six arguments": len(wide),
    }


def _contract(package: Path, files: list[File]) -> dict[str, float]:
    """Nothing for a package that has no such folder."""
    if not (package / "core" / "algorithm.py").is_file():
        return {}
    inside = [
        file
        for file in files
        if file.path.parent.name == "algorithms" and any(isinstance(node, ast.ClassDef) for node in file.tree.body)
    ]
    rounds = [file for file in inside if any(one.name == "step" for one in functions(file.tree))]
    return {
        "members of Algorithm": members(read(package / "core" / "algorithm.py"), "Algorithm"),
        "members of Objective": members(read(package / "core" / "objective.py"), "Objective"),
        "code lines of one algorithm, median": statistics.median(len(file.code) for file in rounds),
    }


def main() -> None:
    """Print the table of one package, by default this one."""
    package = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "src" / "idiolect"
    for name, value in measure(package).items():
        print(f"{name:45} {value:10,.6g}")


if __name__ == "__main__":
    main()
