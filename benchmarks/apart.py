# SPDX-License-Identifier: Apache-2.0
"""A measurement in a process of its own that may hang or fail without taking the others along."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def measured_apart(command: list[str], seconds: float, environment: Mapping[str, str] | None = None) -> Any:
    """The JSON that `python COMMAND` prints, or a sentence "not measured: ..." after `seconds` or a failure."""
    whole = [sys.executable, *command]
    try:
        done = subprocess.run(
            whole,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | (environment or {}),
            timeout=seconds,
        )
        return json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return f"not measured: stopped after {seconds:g} s"
    except subprocess.CalledProcessError as failure:
        return f"not measured: ended with status {failure.returncode}"
    except json.JSONDecodeError:
        return "not measured: what it printed is not JSON"


def say(text: str, began: float | None = None) -> None:
    """A line of progress on the error stream; compiling takes most of the time, and a log shows where it stood."""
    spent = "" if began is None else f", {time.perf_counter() - began:.1f} s in all"
    print(f"  {text}{spent}", file=sys.stderr, flush=True)
