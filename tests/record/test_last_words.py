# SPDX-License-Identifier: Apache-2.0
"""A process that the runtime aborts ends with one sentence and exit code 1; what else is written is not lost."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
from pathlib import Path
from idiolect.record import last_words, standing

sys.stderr = last_words.have_somebody_speak()
standing.join_others(first=True)
with standing.at(Path("runs/trial"), "give the command again"):
    {ending}
"""
LOST = 'os.write(2, b"E coordination_service: gone\\\\nF client.h: " + last_words.FATAL + b"; see logs\\\\n"); '
KEPT = "Another host of this run was lost. What was finished is kept in runs/trial; give the command again. "
KEPT += "Give every host its command with --resume."
ENDINGS = {
    "the runtime aborts": (LOST + "os.abort()", 1, f"Error: {KEPT}\n"),
    "the runtime exits": (LOST + "os._exit(1)", 1, f"Error: {KEPT}\n"),
    "we were faster": (LOST + 'print("ours", file=sys.stderr); last_words.spoken(); os._exit(1)', 1, "ours\n"),
    "another text": ('os.write(2, b"a warning\\\\n")', 0, "a warning\n"),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_one_sentence_whoever_ends_the_process(name, environment):
    ending, code, said = ENDINGS[name]
    command = [sys.executable, "-c", PROGRAM.format(ending=ending.replace("\\\\", "\\"))]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    assert (ended.returncode, ended.stderr) == (code, said)
