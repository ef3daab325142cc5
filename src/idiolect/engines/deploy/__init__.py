# SPDX-License-Identifier: Apache-2.0
"""Training over real machines: a coordinator and sites around one transport, without a row leaving its site."""
