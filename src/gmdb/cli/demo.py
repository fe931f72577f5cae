"""``gmdb demo``: makes a table, draws a page of it, reads it with Arrow and with Spark, compares.

The one verb that needs compiled code and Spark; both are imported when it runs.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gmdb.cli.table import print_table
from gmdb.cli.terminal import paint
from gmdb.errors import InterfaceError
from gmdb.format.address import RowId, page_name

if TYPE_CHECKING:
    import pyarrow as pa

HELP = "make a table, draw a page of it, read it with Arrow and with Spark"
DESCRIPTION = (
    "Make a table of 150,002 rows, draw the top of its first page, read it with Arrow and with Spark, and compare\n"
    "their counts and sums with Python's. Needs Java 17 or later for Spark.\n"
    "Exit status: 0 all agree, 1 they do not, 2 the command failed."
)
EXAMPLE = "examples:\n  gmdb demo\n  gmdb demo --keep shop"
DATABASE_NAME, LOG_NAME, TABLE = "demo.gmdb", "spark.log", "tbl"
COLUMNS = {"i": "INT", "s": "VARCHAR(10)"}
HELLOS = 150_000
ROWS_DRAWN = 3
PARTITION_SIZE = "1MiB"
LABEL_WIDTH = 44


class Totals(NamedTuple):
    """What each way of reading must agree on."""

    rows: int
    sum_of_i: int
    bytes_of_s: int


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "demo",
        help=HELP,
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--keep", metavar="DIR", type=Path, help=f"make {DATABASE_NAME} in DIR and leave it there")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.keep is None:
        with tempfile.TemporaryDirectory(prefix="gmdb-demo-") as folder:
            return _demonstrate(Path(folder))
    if (arguments.keep / DATABASE_NAME).exists():
        raise InterfaceError(f"{arguments.keep / DATABASE_NAME} is there already; choose another directory")
    arguments.keep.mkdir(parents=True, exist_ok=True)
    status = _demonstrate(arguments.keep)
    database = arguments.keep / DATABASE_NAME
    print(f"\nThe database is {database}. Try: gmstat segments {database}")
    return status


def _demonstrate(folder: Path) -> int:
    _prepare_kernels(folder)
    database = folder / DATABASE_NAME
    first_page = _make_table(database)
    _draw(database, first_page)
    expected = Totals(2 + HELLOS, 1 + 2 + sum(range(HELLOS)), len("2") + len("3") + HELLOS * len("hello"))
    _show_two_sessions(database, first_page)
    totals = {"Python": expected, "Arrow": _read_with_arrow(database)}
    totals["Spark"], totals["Spark again"] = _read_with_spark(database, folder / LOG_NAME)
    return compare(totals)


# ---- the steps


def _prepare_kernels(folder: Path) -> None:
    """Do with a few rows what comes next, so that its time is not the compiler's."""
    with _step("load the kernels") as notes:
        import gmdb
        from gmdb.kernel.compiler import kept_in

        before = _compiled(kept_in())
        with tempfile.TemporaryDirectory(dir=folder) as scratch, gmdb.connect(Path(scratch) / DATABASE_NAME) as db:
            db.create_table(TABLE, COLUMNS)
            db.append(TABLE, _rows(2))
            db.append(TABLE, _rows(2))
            db.arrow(TABLE).read_all()
            row_id, _ = next(db.heap(TABLE).rows())
            db.heap(TABLE).update(row_id, {"s": "x"})
            db.heap(TABLE).fetch(row_id)
            db.rollback()
        made = _compiled(kept_in()) - before
        where = str(kept_in()).replace(str(Path.home()), "~", 1)
        notes.append(f"compiled {made} of them, once; kept in {where}" if made else f"compiled before, kept in {where}")


def _compiled(directory: Path) -> int:
    return sum(1 for _ in directory.rglob("*.nbc"))


def _make_table(database: Path) -> int:
    """The reference table; answers its first data page."""
    import gmdb

    data = _rows(HELLOS)
    with _step(f"append {len(data):,} rows from Arrow, and close") as notes:
        with gmdb.connect(database) as db:
            db.create_table(TABLE, COLUMNS)
            db.append(TABLE, data)
            pages = db.heap(TABLE).segment.page_ids()
        notes.append(f"{len(pages)} data pages of 8 KiB")
    return int(pages[0])


def _rows(hellos: int) -> pa.Table:
    import pyarrow as pa

    return pa.table({"i": pa.array([1, 2, *range(hellos)], pa.int32()), "s": ["2", "3", *["hello"] * hellos]})


def _draw(database: Path, page_id: int) -> None:
    from gmdb.inspect.draw import draw_page
    from gmdb.inspect.files import DatabaseFiles
    from gmdb.inspect.page_view import view_page

    with _step(f"read page {page_name(page_id)} byte by byte"), DatabaseFiles(database) as files:
        view = view_page(files, page_id)
    print()
    for line in takewhile(lambda line: f"| row {ROWS_DRAWN} " not in line, draw_page(view, paint())):
        print(line)
    print(f"        … {len(view.rows) - ROWS_DRAWN} more rows, free bytes, {len(view.rows)} slots, page tail\n")


def _show_two_sessions(database: Path, page_id: int) -> None:
    """One session changes a row and does not commit; another reads what was there before, out of undo."""
    import gmdb

    row_id = RowId(page_id, 2)
    with gmdb.connect(database) as writer, gmdb.connect(database) as reader:
        with _step("update in one session, read in another") as notes:
            writer.heap(TABLE).update(row_id, {"s": "hello1"})
            seen = writer.heap(TABLE).fetch(row_id)[1], reader.heap(TABLE).fetch(row_id)[1]
            notes.append(f"the writer sees {seen[0]!r}, the reader {seen[1]!r}, out of undo")
        writer.rollback()


def _read_with_arrow(database: Path) -> Totals:
    import pyarrow.compute as pc

    import gmdb

    with gmdb.connect(database, read_only=True) as db, _step("scan the table into Arrow columns"):
        table = db.arrow(TABLE).read_all()
    with _step("add them up with Arrow"):
        sums = pc.sum(table["i"]).as_py(), pc.sum(pc.binary_length(table["s"])).as_py()
    return Totals(table.num_rows, *sums)


def _read_with_spark(database: Path, log: Path) -> tuple[Totals, Totals]:
    """Read the table twice: the first time includes the start of Spark's Python workers."""
    from gmdb.spark.local import local_session

    with _step("start Spark"):
        spark = local_session(log)
    try:
        with _step("read and add up with Spark") as notes:
            frame = spark.read.format("gmdb").option("table", TABLE)
            frame = frame.option("maxPartitionBytes", PARTITION_SIZE).load(str(database.absolute()))
            first = _spark_totals(frame)
            notes.append(f"partitions of {PARTITION_SIZE} each; starts the Python workers")
        with _step("read and add up with Spark again"):
            second = _spark_totals(frame)
    finally:
        spark.stop()
    return first, second


def _spark_totals(frame: Any) -> Totals:
    return Totals(*frame.selectExpr("count(*)", "sum(i)", "sum(octet_length(s))").first())


def compare(totals: dict[str, Totals]) -> int:
    """Print what each way of reading found; 0 if all found the same, 1 if not."""
    print()
    print_table(("", "rows", "sum(i)", "bytes of s"), [(who, *found) for who, found in totals.items()])
    agree = len(set(totals.values())) == 1
    print("\nAll agree." if agree else "\nThey do not agree: this is a bug in gmdb.")
    return 0 if agree else 1


@contextmanager
def _step(label: str) -> Iterator[list[str]]:
    """One line: what is being done, then how long it took, then the notes that were made."""
    print(f"{label:<{LABEL_WIDTH}}", end="", flush=True)
    notes: list[str] = []
    start = time.perf_counter()
    try:
        yield notes
    except BaseException:
        print("  failed", flush=True)
        raise
    print(f"{time.perf_counter() - start:8.3f} s  {'; '.join(notes)}".rstrip(), flush=True)
