# SPDX-License-Identifier: Apache-2.0
"""Deployment over NVIDIA FLARE: its messages, its start-up kits, its processes. Only this folder imports nvflare."""
