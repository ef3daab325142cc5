# SPDX-License-Identifier: Apache-2.0
"""Speed, memory, scale and right answers of idiolect, measured in one run: `python -m benchmarks [NAME ...]`."""

NAMES = (
    "overhead",
    "unified",
    "softmax",
    "networks",
    "recording",
    "start",
    "scale",
    "memory",
    "neighbours",
    "coverage",
    "advice-coverage",
    "gpu",
    "networks-gpu",
    "answers",
    "faults",
    "rows",
)
