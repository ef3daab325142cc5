# SPDX-License-Identifier: Apache-2.0
"""Engines: what runs an algorithm. None of them knows an algorithm or an objective by name."""
