# SPDX-License-Identifier: Apache-2.0
"""A spec over real machines: what the coordinator and each site build from it, and the folders that they leave."""
