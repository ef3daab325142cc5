# SPDX-License-Identifier: Apache-2.0
"""`idiolect pack TABLE --client COLUMN --target COLUMN`: rows made ready once, for runs that do not read them again."""

from __future__ import annotations

from pathlib import Path

import tomli_w
import typer

from idiolect.cli.data_options import Columns
from idiolect.cli.options import Seed, Writing, command, free_folder, in_options
from idiolect.cli.output import put, remark
from idiolect.record import standing
from idiolect.record.errors import RequestError


@command
def pack(
    columns: Columns,
    writing: Writing,
    source: Path | None = typer.Argument(None, help="A table, or a spec file whose [data] is packed."),
    seed: Seed = None,
) -> None:
    """Read, split and encode rows once; what runs on the folder then takes them from disk as it needs them."""
    from idiolect.experiments import spec as specs
    from idiolect.experiments.packing import pack as write

    name = source.stem if source else columns.data or "rows"
    folder = writing.out or free_folder(Path("runs") / f"{name}-pack")
    if source is not None and source.suffix == ".toml":
        if columns.given() or seed is not None:
            raise RequestError(f"{source} is a spec file and names its rows itself; leave the other options out.")
        spec = specs.load(source, writing.overrides)
    else:
        drawn = {} if seed is None else {"seed": seed}
        given = {"name": name, "methods": {"local": {}}, "data": columns.data_table("pack", source) | drawn}
        spec = specs.from_table(specs.override(given, writing.overrides))
    with in_options(writing.overrides):
        packed = write(spec, folder)
    with standing.at(folder, ""):
        standing.finished(folder, f"`idiolect verify {folder}` looks at it")
    for note in () if writing.quiet else packed.notes:
        remark(note)
    named = tomli_w.dumps({"data": {"source": "pack", "path": str(folder)}})
    use = f"The rows are in {folder}; a spec names them by\n\n{named}"
    facts = packed._asdict()
    short = {name: value for name, value in facts.items() if name != "notes"}
    put(writing.as_format, lambda: use, lambda: facts, lambda: [short])
