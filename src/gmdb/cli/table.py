"""What verbs print: tables with headings, problems, JSON documents."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from gmdb.inspect.canvas import printable

NONE = "-"


def print_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns as wide as they need to be; numbers, and what stands for none, to the right."""
    numeric = [_is_numeric([row[n] for row in rows]) for n in range(len(headings))]
    cells = [[printable(str(cell)) for cell in row] for row in [headings, *rows]]
    widths = [max(len(row[n]) for row in cells) for n in range(len(headings))]
    for row in [cells[0], ["-" * width for width in widths], *cells[1:]]:
        padded = (c.rjust(w) if right else c.ljust(w) for c, w, right in zip(row, widths, numeric, strict=True))
        print("  ".join(padded).rstrip())


def _is_numeric(cells: Sequence[object]) -> bool:
    known = [cell for cell in cells if cell != NONE]
    return bool(known) and all(isinstance(cell, int | float) for cell in known)


def print_problems(problems: Sequence[tuple[str, str]]) -> None:
    for where, problem in problems:
        print(f"damaged: {where}: {problem}")


def print_json(document: dict[str, Any]) -> None:
    print(json.dumps(document, indent=2))
