"""The first chapter: how kernels run here, and a database that has them loaded."""

from __future__ import annotations

import tempfile
from pathlib import Path

from gmdb.cli.demo.reference import COLUMNS, TABLE, rows
from gmdb.cli.demo.steps import Story


def prepare(story: Story) -> None:
    """Do some of what comes next with a few rows, so that its time is not that of loading or compiling code."""
    with story.step("load the kernels") as notes:
        import gmdb

        with (
            tempfile.TemporaryDirectory(dir=story.folder) as scratch,
            gmdb.connect(Path(scratch) / "scratch.gmdb") as db,
        ):
            db.create_table(TABLE, COLUMNS)
            db.append(TABLE, rows(2))
            db.append(TABLE, rows(2))
            db.arrow(TABLE).read_all()
            row_id, _ = next(db.heap(TABLE).rows())
            db.heap(TABLE).update(row_id, {"s": "x"})
            db.heap(TABLE).fetch(row_id)
        notes.append(_way())


def _way() -> str:
    from gmdb.kernel.compiler import AHEAD, JIT, WAY
    from gmdb.kernel.kept import kept_in

    if WAY == AHEAD:
        return "compiled ahead"
    if WAY != JIT:
        return "as plain Python"
    folder = kept_in()
    where = f"kept in {str(folder).replace(str(Path.home()), '~', 1)}" if folder else "for this process alone"
    return f"compiled when they are first called, {where}"
