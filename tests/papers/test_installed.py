# SPDX-License-Identifier: Apache-2.0
"""Where the reproductions are found: in the checkout of the package that runs, and nowhere else."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from idiolect.cli import app
from idiolect.cli.failures import exit_code_of
from idiolect.core import importing
from idiolect.core.checks import RequestError
from idiolect.experiments import reproductions as found
from idiolect.experiments.listing import names
from papers.catalogue import SLUGS


@pytest.fixture
def idiolect(monkeypatch, capsys):
    """Exit code and standard error of a command."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["idiolect", *arguments])
        code = exit_code_of(app)
        return SimpleNamespace(code=code, error=capsys.readouterr().err)

    return run


@pytest.fixture
def plain(monkeypatch, tmp_path):
    """The package as a wheel installs it."""
    monkeypatch.setattr(found, "SOURCES", tmp_path / "site-packages")
    monkeypatch.setattr(found, "FOLDER", tmp_path / "papers")


@pytest.fixture
def planted(monkeypatch, tmp_path):
    """Another package of that name in the working directory; `executed` is touched by importing it."""
    (tmp_path / "papers").mkdir()
    mark = tmp_path / "executed"
    (tmp_path / "papers" / "__init__.py").write_text(f"open({str(mark)!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "papers"]:
        monkeypatch.delitem(sys.modules, name)
    return mark


@pytest.mark.parametrize("arguments", [("reproduce", "plsgd-rates"), ("list", "papers")], ids=" ".join)
def test_without_a_checkout_they_are_refused_with_the_way_out(idiolect, plain, arguments):
    answer = idiolect(*arguments)
    assert answer.code == 2
    assert "pip install -e" in answer.error
    assert len(answer.error.splitlines()) == 1


def test_without_a_checkout_the_other_names_are_listed(plain):
    assert "papers" not in names()
    assert names("scores")["scores"]


def test_every_slug_is_listed():
    assert tuple(names("papers")["papers"]) == SLUGS


def test_the_working_directory_is_not_where_they_are_found(planted):
    with found.reproductions("catalogue") as papers:
        assert papers.SLUGS == SLUGS
    assert not planted.exists()


def test_another_package_of_that_name_is_refused_and_not_imported(planted, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RequestError, match="uninstall the other"), found.reproductions("catalogue"):
        pass
    assert not planted.exists()


def test_nothing_else_may_be_imported_while_they_run():
    with found.reproductions("catalogue"):
        assert importing._allowed == frozenset()
