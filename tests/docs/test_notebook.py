# SPDX-License-Identifier: Apache-2.0
"""The notebook of examples/ runs, and what its cells end with shows itself as a table."""

from __future__ import annotations

import ast
import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook.ipynb"


class Shape(HTMLParser):
    """Counts tags, and remembers which are open."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.texts = [], [], []

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        self.texts.append(text)


def shown(cell, namespace):
    """Run a cell as a notebook does: the value of its last expression is what it shows."""
    tree = ast.parse("".join(cell["source"]))
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), namespace)
    return None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), namespace)


@pytest.mark.filterwarnings("ignore::UserWarning")  # what may be a slip, such as few rounds, is said as a warning
def test_the_notebook_runs_and_its_answers_are_tables(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    book = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert (book["nbformat"], len({cell["id"] for cell in book["cells"]})) == (4, len(book["cells"]))
    cells = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] for cell in cells)
    namespace = {"__name__": "__main__"}
    results = [shown(cell, namespace) for cell in cells]
    answers = [result for result in results if type(result).__name__ in ("Answer", "Advice", "TrainedRun")]
    assert len(answers) == 3
    for answer in answers:
        shape = Shape()
        shape.feed(answer._repr_html_())
        assert shape.open == []
        assert {"table", "th", "td", "p"} <= set(shape.seen)
        assert shape.texts[0].endswith(".")  # the answer in words comes first
    for name in ("va", "cleveland", "hungarian", "switzerland"):
        assert any(name in text for text in shape_texts(answers[1]))
    assert list(tmp_path.iterdir()) == []


def shape_texts(answer):
    shape = Shape()
    shape.feed(answer._repr_html_())
    return shape.texts
