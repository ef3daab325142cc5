# SPDX-License-Identifier: Apache-2.0
"""`python -m idiolect` is `idiolect`."""

from __future__ import annotations

from idiolect.cli import main

if __name__ == "__main__":
    main()
