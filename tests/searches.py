"""How far tests go that search by chance: some way in every ``make test``, further in ``make soak``.

A test that plays random histories, cuts power at many points or flips many bits finds most faults with its first
seeds.  It takes its extent from here and has the mark ``search``; the laboratory of the soak runs all such tests with
``GMDB_SEARCH=full``.
"""

from __future__ import annotations

import os

SETTING = {"GMDB_SEARCH": "full"}
IS_FULL = os.environ.get("GMDB_SEARCH") == "full"


def extent(in_suite: int, in_full: int) -> int:
    """So many seeds, points or examples."""
    return in_full if IS_FULL else in_suite
