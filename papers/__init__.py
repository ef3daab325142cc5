# SPDX-License-Identifier: Apache-2.0
"""Published results, each reproduced by one command: a folder per result, and modules that several results share."""
