# SPDX-License-Identifier: Apache-2.0
"""What is made of a folder, for people and for programs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Reported(NamedTuple):
    """A finished folder of any command, as people and programs read it."""

    page: Path
    text: Callable[[bool, int], str]  # with or without details, for a terminal of that width
    facts: Callable[[], dict[str, object]]  # for JSON
    rows: Callable[[], list[dict[str, object]]]  # for CSV: methods, values of a dial, clients of advice
