# SPDX-License-Identifier: Apache-2.0
"""Speed, memory and scale of idiolect, as ratios measured in one run: `python -m benchmarks [NAME ...]`."""

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
    "advice-coverage",
    "gpu",
    "networks-gpu",
)
