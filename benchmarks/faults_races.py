# SPDX-License-Identifier: Apache-2.0
"""Two processes and one folder: one of them has it, the other is refused, and the folder is whole."""

from __future__ import annotations

import shutil
from pathlib import Path

from benchmarks.faults_frame import Counts, drawn_once, end_state, idiolect, make_table
from benchmarks.faults_processes import end, start


def race(home: Path, trials: int) -> Counts:
    """Two starts at once, two resumptions of one run, two reports on one folder, in turn."""
    make_table(home)
    counts, folder = Counts(), home / "raced"
    arguments = ["run", str(home / "spec.toml"), "--quiet"]
    with drawn_once():
        assert idiolect(*arguments, "--out", str(home / "whole")).code == 0
        expected = end_state(home / "whole")
        for number in range(trials):
            shutil.rmtree(folder, ignore_errors=True)
            reports = number % 4 == 3
            if reports:
                shutil.copytree(home / "whole", folder)
            command = ["report", str(folder)] if reports else [*arguments, "--out", str(folder)]
            texts = [home / f"said-{place}.txt" for place in range(2)]
            both = [start(command, text) for text in texts]
            ended = [end(process, text) for process, text in zip(both, texts)]
            codes = sorted(code for code, _ in ended)
            said = " | ".join(text.strip()[-200:] for _, text in ended)
            if any("Unexpected" in text or "Traceback" in text for _, text in ended):
                counts.add("unexpected", said)
            elif codes != ([0, 0] if reports else [0, 2]):
                counts.add("not one winner", f"exit codes {codes}: {said}")
            elif end_state(folder) != expected or idiolect("verify", str(folder)).code:
                counts.add("another end", said)
            else:
                counts.add("two reports" if reports else "one winner")
    return counts
