# SPDX-License-Identifier: Apache-2.0
"""What every layer may use without jax: errors, files that are written whole, seals and manifests of run folders."""
