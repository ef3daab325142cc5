# SPDX-License-Identifier: Apache-2.0
"""Looking before and during a deployment: a site's check of its own table, and how far a run is. Nothing is sent."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from idiolect.core.checks import RequestError
from idiolect.data.summaries import Texts
from idiolect.engines.deploy.kept import LOG
from idiolect.experiments.deploy.agreement import versions
from idiolect.experiments.deploy.certificates import check_certified
from idiolect.experiments.deploy.desk import SpecDesk
from idiolect.experiments.deploy.kits import RESULT, SERVER_FILE
from idiolect.experiments.deploy.site_file import read_site_file
from idiolect.record.errors import DamagedError

SHOWN = 5  # categories that a line names


def check_site(kit: Path) -> list[str]:
    """What the site would say of its rows, line by line; RequestError where it would refuse or be refused."""
    own = read_site_file(kit)
    check_certified(kit, own.name)
    desk = SpecDesk(own)
    desk.answer("sums", {})  # whether the site agrees
    sums, lines = desk.sums, []
    lines.append(f"Site {own.name}, table {own.table.name}, spec {desk.spec.name} ({desk.run[:8]}).")
    lines.append(", ".join(f"{name} {version}" for name, version in versions().items()) + ".")
    counts = sums.rows
    lines.append(f"Rows: {counts['train']} train, {counts['validation']} validate, {counts['test']} test.")
    lines.append(f"Task: {sums.task}.")
    for name, summary in {**sums.features, **sums.targets}.items():
        kind = sums.kinds.get(name, "no value")
        if isinstance(summary, Texts):
            levels = summary.levels[0]
            shown = ", ".join(levels[:SHOWN]) + (", ..." if len(levels) > SHOWN else "")
            lines.append(f"  {name}: {kind}, {len(levels)} different: {shown}")
        else:
            gaps = f", {int(summary.missing[0])} missing" if summary.missing[0] else ""
            ends = f"{summary.lowest[0]:g} to {summary.highest[0]:g}" if np.isfinite(summary.lowest[0]) else "empty"
            lines.append(f"  {name}: {kind}, {ends}{gaps}")
    return lines


def status_of(folder: Path) -> list[str]:
    """How far a run is, from the files of a server's kit, of its run folder, or of a site's kit."""
    if not folder.is_dir():
        raise RequestError(f"There is no folder {folder}; give a kit, or a run folder.")
    if (folder / SERVER_FILE).is_file():
        if not (folder / RESULT).is_dir():
            raise RequestError(f"The server of {folder} has not begun; `idiolect deploy serve {folder}` runs it.")
        folder = folder / RESULT
    if (folder / "done").is_file():
        return [f"Finished: {folder}."]
    checkpoints = sorted((folder / "checkpoint").glob("*/latest.npz"))
    if checkpoints:
        return [line for path in checkpoints for line in _progress(path)]
    log = next((path for path in (folder / LOG, folder / "kept" / LOG) if path.is_file()), None)
    if log is None:
        raise RequestError(f"{folder} holds no run that has begun; give a kit, or a run folder.")
    lines = log.read_text(encoding="utf-8").splitlines()
    last = json.loads(lines[-1])
    return [f"{len(lines)} messages sent; the last at {last['time']}: {last['kind']}, round {last['round']}."]


def _progress(path: Path) -> list[str]:
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
            facts = json.loads(stored["facts"].tobytes())
    except (OSError, ValueError, KeyError) as error:
        raise DamagedError(f"{path} cannot be read ({type(error).__name__}).") from None
    lines = [f"{path.parent.name}: {facts['round']} rounds, selected {facts['selected_round']}."]
    for site, rounds in sorted(facts["counted"].items()):
        absent, refused = facts["absent"].get(site, 0), facts["refused"].get(site, 0)
        doubts = f"; absent {absent}, refused {refused}" if absent or refused else ""
        lines.append(
            f"  {site}: last counted in round {rounds - 1}{doubts}" if rounds else f"  {site}: in no round yet{doubts}"
        )
    return lines
