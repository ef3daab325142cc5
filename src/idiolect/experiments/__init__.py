# SPDX-License-Identifier: Apache-2.0
"""Experiments: specs, what they build, and the run folder they write."""
