# SPDX-License-Identifier: Apache-2.0
"""The run folder: everything a run leaves behind, written atomically, complete and final."""

from __future__ import annotations

import datetime
import json
import os
import platform
import shutil
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import save_file

from idiolect.core.checks import RequestError
from idiolect.experiments.spec import Spec, to_toml

SCHEMA = 1


class RunFolder:
    """A folder for one run. Nothing that is finished is ever overwritten."""

    def __init__(self, path: Path):
        self.path = path

    @property
    def done(self) -> bool:
        """Whether a run has finished here."""
        return (self.path / "done").is_file()

    @property
    def begun(self) -> bool:
        """Whether a run was started here."""
        return (self.path / "spec.toml").is_file()

    def open(self, resume: bool) -> None:
        """Make the folder, or refuse with the way out."""
        if self.done and resume:
            raise RequestError(
                f"The run in {self.path} is finished; there is nothing to resume. Read it with `report`."
            )
        if self.begun and not resume:
            raise RequestError(
                f"The folder {self.path} already holds a run. Add --resume to go on with it, or choose another --out."
            )
        if resume and not self.begun:
            raise RequestError(f"There is no run to resume in {self.path}; start one without --resume.")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            probe = self.path / ".probe"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise RequestError(f"The run folder {self.path} cannot be written ({error.strerror}); use --out.") from None

    def write_text(self, name: str, text: str) -> None:
        """Replace a text file atomically."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}.unfinished")
        unfinished.write_text(text, encoding="utf-8")
        os.replace(unfinished, path)

    def write_spec(self, spec: Spec) -> None:
        """The resolved spec."""
        self.write_text("spec.toml", to_toml(spec))

    def write_json(self, name: str, content: Any) -> None:
        """Plain values; not-a-number becomes null."""
        self.write_text(name, json.dumps(_without_nan(content), indent=1, allow_nan=False))

    def write_table(self, name: str, rows: list[dict[str, Any]]) -> None:
        """One Parquet file; a column missing from a row, or not-a-number, is null."""
        columns = {key: None for row in rows for key in row}
        table = pa.table({key: [_null_nan(row.get(key)) for row in rows] for key in columns})
        path = self.path / name
        unfinished = path.with_name(f".{path.name}.unfinished")
        pq.write_table(table, unfinished)
        os.replace(unfinished, path)

    def write_model(self, name: str, params: Any) -> None:
        """Parameters as safetensors, named by their path."""
        path = self.path / "models" / f"{name}.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        leaves, _ = jax.tree_util.tree_flatten_with_path(params)
        arrays = {
            jax.tree_util.keystr(keys, simple=True, separator="."): np.ascontiguousarray(leaf) for keys, leaf in leaves
        }
        unfinished = path.with_name(f".{path.name}.unfinished")
        save_file(arrays, unfinished)
        os.replace(unfinished, path)

    def finish(self) -> None:
        """Mark the run as complete; its checkpoints have served."""
        self.write_text("done", "")
        shutil.rmtree(self.path / "checkpoint", ignore_errors=True)


def machine_facts(time_model: str) -> dict[str, Any]:
    """Where and when: versions, devices, load. No path and no host name."""
    versions: dict[str, Any] = {
        name: sys.modules[name].__version__ for name in ("jax", "numpy", "pyarrow") if name in sys.modules
    }
    command = [Path(sys.argv[0]).name, *sys.argv[1:]]
    return {
        "python": platform.python_version(),
        **versions,
        "platform": platform.system(),
        "processor": platform.machine(),
        "cpu_count": os.cpu_count(),
        "devices": [device.device_kind for device in jax.devices()],
        "load_average": list(os.getloadavg()),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": command,
        "time_model": time_model,
    }


def _null_nan(value: Any) -> Any:
    return None if isinstance(value, float) and np.isnan(value) else value


def _without_nan(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _without_nan(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_without_nan(value) for value in content]
    if isinstance(content, float) and not np.isfinite(content):
        return None
    return content.item() if isinstance(content, np.generic) else content
