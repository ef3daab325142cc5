# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks.reproductions FOLDER ...`: keep what finished reproductions found, for docs/reproducing.md.

A FOLDER is that of one reproduction, or one that holds several (`idiolect reproduce all`). Numbers are judged by
today's expected.toml. An entry of `results/reproductions.json` is replaced by that of a newer run of the same size.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from papers.catalogue import SLUGS
from papers.runner import judge
from papers.verdicts import Row

RESULTS = Path(__file__).parent / "results" / "reproductions.json"


def find_runs(folders: list[Path]) -> Iterator[Path]:
    """Folders of finished reproductions, in the given ones."""
    for folder in folders:
        for own in (folder, *sorted(folder.iterdir())):
            if (own / "numbers.json").is_file() and (own / "done").is_file():
                yield own


def read_run(folder: Path) -> dict[str, Any]:
    """One finished reproduction: how many numbers of each origin hold, which do not and why, where and when."""
    kept = json.loads((folder / "numbers.json").read_text(encoding="utf-8"))
    facts = json.loads((folder / "machine.json").read_text(encoding="utf-8"))
    spec = tomllib.loads((folder / "spec.toml").read_text(encoding="utf-8"))
    found = judge(kept["slug"], spec, {row["name"]: row["measured"] for row in kept["numbers"]}, folder)
    return {
        "slug": found.slug,
        "size": spec.get("size", ""),
        "counts": {origin: dataclasses.asdict(count) for origin, count in found.counts.items()},
        "misses": _reasons(found.rows),
        "changed": [row.name for row in found.changed],
        "left_out": list(found.left_out),
        "seconds": facts["seconds"],
        "machine": {key: facts[key] for key in ("processor", "cpu_count", "devices", "load_average", "python", "jax")},
        "date": facts["date"][:10],
        "commit": facts["commit"],
    }


def _reasons(rows: tuple[Row, ...]) -> list[dict[str, Any]]:
    """Documented misses, by their reason."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if row.verdict == "misses":
            found.setdefault(row.because, []).append(row.name)
    return [{"names": names, "because": because} for because, names in found.items()]


def main(arguments: list[str]) -> None:
    """Read the folders and write the file."""
    before = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else []
    entries = {(entry["slug"], entry["size"]): entry for entry in before}
    for folder in find_runs([Path(name) for name in arguments]):
        entry = read_run(folder)
        entries[entry["slug"], entry["size"]] = entry
        print(f"{entry['slug']} {entry['size']}".strip())
    ordered = sorted(entries.values(), key=lambda entry: (SLUGS.index(entry["slug"]), entry["size"]))
    RESULTS.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
