# SPDX-License-Identifier: Apache-2.0
"""`idiolect run SPEC --out FOLDER`, printing the clock when the first block is done. Started by `start`."""

from __future__ import annotations

import json
import sys
import time


def main(spec: str, out: str) -> None:
    """Run the command with a progress bar that only notes the time of its first move."""
    from idiolect.cli import app, training

    seen: list[float] = []

    def note(bar: training.Bar, label: str, done: int, total: int) -> None:
        if not seen:
            seen.append(time.monotonic())
            print(json.dumps({"first_progress": seen[0]}), flush=True)

    training.Bar.update = note  # type: ignore[method-assign]
    app(["run", spec, "--out", out])


if __name__ == "__main__":
    main(*sys.argv[1:])
