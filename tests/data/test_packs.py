# SPDX-License-Identifier: Apache-2.0
"""Packed federations: all of it comes back, rows stay on disk, and nothing half-written or changed is opened."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pyarrow as pa
import pytest

from idiolect.data.federation import Federation
from idiolect.data.packs import FACTS, open_pack, save_pack
from idiolect.data.split import Split
from idiolect.data.store import is_mapped
from idiolect.record.errors import DamagedError, RequestError
from idiolect.record.manifest import find_problems, write_manifest

PARTS = ("train", "validation", "test")


def table(preparation="federated", **more):
    """90 rows of 6 clients, one of which never trains; a column of texts, one of weights, one of groups."""
    draw = np.random.default_rng(0)
    site = [f"s{row % 6}" for row in range(90)]
    columns = {
        "site": site,
        "age": [None if row == 7 else float(value) for row, value in enumerate(draw.normal(50, 9, 90))],
        "ward": [("red", "blue")[row // 6 % 2] for row in range(90)],
        "visit": [row // 12 for row in range(90)],
        "weigh": draw.integers(1, 4, 90).astype(float),
        "sick": [("no", "yes")[row * 7 % 3 == 0] for row in range(90)],
    }
    options = {"split": Split(group_column="visit"), "held_out": 1, "weight": "weigh", "preparation": preparation}
    return Federation.from_table(pa.table(columns), client="site", target="sick", **options | more)


def same(one, other):
    """Whether two values with arrays in them are equal."""
    if dataclasses.is_dataclass(one):
        names = [field.name for field in dataclasses.fields(one) if field.name != "known"]
        return type(one) is type(other) and all(same(getattr(one, name), getattr(other, name)) for name in names)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    return one == other


@pytest.mark.parametrize("preparation", ["federated", "local"])
def test_a_table_comes_back_whole_and_its_rows_stay_on_disk(tmp_path, preparation):
    federation = table(preparation, **({"held_out": 0} if preparation == "local" else {}))
    save_pack(tmp_path / "rows", federation)
    found = open_pack(tmp_path / "rows")
    assert same(federation, found)
    for part in PARTS:
        rows, packed = getattr(federation, part), getattr(found, part)
        assert is_mapped(packed)
        assert packed.extent == rows.extent
        assert packed.digest("inputs")[0] == rows.inputs.shape
    assert {path.name for path in tmp_path.iterdir()} == {"rows"}


def test_rows_of_arrays_come_back_too(tmp_path):
    draw = np.random.default_rng(1)
    tokens = draw.integers(0, 5, (40, 6))
    federation = Federation.from_arrays(tokens, tokens, np.arange(40) % 4, tokens=True, classes=tuple("abcde"))
    save_pack(tmp_path / "rows", federation)
    assert same(federation, open_pack(tmp_path / "rows"))


def test_a_digest_tells_rows_that_differ_in_one_number(tmp_path):
    federation = table()
    save_pack(tmp_path / "one", federation)
    changed = federation.train.inputs.copy()
    changed[3, 0] += 1
    other = dataclasses.replace(federation, train=dataclasses.replace(federation.train, inputs=changed))
    save_pack(tmp_path / "two", other)
    first, second = (open_pack(tmp_path / name).train for name in ("one", "two"))
    assert first.digest("inputs") != second.digest("inputs")
    assert first.digest("targets") == second.digest("targets")
    for part in ("inputs", "targets", "offsets", "weights"):  # whether they are packed or not
        assert first.digest(part) == federation.train.digest(part)


def test_a_pack_is_never_replaced(tmp_path):
    save_pack(tmp_path / "rows", table())
    with pytest.raises(RequestError, match="exists, and a pack needs a folder of its own"):
        save_pack(tmp_path / "rows", table())


def test_what_fails_while_it_is_written_leaves_nothing(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space left"):
        save_pack(tmp_path / "rows", table())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "damage", [FACTS, "preprocessing.json", "arrays.npz", f"held_out/{FACTS}", "train/offsets.npy"]
)
def test_a_file_that_was_changed_is_refused(tmp_path, damage):
    save_pack(tmp_path / "rows", table())
    path = tmp_path / "rows" / damage
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(DamagedError, match="is damaged"):
        open_pack(tmp_path / "rows")


def test_a_file_of_another_program_beside_the_rows_is_no_fault(tmp_path):
    save_pack(tmp_path / "rows", table())
    (tmp_path / "rows" / "train" / ".DS_Store").write_bytes(b"a file browser's")
    assert same(open_pack(tmp_path / "rows"), table())


def test_changed_rows_are_found_by_a_look_at_all_files(tmp_path):
    save_pack(tmp_path / "rows", table())
    inputs = np.load(tmp_path / "rows" / "train" / "inputs.npy", mmap_mode="r+")
    inputs[0] += 1
    inputs.flush()
    assert [one.file for one in find_problems(tmp_path / "rows")] == ["train/inputs.npy"]


def test_files_of_two_packs_do_not_fit_together(tmp_path):
    """A manifest that was made anew proves nothing: every number of rows is held against the others."""
    save_pack(tmp_path / "rows", table())
    save_pack(tmp_path / "other", table(held_out=0))
    shutil.copy(tmp_path / "other" / "train" / "offsets.npy", tmp_path / "rows" / "train" / "offsets.npy")
    write_manifest(tmp_path / "rows")
    with pytest.raises(DamagedError, match="do not fit together"):
        open_pack(tmp_path / "rows")


def test_other_folders_and_other_versions_are_refused(tmp_path):
    with pytest.raises(RequestError, match="is no pack"):
        open_pack(tmp_path)
    save_pack(tmp_path / "rows", table())
    (tmp_path / "rows" / "done").unlink()  # a copy that was broken off
    with pytest.raises(RequestError, match="is no pack"):
        open_pack(tmp_path / "rows")


def test_a_pack_of_a_later_version_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("idiolect.data.packs.SCHEMA", 3)
    save_pack(tmp_path / "rows", table())
    monkeypatch.undo()
    assert json.loads((tmp_path / "rows" / FACTS).read_text())["schema"] == 3
    with pytest.raises(RequestError, match=r"schema 3, and this one reads 2.*pack the rows again"):
        open_pack(tmp_path / "rows")
