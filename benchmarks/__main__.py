# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks [NAME ...] [--quick] [--out FOLDER] [--cache FOLDER]`: measure, print, keep results."""

from __future__ import annotations

import argparse
import importlib
import os
from pathlib import Path

from benchmarks import BY_NAME, NAMES
from benchmarks.measure import machine, show, write


def main(arguments: list[str] | None = None) -> None:
    """Run the named benchmarks, or all of them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    others = f"default: all but {', '.join(BY_NAME)}"
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join((*NAMES, *BY_NAME))}; {others}")
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run, not how fast")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="folder of the results")
    parser.add_argument("--cache", type=Path, help="folder for the environments of `peers`; default: the user's cache")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in NAMES + BY_NAME]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; choose from {', '.join(NAMES + BY_NAME)}")
    if options.cache is not None:
        os.environ["IDIOLECT_PEERS"] = str(options.cache.resolve())
    for name in options.names or NAMES:
        load = os.getloadavg()[0]
        module = importlib.import_module(f"benchmarks.{name.replace('-', '_')}")
        command = f"python -m benchmarks {name}" + (" --quick" if options.quick else "")
        # one that has parts is written after each of them: what stops it loses only what was not yet measured
        for result in module.parts(options.quick) if hasattr(module, "parts") else [module.run(options.quick)]:
            facts = machine(load)
            write(options.out, name, command, result, facts, options.quick)
        show(name, result, facts, options.quick)


if __name__ == "__main__":
    main()
