"""Kernels of the tests' own are not among those compiled ahead: their files run by the JIT and as plain Python.

``test_ways.py`` runs them so.
"""

from __future__ import annotations

from gmdb.kernel.runtime.compiler import AHEAD, WAY

OWN_KERNELS = ["test_patch.py", "test_wrapping.py"]
collect_ignore = OWN_KERNELS if WAY == AHEAD else []
