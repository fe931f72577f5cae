"""Whether to use colour: only on a terminal, and never if NO_COLOR is set."""

from __future__ import annotations

import os
import sys

from gmdb.inspect.canvas import COLOURED, PLAIN, Paint


def paint() -> Paint:
    wanted = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return COLOURED if wanted else PLAIN
