# SPDX-License-Identifier: Apache-2.0
"""Bundled data sets: whole, small, credited, and enough for a fresh clone with nothing set."""

from __future__ import annotations

import pytest

from idiolect.core.checks import AbsentDataError
from idiolect.data.catalogue import DATASETS
from idiolect.data.dataset_files import BUNDLED, VARIABLE, dataset_file, datasets_folder, find_file, whereabouts
from idiolect.data.packing import difference, digest, unpack
from idiolect.record.sealed import digest_of

FILES = sorted(path for path in BUNDLED.rglob("*") if path.is_file())
SETS = ("heart_disease", "mushrooms", "a6a", "shakespeare")


@pytest.fixture
def nothing_set(monkeypatch, tmp_path):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_every_bundled_file_has_the_checksum_that_is_written_down():
    lines = (BUNDLED / "SHA256SUMS").read_text().splitlines()
    sums = dict(reversed(line.split("  ")) for line in lines)
    found = {path.relative_to(BUNDLED).as_posix(): digest_of(path) for path in FILES}
    assert found == sums | {name: found[name] for name in ("SHA256SUMS", "CREDITS.md")}
    assert sum(path.stat().st_size for path in FILES) < 2_000_000


def test_bundled_sets_hold_what_the_catalogue_says(nothing_set):
    for name in SETS:
        assert whereabouts(DATASETS[name]) == "bundled"
        for relative, checksum in DATASETS[name].files.items():
            assert digest(unpack(BUNDLED / relative)) == checksum
    assert whereabouts(DATASETS["school"]) == "not here"


def test_bundled_sets_are_credited():
    text = (BUNDLED / "CREDITS.md").read_text(encoding="utf-8")
    for name in SETS:
        for word in DATASETS[name].citation.split():
            assert not word.startswith("doi:") or word.removeprefix("doi:").rstrip(".") in text
        for relative in DATASETS[name].files:
            assert relative in text or relative.rpartition("/")[0] + "/" in text


def test_the_users_folder_comes_before_what_is_bundled(nothing_set, monkeypatch):
    relative = "libsvm/mushrooms.bz2"
    assert datasets_folder() == nothing_set / "idiolect" / "datasets"
    assert find_file(relative) == BUNDLED / relative
    monkeypatch.setenv(VARIABLE, str(nothing_set / "mine"))
    own = nothing_set / "mine" / relative
    own.parent.mkdir(parents=True)
    own.touch()
    assert find_file(relative) == own
    assert whereabouts(DATASETS["mushrooms"]) == f"in {nothing_set / 'mine'}"
    monkeypatch.delenv(VARIABLE)
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert datasets_folder().parts[-3:] == (".cache", "idiolect", "datasets")


def test_no_set_is_put_together_from_two_places(nothing_set, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(nothing_set))
    own = nothing_set / "libsvm"
    own.mkdir()
    (own / "a6a.bz2").touch()
    (own / "w6a.bz2").touch()
    assert find_file("libsvm/a6a.bz2") == BUNDLED / "libsvm/a6a.bz2"
    with pytest.raises(AbsentDataError, match=r"w6a is not here: its file libsvm/w6a\.t\.bz2 is not in the folder"):
        dataset_file("libsvm/w6a.bz2")
    (own / "a6a.t.bz2").touch()
    assert find_file("libsvm/a6a.bz2") == own / "a6a.bz2"


@pytest.mark.parametrize("name", [name for name, row in DATASETS.items() if not row.exact])
def test_what_is_not_built_exactly_has_known_rows(name):
    row = DATASETS[name]
    assert set(row.known) == set(row.files)
    for relative, known in row.known.items():
        path = find_file(relative)
        if path is None:
            pytest.skip(f"{name} is not here; get it with `idiolect datasets fetch {name}`")
        assert difference(known, unpack(path)) is None


def test_the_catalogue_is_in_order():
    paths = [path for row in DATASETS.values() for path in row.files]
    assert len(set(paths)) == len(paths)
    for row in DATASETS.values():
        checksums = [*row.files.values(), *(one.sha256 for one in row.originals if one.sha256)]
        assert all(len(checksum) == 64 and int(checksum, 16) for checksum in checksums), row.name
        assert row.exact or row.remark, row.name
        assert all(one.address.startswith(("https://", "http://")) for one in row.originals)
