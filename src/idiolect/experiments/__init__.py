# SPDX-License-Identifier: Apache-2.0
"""Experiments: specs, what they build, the run folder they write, and the papers' reproductions."""
