"""A picture of what is in a table's columns, and of how full its segments are."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from gmdb.errors import InterfaceError, OperationalError
from gmdb.spark.column_profile import ColumnProfile, TableProfile, plain
from gmdb.spark.space_profile import SegmentSpace

ENDINGS = (".png", ".svg")
MATPLOTLIB_NEEDED = "pictures need matplotlib; install gmdb with it: pip install 'gmdb[plot]'"
ACROSS = 3
PANELS_MAX = 60
LABEL_LENGTH = 18


def require_picture(file: Path) -> None:
    """Refuse what could not be drawn, before anything takes long."""
    if file.suffix.lower() not in ENDINGS:
        raise InterfaceError(f"{file}: a picture's name ends in {' or '.join(ENDINGS)}")
    if not file.absolute().parent.is_dir():
        raise InterfaceError(f"{file}: there is no directory {file.parent}")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise OperationalError(MATPLOTLIB_NEEDED) from None


def draw_profiles(file: Path, tables: Sequence[TableProfile], segments: Sequence[SegmentSpace]) -> None:
    """A panel for each column that has something to show, and one for the segments."""
    from matplotlib.figure import Figure

    panels = [(t, c) for t in tables for c in t.columns if c.histogram is not None or c.frequent][:PANELS_MAX]
    spaces = [segment for segment in segments if segment.pages]
    rows = math.ceil(len(panels) / ACROSS)
    heights = [2.2] * rows + ([max(1.5, 0.3 * len(spaces) + 0.8)] if spaces else [])
    if not heights:
        heights = [1.0]
    figure = Figure(figsize=(4.2 * ACROSS, sum(heights)), layout="constrained")
    grid = figure.add_gridspec(len(heights), ACROSS, height_ratios=heights)
    for number, (table, column) in enumerate(panels):
        axes = figure.add_subplot(grid[number // ACROSS, number % ACROSS])
        _draw_column(axes, table, column)
    if spaces:
        _draw_spaces(figure.add_subplot(grid[len(heights) - 1, :]), spaces)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # an emoji that the font lacks is drawn as a box
        figure.savefig(file, dpi=120)


def _draw_column(axes: Any, table: TableProfile, column: ColumnProfile) -> None:
    nulls = f", {column.nulls:,} NULL" if column.nulls else ""
    axes.set_title(f"{table.table}.{column.name}  {column.type}{nulls}".replace("$", r"\$"), fontsize=8)
    axes.tick_params(labelsize=6)
    if column.histogram is not None:
        edges, counts = column.histogram.edges, column.histogram.counts
        widths = [right - left for left, right in pairwise(edges)]
        if len(edges) == 2 and edges[0] == edges[1]:
            axes.bar([str(edges[0])], counts, color="tab:blue")
        else:
            axes.bar(edges[:-1], counts, width=widths, align="edge", color="tab:blue")
    elif column.frequent:
        labels = [_label(value) for value, _ in column.frequent]
        axes.barh(range(len(labels)), [count for _, count in column.frequent], color="tab:green")
        axes.set_yticks(range(len(labels)), labels)
        axes.invert_yaxis()


def _label(value: Any) -> str:
    text = str(plain(value))
    text = text if len(text) <= LABEL_LENGTH else text[: LABEL_LENGTH - 1] + "…"
    return text.replace("$", r"\$")


def _draw_spaces(axes: Any, spaces: Sequence[SegmentSpace]) -> None:
    """Live, dead and free bytes of each segment, as shares."""
    places = range(len(spaces))
    live = [(space.used - space.dead) / space.size for space in spaces]
    dead = [space.dead / space.size for space in spaces]
    axes.barh(places, live, color="tab:blue", label="live")
    axes.barh(places, dead, left=live, color="tab:red", label="dead")
    axes.set_yticks(places, [_label(f"{space.object} {space.type}") for space in spaces])
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.tick_params(labelsize=6)
    axes.legend(fontsize=6)
    axes.set_title("how full the pages of each segment are", fontsize=8)
