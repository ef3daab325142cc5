# SPDX-License-Identifier: Apache-2.0
"""Every reproduction by its slug: its code, its settings, what it expects, and its README."""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from idiolect import RequestError
from idiolect.core.checks import nearest
from idiolect.experiments.spec import override
from idiolect.experiments.strict import fill
from papers.ranges import check_overrides
from papers.verdicts import Expectation

SLUGS = (  # paper by paper; the folder has underscores where the slug has hyphens
    "plsgd-consensus",
    "plsgd-trajectory",
    "plsgd-rates",
    "scafflix-logistic",
    "scafflix-stepsizes",
    "scafflix-inexact",
    "scafflix-condition",
    "scafflix-exact",
    "scafflix-networks",
    "unified-mx2",
    "unified-ws2",
    "unified-images",
    "unified-sampling",
    "unified-reparametrisation",
    "unified-relaxation",
    "flow-table2",
    "flow-table3",
    "flow-ablations",
    "flow-gains",
    "afa-bernoulli",
    "afa-noise",
    "afa-continuum",
    "afa-star",
    "collaborate-bernoulli",
)


PAPERS = {  # by the name that expected.toml uses: short name, year, title
    "plsgd": "PLSGD, 2023: Personalization mitigates the perils of Local SGD for heterogeneous distributed learning",
    "scafflix": "Scafflix, 2023: Explicit personalization and local training: double communication acceleration in "
    "federated learning",
    "unified": "Unified, 2023: Personalized federated learning: a unified framework and universal optimization "
    "techniques",
    "flow": "Flow, 2023: per-instance personalized federated learning",
    "all-for-all": "All-for-all, 2022: Sample optimality and all-for-all strategies in personalized federated and "
    "collaborative learning",
}


class Entry(NamedTuple):
    """Where a published result stands, by the head of its expected.toml."""

    title: str
    paper: str
    shows: str  # the figure, table or theorem


def find_entry(slug: str) -> Entry:
    """What the named reproduction is about; its code is not imported."""
    table = _read_expected(slug)
    return Entry(table["title"], PAPERS[table["paper"]], table["shows"])


def all_entries() -> dict[str, Entry]:
    """Every one by its slug."""
    return {slug: find_entry(slug) for slug in SLUGS}


def find_code(slug: str) -> ModuleType:
    """The reproduction's code: `measure` (spec and progress, and cells where it is made of them, to `Measured`),

    `draw` (spec and `Measured.curves` to a figure) and, where a request can be wrong, `check` (of a spec).
    """
    return importlib.import_module(f"papers.{find_folder(slug).name}")


def find_folder(slug: str) -> Path:
    """Where the reproduction's files lie."""
    if slug not in SLUGS:
        raise RequestError(f"There is no reproduction {slug!r}.{nearest(slug, SLUGS)}")
    return Path(__file__).parent / slug.replace("-", "_")


def load_spec(slug: str, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The experiment's own settings, with `a.b = value` overrides of settings it has."""
    table = tomllib.loads((find_folder(slug) / "spec.toml").read_text(encoding="utf-8"))
    if "like" in table:  # the same experiment, looked at in another way
        table = load_spec(table.pop("like")) | table
    changed = override(table, overrides)
    check_overrides(table, changed, slug)
    return changed


def load_expected(slug: str) -> tuple[Expectation, ...]:
    """What expected.toml says must come out."""
    entries = _read_expected(slug)["expectation"]
    return tuple(fill(Expectation, entry, f"{slug} expected.toml") for entry in entries)


def _read_expected(slug: str) -> dict[str, Any]:
    return tomllib.loads((find_folder(slug) / "expected.toml").read_text(encoding="utf-8"))


def read_me(slug: str) -> str:
    """The reproduction's README: claim, data, settings, expected result, errata."""
    return (find_folder(slug) / "README.md").read_text(encoding="utf-8")


def sized(slug: str, asked: Sequence[str]) -> list[str]:
    """The override that chooses the size asked for; refuses one that the experiment does not have."""
    if not asked:
        return []
    spec = load_spec(slug)
    sizes = [name for name in ("quick", "gpu", "full") if name in spec and "size" in spec]
    if not sizes and list(asked) == ["quick"]:
        return []  # the default: such an experiment is quick as it is
    if len(asked) > 1 or asked[0] not in sizes:
        given = " and ".join(f"--{name}" for name in asked)
        had = f"sizes: {', '.join(f'--{name}' for name in sizes)}; name one" if sizes else "one size only; leave it out"
        raise RequestError(f"{slug} has {had}, got {given}.")
    return [f'size = "{asked[0]}"']
