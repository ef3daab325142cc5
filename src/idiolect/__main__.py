# SPDX-License-Identifier: Apache-2.0
"""`python -m idiolect` is `idiolect`."""

from idiolect.search_path import leave_out_working_directory

if __name__ == "__main__":
    leave_out_working_directory()  # before any other import

    from idiolect.cli import main

    main()
