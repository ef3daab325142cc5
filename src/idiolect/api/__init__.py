# SPDX-License-Identifier: Apache-2.0
"""The Python interface: what the commands do, as functions and objects. `import idiolect` names all of it."""
