# SPDX-License-Identifier: Apache-2.0
"""`idiolect datasets`: what is listed, fetched and built, and the sentence where a set is not here."""

from __future__ import annotations

import bz2
import dataclasses
import json
import shutil

import pytest
import tomli_w

from idiolect.data import catalogue
from idiolect.data.dataset_files import BUNDLED, VARIABLE, dataset_file
from idiolect.data.packing import digest, unpack


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """An empty folder of data sets."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "sets"))
    return tmp_path / "sets"


def test_the_list_says_what_is_here(idiolect, folder):
    answer = idiolect("datasets", "list")
    assert answer.code == 0
    lines = {line.split()[0]: line for line in answer.out.splitlines() if line.strip()}
    assert set(catalogue.DATASETS) < set(lines)
    assert lines["heart_disease"].endswith("bundled")
    assert "139 schools" in lines["school"]
    assert lines["school"].endswith("not here")
    listed = json.loads(idiolect("datasets", "list", "--format", "json").out)
    assert list(listed) == list(catalogue.DATASETS)
    assert listed["kmnist"]["originals"][0]["sha256"].startswith("edd7a857")
    assert listed["kmnist"]["where"] == "not here"


def test_a_set_is_built_from_a_file_and_then_here(idiolect, folder, here):
    text = unpack(BUNDLED / "libsvm/mushrooms.bz2")
    (here / "mine").write_bytes(text)
    answer = idiolect("datasets", "build", "mushrooms", "--from", "mine")
    assert (answer.code, answer.out) == (0, f"mushrooms is ready: in {folder}.\n")
    assert "Content checked" in answer.err
    assert digest(unpack(folder / "libsvm/mushrooms.bz2")) == digest(text)
    again = idiolect("datasets", "fetch", "mushrooms")
    assert (again.code, again.out) == (0, f"mushrooms is here already: in {folder}.\n")


def test_without_network_there_is_one_sentence(idiolect, folder, monkeypatch):
    nowhere = catalogue.Original("http://127.0.0.1:9/school.mat")
    row = dataclasses.replace(catalogue.DATASETS["school"], originals=(nowhere,))
    monkeypatch.setitem(catalogue.DATASETS, "school", row)
    answer = idiolect("datasets", "fetch", "school")
    assert answer.code == 1
    assert answer.error.startswith("Error: http://127.0.0.1:9/school.mat could not be read")
    assert "Licence: none stated" in answer.err


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("datasets fetch schol", "Did you mean 'school'"),
        ("datasets build w6a --from hospitals.csv", "give --from the folder"),
        ("datasets build school --from hospitals.csv", "is not what school is built from"),
        ("datasets build school --from nowhere.mat", "There is no file nowhere.mat"),
        ("compare --data school", "`idiolect datasets fetch school`"),
        ("compare hospitals.csv --data school", "Both TABLE hospitals.csv and --data school are given"),
    ],
)
def test_wrong_requests_are_refused(idiolect, folder, command, words):
    answer = idiolect(*command.split())
    assert answer.code == 2
    assert words in answer.error


def test_a_bundled_set_is_compared_with_nothing_set(idiolect, monkeypatch, tmp_path):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    small = ("--methods", "local,fedavg", "--rounds", "2", "--step-sizes", "0.1", "--quiet")
    answer = idiolect("compare", "--data", "heart_disease", *small)
    assert answer.code == 0, answer.err
    assert "fedavg" in answer.out


def cut_rows(path):
    path.write_bytes(bz2.compress(b"".join(unpack(path).splitlines(keepends=True)[:50])))


def cut_in_a_line(path):
    content = path.read_bytes()
    path.write_bytes(content[: content.rindex(b",", 0, -20)])


DAMAGE = {
    "rows": ("a6a", "libsvm/a6a.bz2", cut_rows, "has other rows than the known ones"),
    "bytes": ("a6a", "libsvm/a6a.bz2", lambda path: path.write_bytes(path.read_bytes()[:9000]), "cannot be read"),
    "nothing": ("mushrooms", "libsvm/mushrooms.bz2", lambda path: path.write_bytes(b""), "cannot be read"),
    "text": ("a6a", "libsvm/a6a.bz2", lambda path: path.write_bytes(bz2.compress(b"a page")), "no data set does"),
    "line": ("heart_disease", "tabular/heart_disease/processed.va.data", cut_in_a_line, "has the SHA-256"),
}


@pytest.mark.parametrize(("name", "relative", "damage", "words"), DAMAGE.values(), ids=DAMAGE)
def test_a_file_of_other_content_is_refused_and_never_replaced(idiolect, folder, here, name, relative, damage, words):
    for one in catalogue.DATASETS[name].files:
        (folder / one).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(BUNDLED / one, folder / one)
    assert idiolect("datasets", "fetch", name).out == f"{name} is here already: in {folder}.\n"
    damage(folder / relative)
    kept = (folder / relative).read_bytes()
    source = {"source": name} if name == "heart_disease" else {"source": "libsvm", "settings": {"name": name}}
    (here / "spec.toml").write_text(tomli_w.dumps({"data": source, "methods": {"local": {"step_size": 0.1}}}))
    for command in (("run", "spec.toml"), ("datasets", "fetch", name)):
        answer = idiolect(*command)
        assert answer.code == 2
        assert answer.error.startswith(f"Error: {folder / relative} is not the file of the data set {name}")
        assert words in answer.error
        assert "delete it, or keep it elsewhere if it is your own, and get the right one with" in answer.error
        assert f"`idiolect datasets fetch {name}`" in answer.error
    assert (folder / relative).read_bytes() == kept


def test_a_file_is_not_replaced_where_others_of_its_set_are_absent(idiolect, folder):
    (folder / "libsvm").mkdir(parents=True)
    (folder / "libsvm/w6a.bz2").write_bytes(bz2.compress(b"1 1:1\n"))
    answer = idiolect("datasets", "fetch", "w6a")
    assert (answer.code, "w6a.bz2 is not the file" in answer.error) == (2, True)


def test_rows_in_another_order_are_those_of_a_set_that_may_have_them(idiolect, folder):
    (folder / "libsvm").mkdir(parents=True)
    for one in catalogue.DATASETS["a6a"].files:
        rows = unpack(BUNDLED / one).splitlines(keepends=True)
        (folder / one).write_bytes(bz2.compress(b"".join(reversed(rows))))
    assert idiolect("datasets", "fetch", "a6a").out == f"a6a is here already: in {folder}.\n"
    assert dataset_file("libsvm/a6a.bz2") == folder / "libsvm/a6a.bz2"
