"""The first chapter: machine code for this machine, made once."""

from __future__ import annotations

import tempfile
from pathlib import Path

from gmdb.cli.demo.reference import COLUMNS, TABLE, rows
from gmdb.cli.demo.steps import Story
from gmdb.cli.terminal import progress


def prepare(story: Story) -> None:
    """Do with a few rows what comes next, so that its time is not the compiler's."""
    with story.step("load the kernels") as notes:
        import gmdb
        from gmdb.kernel.compiler import kept_in

        before = _compiled(kept_in())
        with tempfile.TemporaryDirectory(dir=story.folder) as scratch:
            database = Path(scratch) / "scratch.gmdb"
            with progress("compile the kernels", 6) as step, gmdb.connect(database) as db:
                step(1)
                db.create_table(TABLE, COLUMNS)
                db.append(TABLE, rows(2))
                db.append(TABLE, rows(2))
                db.arrow(TABLE).read_all()
                step(1)
                row_id, _ = next(db.heap(TABLE).rows())
                db.heap(TABLE).update(row_id, {"s": "x"})
                db.heap(TABLE).fetch(row_id)
                db.commit()
                step(1)
                cursor = db.cursor()
                cursor.execute("create table a (i int primary key, n int) with (change_feed = true)")
                cursor.execute("insert into a values (1, 2), (2, 3)")
                cursor.execute("update a set n = 1 where i = 2")
                cursor.execute("delete from a where i = 1")
                db.commit()
                step(1)
                cursor.execute("create index a_n on a (n)")
                cursor.execute("select n from a where i = 2")
                cursor.execute(f"select count(*) from a join {TABLE} t on t.i = a.i")
                step(1)
                db.take_snapshot(lease=1.0)
                db.gc()
                step(1)
        made = _compiled(kept_in()) - before
        where = str(kept_in()).replace(str(Path.home()), "~", 1)
        notes.append(f"compiled {made} of them, once; kept in {where}" if made else f"compiled before, kept in {where}")


def _compiled(directory: Path) -> int:
    return sum(1 for _ in directory.rglob("*.nbc"))
