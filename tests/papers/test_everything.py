# SPDX-License-Identifier: Apache-2.0
"""`idiolect reproduce all`: one row per slug, whatever happens to the others, and nothing is computed twice."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from benchmarks import reproductions as kept
from idiolect.core.checks import RequestError
from idiolect.data.dataset_files import VARIABLE
from papers import everything, runner
from papers.catalogue import find_code, load_expected
from papers.everything import reproduce_all
from papers.reproduction import Measured
from papers.side_by_side import work_side_by_side

FINE, FAILING, ABSENT = "plsgd-consensus", "plsgd-rates", "unified-images"


@pytest.fixture
def runs(monkeypatch, tmp_path):
    """Three slugs: one whose numbers are as documented, one that fails, one without its data; counts what is run."""
    from matplotlib.figure import Figure

    started = []
    numbers = {one.name: one.value + (1.0 if one.outcome == "miss" else 0.0) for one in load_expected(FINE)}

    def fine(spec, progress):
        started.append(spec["name"])
        progress("part", 1, 2)
        return Measured(dict(numbers), None)

    def failing(spec, progress):
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(everything, "SLUGS", (ABSENT, FAILING, FINE))
    monkeypatch.setattr(find_code(FINE), "measure", fine)
    monkeypatch.setattr(find_code(FINE), "draw", lambda spec, curves: Figure(figsize=(1, 1)))
    monkeypatch.setattr(find_code(FAILING), "measure", failing)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "no data"))
    return started


def test_one_row_each_whatever_happens_to_the_others(runs, tmp_path):
    heard = []
    found = reproduce_all(tmp_path / "all", lambda *news: heard.append(news))
    assert [line.verdict for line in found.lines] == ["no data", "failed", "as documented"]
    assert "idiolect datasets fetch" in found.lines[0].remark
    assert "by nothing" in found.lines[1].remark
    assert found.lines[2].seconds >= 0
    assert [line.slug for line in found.changed] == [FAILING]  # data that are absent are no change
    assert (f"{FINE}, part, 1 of 2", 2, 3) in heard
    assert heard[-1][1:] == (3, 3)
    text = found.to_text()
    assert all(slug in text for slug in (FINE, FAILING, ABSENT))
    assert "7 of 8" in text  # claims of the paper, one of which is known not to hold
    assert text.endswith("1 of 3 are as documented, 1 without their data; 1 claims are known not to hold.")
    assert json.loads(json.dumps(found.as_dict()))["reproductions"][2]["counts"]["paper"]["miss"] == 1


def test_what_is_finished_is_found_again_and_judged_anew(runs, tmp_path, monkeypatch):
    folder = tmp_path / "all"
    reproduce_all(folder)
    with pytest.raises(RequestError, match="--resume"):
        reproduce_all(folder)
    again = reproduce_all(folder, resume=True)
    assert runs == [FINE]
    assert again.lines[2].verdict == "as documented"
    first, *others = load_expected(FINE)
    moved = (dataclasses.replace(first, value=first.value + 1), *others)
    with monkeypatch.context() as patch:
        patch.setattr(runner, "load_expected", lambda slug: moved)
        assert reproduce_all(folder, resume=True).lines[2].verdict == "changed"
    monkeypatch.setattr(everything, "make_spec", lambda slug, sizes: {"name": "another"})
    assert "another request" in reproduce_all(folder, resume=True).lines[2].remark
    with pytest.raises(RequestError, match="nothing to resume"):
        reproduce_all(tmp_path / "nowhere", resume=True)


@pytest.mark.parametrize("name", ["numbers.json", "spec.toml", "machine.json"])
@pytest.mark.parametrize("change", [lambda text: text.replace("0", "1", 1), lambda text: text[: len(text) // 2]])
def test_a_finished_file_that_was_edited_or_cut_is_not_believed(runs, tmp_path, name, change):
    reproduce_all(tmp_path)
    file = tmp_path / FINE / name
    file.write_text(change(file.read_text()))
    line = reproduce_all(tmp_path, resume=True).lines[2]
    assert line.verdict == "failed"
    assert f"{file} is damaged" in line.remark


@pytest.mark.parametrize("name", ["numbers.json", "machine.json"])
def test_a_cut_file_of_a_folder_without_a_manifest_is_blamed_on_the_folder(runs, tmp_path, name):
    reproduce_all(tmp_path)
    own = tmp_path / FINE
    (own / name).write_text((own / name).read_text()[:40])
    (own / "done").write_text("")
    (own / "manifest.json").unlink()
    line = reproduce_all(tmp_path, resume=True).lines[2]
    assert line.verdict == "failed"
    assert f"The files in {own} do not fit together" in line.remark


def test_a_number_that_is_not_finite_is_found_again(runs, tmp_path, monkeypatch):
    first, *others = load_expected(FINE)
    numbers = {first.name: math.nan} | {one.name: one.value for one in others}
    monkeypatch.setattr(find_code(FINE), "measure", lambda spec, progress: Measured(numbers, None))
    lines = [reproduce_all(tmp_path, resume=resume).lines[2] for resume in (False, True)]
    assert lines[0] == lines[1]
    assert lines[0].verdict == "changed"
    assert first.name in lines[0].remark


def test_two_at_once_give_the_same_rows(monkeypatch, tmp_path):
    monkeypatch.setattr(everything, "SLUGS", (ABSENT, "plsgd-trajectory"))
    monkeypatch.setenv(VARIABLE, str(tmp_path / "no data"))
    heard = []
    found = reproduce_all(tmp_path / "all", lambda *news: heard.append(news), jobs=2)
    assert [(line.slug, line.verdict) for line in found.lines] == [
        (ABSENT, "no data"),
        ("plsgd-trajectory", "as documented"),
    ]
    assert heard[-1][1:] == (2, 2)
    again = reproduce_all(tmp_path / "all", resume=True)
    assert again.lines[1] == found.lines[1]  # found again, not computed


PIECEWORK = """
import os

def work(name, news):
    news(f"{name} begins", 0, 1)
    if name == "dies":
        os._exit(3)
    return name.upper()
"""


def test_groups_are_processes_and_one_that_dies_ends_no_other(monkeypatch, tmp_path):
    (tmp_path / "piecework.py").write_text(PIECEWORK)
    monkeypatch.syspath_prepend(tmp_path)  # processes inherit the search path
    import piecework

    heard = list(work_side_by_side([["a", "dies", "after"], ["b", "c"]], piecework.work, 2))
    results = {name: result for name, news, result in heard if news is None}
    assert results == {"a": "A", "dies": 3, "after": 3, "b": "B", "c": "C"}
    assert ("b", ("b begins", 0, 1), None) in heard
    left = work_side_by_side([["a"], ["b"]], piecework.work, 1)
    assert next(left)[0] == "a"
    left.close()  # ends the process that is at work, and begins no other


def test_what_was_found_is_kept_for_the_page(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "RESULTS", tmp_path / "kept.json")
    reproduce_all(tmp_path / "all")
    for _ in range(2):  # the second time replaces the entry
        kept.main([str(tmp_path / "all")])
        (entry,) = json.loads((tmp_path / "kept.json").read_text())
    assert entry["counts"]["paper"] == {"of": 8, "hold": 7, "miss": 1}
    assert entry["misses"][0]["names"] == ["equation_21_measured_over_printed"]
    assert entry["date"] > "2026"


ENTRIES = json.loads(kept.RESULTS.read_text(encoding="utf-8"))


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["slug"])
def test_the_page_counts_what_is_expected_today(entry):
    spec = {"left_out": entry["left_out"]} | ({"size": entry["size"]} if entry["size"] else {})
    expected = [one for one in load_expected(entry["slug"]) if one.belongs_to(spec)]
    found = {origin: (count["of"], count["miss"]) for origin, count in entry["counts"].items()}
    for origin, (of, miss) in found.items():
        own = [one.outcome for one in expected if one.origin == origin]
        assert (len(own), own.count("miss")) == (of, miss), "run it again, and `python -m benchmarks.reproductions`"
    assert sum(of for of, _ in found.values()) == len(expected)
    assert entry["changed"] == []
