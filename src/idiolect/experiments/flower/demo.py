# SPDX-License-Identifier: Apache-2.0
"""A whole Flower system on one machine: a SuperLink, a SuperNode for each site, a run, and everything stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv

from idiolect.experiments.deploy.demo import LOOPBACK, free_port, site_processes
from idiolect.experiments.deploy.site_file import FILE
from idiolect.experiments.flower.kits import make_flower_kits
from idiolect.experiments.flower.processes import serve
from idiolect.experiments.spec import Spec


def run_flower_demo(folder: Path, spec: Spec, tables: Mapping[str, pa.Table], say: Callable[[str], None]) -> Path:
    """Make kits, start a process for each site and the server, train, stop them; the run folder."""
    kits = make_flower_kits(folder / "kits", spec, list(tables), LOOPBACK, free_port())
    for name, table in tables.items():
        pacsv.write_csv(table, kits[name] / "rows.csv")
        path = kits[name] / FILE  # this machine's user is the one who would ship code
        path.write_text(path.read_text().replace("shipped_code = false", "shipped_code = true"))
    with site_processes([kits[name] for name in tables]):
        say(f"{len(tables)} sites started, each with a SuperNode of Flower.")
        return serve(kits["server"], say, folder / "result")
