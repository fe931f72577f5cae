"""The first chapter: machine code for this machine, made once."""

from __future__ import annotations

import tempfile
from pathlib import Path

from gmdb.cli.compiling import compile_kernels
from gmdb.cli.demo.reference import COLUMNS, TABLE, rows
from gmdb.cli.demo.steps import Story


def prepare(story: Story) -> None:
    """Compile what comes next, and do some of it with a few rows, so that its time is not the compiler's."""
    with story.step("load the kernels") as notes:
        import gmdb
        from gmdb.kernel.kept import kept_in

        made = compile_kernels()
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
        folder = kept_in()
        where = f"kept in {str(folder).replace(str(Path.home()), '~', 1)}"
        text = f"compiled {made} of them, once; {where}" if made else f"compiled before, {where}"
        notes.append(text if folder else "compiled for this process alone")
