# SPDX-License-Identifier: Apache-2.0
"""Looking before and during a deployment: a site's check of its own table, and how far a run is. Nothing is sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from idiolect.core.checks import RequestError
from idiolect.core.order import natural_key
from idiolect.data.preparation import Numbers, Texts
from idiolect.engines.deploy.kept import LOG
from idiolect.experiments.deploy.agreement import versions
from idiolect.experiments.deploy.desk import SpecDesk
from idiolect.experiments.deploy.kits import RESULT, SERVER_FILE, read_certified
from idiolect.record.errors import DamagedError

SHOWN = 5  # categories that a line names


class Looked(NamedTuple):
    """What was found: in lines for a person, and as plain values for a program."""

    lines: list[str]
    facts: dict[str, object]


def check_site(kit: Path) -> Looked:
    """What the site would say of its rows; RequestError where it would refuse or be refused."""
    own = read_certified(kit)
    desk = SpecDesk(own)
    # asked as the coordinator would ask, so that a refusal shows here first
    desk.answer("sums", {})  # whether the site agrees
    sums = desk.sums
    counts = {part: int(sums.rows[part]) for part in ("train", "validation", "test")}
    columns = {
        name: _column(sums.kinds.get(name, "no value"), one) for name, one in (sums.features | sums.targets).items()
    }
    lines = [
        f"Site {own.name}, table {own.table.name}, spec {desk.spec.name} ({desk.run[:8]}).",
        ", ".join(f"{name} {version}" for name, version in versions().items()) + ".",
        f"Rows: {counts['train']} train, {counts['validation']} validate, {counts['test']} test.",
        f"Task: {sums.task}.",
        *(f"  {name}: {_column_words(one)}" for name, one in columns.items()),
    ]
    facts = {"site": own.name, "table": own.table.name, "spec": desk.spec.name, "run": desk.run}
    return Looked(lines, facts | {"versions": versions(), "rows": counts, "task": sums.task, "columns": columns})


def _column(kind: str, summary: Texts | Numbers) -> dict[str, object]:
    """What the site would say of one column."""
    if isinstance(summary, Texts):
        return {"kind": kind, "different": list(summary.levels[0])}
    lowest, highest = float(summary.lowest[0]), float(summary.highest[0])
    ends = {"lowest": lowest, "highest": highest} if np.isfinite(lowest) else {}
    return {"kind": kind, "missing": int(summary.missing[0]), **ends}


def _column_words(one: Mapping[str, object]) -> str:
    levels = one.get("different")
    if isinstance(levels, list):
        shown = ", ".join(levels[:SHOWN]) + (", ..." if len(levels) > SHOWN else "")
        return f"{one['kind']}, {len(levels)} different: {shown}"
    gaps = f", {one['missing']} missing" if one["missing"] else ""
    ends = f"{one['lowest']:g} to {one['highest']:g}" if "lowest" in one else "empty"
    return f"{one['kind']}, {ends}{gaps}"


def status_of(folder: Path) -> Looked:
    """How far a run is, from the files of a server's kit, of its run folder, or of a site's kit."""
    if not folder.is_dir():
        raise RequestError(f"There is no folder {folder}; give a kit, or a run folder.")
    if (folder / SERVER_FILE).is_file():
        if not (folder / RESULT).is_dir():
            raise RequestError(f"The server of {folder} has not begun; `idiolect deploy serve {folder}` runs it.")
        folder = folder / RESULT
    return _status_of_run(folder)


def _status_of_run(folder: Path) -> Looked:
    facts: dict[str, object] = {"folder": str(folder), "finished": (folder / "done").is_file()}
    if facts["finished"]:
        return Looked([f"Finished: {folder}."], facts)
    checkpoints = sorted((folder / "checkpoint").glob("*/latest.npz"))
    if checkpoints:
        found = [_progress(path) for path in checkpoints]
        return Looked([line for one in found for line in one.lines], facts | {"methods": [one.facts for one in found]})
    # a site keeps no checkpoints; what it sent says how far it is
    log = next((path for path in (folder / LOG, folder / "kept" / LOG) if path.is_file()), None)
    if log is None:
        raise RequestError(f"{folder} holds no run that has begun; give a kit, or a run folder.")
    lines, last = _last_message(log)
    return Looked(lines, facts | last)


def _last_message(log: Path) -> Looked:
    """How far a site is, which keeps no checkpoints: by what it sent."""
    lines = log.read_text(encoding="utf-8").splitlines()
    last = {name: json.loads(lines[-1])[name] for name in ("time", "kind", "round")}
    words = f"{len(lines)} messages sent; the last at {last['time']}: {last['kind']}, round {last['round']}."
    return Looked([words], {"messages": len(lines), "last": last})


def _progress(path: Path) -> Looked:
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
            facts = json.loads(stored["facts"].tobytes())
    except (OSError, ValueError, KeyError) as error:
        raise DamagedError(f"{path} cannot be read ({type(error).__name__}).") from None
    label, sites = path.parent.name, dict[str, dict[str, int | None]]()
    lines = [f"{label}: {facts['round']} rounds, selected {facts['selected_round']}."]
    for site, rounds in sorted(facts["counted"].items(), key=lambda one: natural_key(one[0])):
        absent, refused = facts["absent"].get(site, 0), facts["refused"].get(site, 0)
        doubts = f"; absent {absent}, refused {refused}" if absent or refused else ""
        lines.append(
            f"  {site}: last counted in round {rounds - 1}{doubts}" if rounds else f"  {site}: in no round yet{doubts}"
        )
        sites[site] = {"last_round": rounds - 1 if rounds else None, "absent": absent, "refused": refused}
    known = {"method": label, "rounds": facts["round"], "selected_round": facts["selected_round"]}
    return Looked(lines, known | {"sites": sites})
