# SPDX-License-Identifier: Apache-2.0
"""Who may import code: only commands that train, only installed packages and --plugins, nothing a folder brings."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from idiolect import own_code
from idiolect.cli import app
from idiolect.cli.failures import _sentence, exit_code_of
from idiolect.core.checks import RequestError
from idiolect.core.importing import imported, place_of
from idiolect.experiments.predict import predict
from idiolect.search_path import leave_out_working_directory

MODULE = """
from pathlib import Path
from idiolect.models import Linear
Path({mark!r}).touch()
def make(input_shape, outputs):
    return Linear(input_shape[0], outputs)
"""


@pytest.fixture(scope="module")
def sent_once(tmp_path_factory, workshop):
    """A run whose spec names a module of its own, as its sender trained it; `executed` is touched by every import."""
    folder = tmp_path_factory.mktemp("sent")
    shutil.copy(workshop / "hospitals.csv", folder)
    spec = (workshop / "spec.toml").read_text().replace("[methods.local]\n", "")
    (folder / "spec.toml").write_text(f"{spec}[model]\nname = 'sent_along:make'\n")
    (folder / "sent_along.py").write_text(MODULE.format(mark="executed"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["idiolect", "run", "spec.toml", "--out", "run", "--plugins", ".", "--quiet"])
        assert exit_code_of(app) == 0
    return folder


@pytest.fixture
def hostile(here, sent_once):
    """The run in the current folder; its module lies there too, inside and beside the folder."""
    folder = shutil.copytree(sent_once / "run", here / "run")
    for place in (folder, here):
        shutil.copy(sent_once / "sent_along.py", place)
    sys.modules.pop("sent_along", None)
    yield folder
    sys.modules.pop("sent_along", None)


def test_predict_imports_nothing_that_a_folder_names(idiolect, here, hostile):
    answer = idiolect("predict", "run", "hospitals.csv")
    assert answer.code == 2
    assert "'sent_along:make' is not imported here" in answer.error
    assert "--trust sent_along:make" in answer.error
    assert not (here / "executed").exists()


@pytest.mark.parametrize("trust", [[], ["--trust", "sent_along:other"], ["--plugins", "run"]])
def test_predict_imports_exactly_what_the_user_names(idiolect, here, hostile, trust):
    assert "not imported here" in idiolect("predict", "run", "hospitals.csv", *trust).error
    assert not (here / "executed").exists()


def test_predict_with_code_that_the_user_trusts(idiolect, here, hostile):
    lost = idiolect("predict", "run", "hospitals.csv", "--trust", "sent_along:make")
    assert (lost.code, "--plugins DIR" in lost.error) == (2, True)  # neither the folder nor the working directory
    answer = idiolect("predict", "run", "hospitals.csv", "--trust", "sent_along:make", "--plugins", ".")
    assert answer.code == 0, answer.err
    assert (here / "executed").exists()


def test_predict_in_python_closes_what_is_open_around_it(here, hostile):
    with own_code("."), pytest.raises(RequestError, match="not imported here"):
        predict(hostile, here / "hospitals.csv")
    assert not (here / "executed").exists()


def test_report_and_advise_import_nothing_either(idiolect, here, hostile):
    assert idiolect("report", "run").code == 0
    refused = idiolect(
        *("advise", "hospitals.csv", "--client", "site", "--target", "ill"), "--set", "model.name = 'sent_along:make'"
    )
    assert refused.code == 2
    assert not (here / "executed").exists()


def test_run_and_resume_find_no_module_beside_the_spec(idiolect, here, hostile):
    (hostile / "done").unlink()
    for more in (["run", "--resume"], ["run/spec.toml", "--out", "new"]):
        answer = idiolect("run", *more)
        assert answer.code == 2
        assert "name its folder with --plugins DIR" in answer.error
    assert not (here / "executed").exists()


def test_plugins_must_be_a_folder(idiolect):
    answer = idiolect("run", "spec.toml", "--plugins", "hospitals.csv")
    assert (answer.code, "--plugins must name a folder" in answer.error) == (2, True)


def test_plugins_leave_the_search_path_as_it_was(idiolect, here):
    before = list(sys.path)
    assert idiolect("explain", "fedavg", "--plugins", ".").code == 0
    assert sys.path == before


def test_the_working_directory_leaves_the_search_path_unless_the_user_put_it_there(here, monkeypatch):
    library = sys.path.index(json.__file__.rpartition("/json/")[0])
    installed = sys.path[library:]
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    monkeypatch.setenv("PYTHONPATH", ":/elsewhere")  # an empty entry is the working directory, and an accident
    monkeypatch.setattr(sys, "path", ["", str(here), "/elsewhere", *installed, str(here)])
    leave_out_working_directory()
    assert sys.path == ["/elsewhere", *installed, str(here)]  # the last one as a .pth file of an installation puts it
    monkeypatch.setenv("PYTHONPATH", ".")
    monkeypatch.setattr(sys, "path", [str(here), *installed])
    leave_out_working_directory()
    assert sys.path == [str(here), *installed]


@pytest.mark.parametrize("start", [["-m", "idiolect"], ["-c", "from idiolect.cli import main; main()"]])
def test_started_by_python_it_imports_nothing_from_the_working_directory(here, environment, start):
    names = ("typer", "pytz", "pandas", "lz4") if start[0] == "-m" else ("pytz", "pandas", "lz4")  # -c imports itself
    for name in names:
        (here / f"{name}.py").write_text(f"open({str(here / 'executed')!r}, 'w')")
    command = [sys.executable, *start, "list", "data"]
    done = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert not (here / "executed").exists()


def test_an_error_in_own_code_names_its_file_and_line(here):
    (here / "breaks_down.py").write_text("def step(number):\n    return [0][number]\n")
    with own_code(here):
        step = imported("breaks_down:step", "It must be a function")
    sys.modules.pop("breaks_down")
    with pytest.raises(IndexError) as own:
        step(1)
    assert place_of(own.value) == "breaks_down.py, line 2, step"
    assert "breaks_down.py, line 2, step: IndexError" in _sentence(own.value)[0]
    with pytest.raises(IndexError) as ours:
        [0][1]
    assert place_of(ours.value) == ""
