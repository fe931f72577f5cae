"""The chapters of the demo: a table, kernels, a crash, a bank, Spark."""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from string import ascii_letters
from typing import TYPE_CHECKING

from gmdb.cli.demo.steps import COPY_NAME, NOTES, Story
from gmdb.cli.output import paint
from gmdb.format.address import RowId, page_id_of, page_name

if TYPE_CHECKING:
    import pyarrow as pa


# ---- Chapters about one table of two columns: 150,002 rows on 644 pages.

TABLE = "tbl"
COLUMNS = {"i": "INT", "s": "VARCHAR(10)"}
HELLOS = 150_000
PAGES = 644
SUM = 1 + 2 + sum(range(HELLOS))
_FIRST_PAGE = page_id_of(4, 2)
_ROWS_DRAWN = 3
_MAP_WIDTH, _MAP_CELLS = 64, 512


def rows(hellos: int) -> pa.Table:
    import pyarrow as pa

    return pa.table({"i": pa.array([1, 2, *range(hellos)], pa.int32()), "s": ["2", "3", *["hello"] * hellos]})


def make_table(story: Story) -> None:
    import pyarrow.compute as pc

    import gmdb

    data = rows(HELLOS)
    with story.step(f"append {len(data):,} rows from Arrow, and commit") as notes, gmdb.connect(story.database) as db:
        db.create_table(TABLE, COLUMNS)
        db.append(TABLE, data)
        db.commit()
        pages = db.heap(TABLE).segment.page_ids()
        notes.append(f"{len(pages)} data pages of 8 KiB")
    with gmdb.connect(story.database) as db, story.step("scan the table into Arrow columns"):
        table = db.arrow(TABLE).read_all()
    story.expect("data pages of the table", PAGES, len(pages))
    story.expect("rows, by Arrow", len(data), table.num_rows)
    story.expect("sum(i), by Arrow", SUM, pc.sum(table["i"]).as_py())


def draw_page(story: Story) -> None:
    from gmdb.inspect.draw import draw_page
    from gmdb.tables.files.database_files import DatabaseFiles
    from gmdb.tables.files.page_view import view_page

    with story.step(f"read page {page_name(_FIRST_PAGE)} byte by byte"), DatabaseFiles(story.database) as files:
        view = view_page(files, _FIRST_PAGE)
    print()
    for line in takewhile(lambda line: f"| row {_ROWS_DRAWN} " not in line, draw_page(view, paint())):
        print(line)
    print(f"        … {len(view.rows) - _ROWS_DRAWN} more rows, free bytes, {len(view.rows)} slots, page tail\n")


def show_two_sessions(story: Story) -> None:
    """One session changes a row and does not commit; another reads what was there before, out of undo."""
    import gmdb

    row_id = RowId(_FIRST_PAGE, 2)
    with gmdb.connect(story.database) as writer, gmdb.connect(story.database) as reader:
        with story.step("update in one session, read in another") as notes:
            writer.heap(TABLE).update(row_id, {"s": "hello1"})
            mine, theirs = writer.heap(TABLE).fetch(row_id)[1], reader.heap(TABLE).fetch(row_id)[1]
            notes.append(f"the writer sees {mine!r}, the reader {theirs!r}, out of undo")
        writer.rollback()


def draw_map(story: Story) -> None:
    """A map of the files, each letter some pages; the explorer shows it in colours, with every page."""
    from gmdb.inspect.inspector import open_inspector
    from gmdb.inspect.page_lists import Strip

    with story.step("map the database's pages") as notes, open_inspector(story.database) as inspector:
        each = -(-Strip(inspector.files).total // _MAP_CELLS)
        cells = inspector.listing("cells", 0, each, _MAP_CELLS)
        notes.append(f"a letter for {each} pages")
    names = list(dict.fromkeys(row["object"] or row["kind"] for row in cells.dicts()))
    letters = dict(zip(names, ascii_letters, strict=False))
    drawn = "".join(letters.get(row["object"] or row["kind"], "?") for row in cells.dicts())
    print()
    for start in range(0, len(drawn), _MAP_WIDTH):
        print(f"        {drawn[start : start + _MAP_WIDTH]}")
    print(f"\n        {', '.join(f'{letter} {name}' for name, letter in letters.items())}")


# ---- The first chapter: how kernels run here, and a database that has them loaded.


def prepare(story: Story) -> None:
    """Run the next steps with a few rows, so that their times do not include loading or compiling code."""
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
    from gmdb.kernel.runtime.code_cache import cache_folder
    from gmdb.kernel.runtime.compiler import AHEAD, JIT, WAY

    if WAY == AHEAD:
        return "compiled ahead"
    if WAY != JIT:
        return "as plain Python"
    folder = cache_folder()
    where = f"kept in {str(folder).replace(str(Path.home()), '~', 1)}" if folder else "for this process alone"
    return f"compiled when they are first called, {where}"


# ---- A chapter about a process that dies: what it had committed is there, what it had not is gone.

ENOUGH = 200  # commits that are acknowledged before the kill


def kill_and_recover(story: Story) -> None:
    import gmdb

    with gmdb.connect(story.database) as db:
        db.create_table(NOTES, {"n": "INT NOT NULL", "state": "VARCHAR(10)"})
    with story.step("commit in another process, and kill it") as notes:
        acknowledged = _run_and_kill(story.database)
        notes.append(f"{acknowledged} commits were acknowledged, one transaction was open")
    logging.getLogger("gmdb").addHandler(logging.NullHandler())  # what it would log is printed here
    with story.step("open the database again") as notes, gmdb.connect(story.database) as db:
        recovery = db.recovery
        if recovery is not None:
            notes.append(f"{recovery.redo_bytes:,} bytes of redo replayed, {recovery.rolled_back} rolled back")
        states = [values[1] for _, values in db.heap(NOTES).rows()]
    story.expect("acknowledged commits that the crash lost", 0, max(acknowledged - states.count("committed"), 0))
    story.expect("rows of the transaction that was open", 0, states.count("open"))


def _run_and_kill(database: Path) -> int:
    """The number of commits that the process had printed when it was killed."""
    command = [sys.executable, "-P", "-m", "gmdb.cli.demo.victim", str(database)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None
        lines = [victim.stdout.readline() for _ in range(ENOUGH)]
        os.kill(victim.pid, signal.SIGKILL)
        lines += victim.stdout.readlines()
    return sum(1 for line in lines if line.endswith("\n"))


# ---- Accounts whose balances always add up to the same: with an index, a join, and clerks who move money.

ACCOUNTS, BALANCE, CLERKS = 1_000, 100, 2
PAUSE = 0.002  # seconds between two transfers, in which Spark's driver, in the same process, gets on
TOTAL = ACCOUNTS * BALANCE


def index_and_join(story: Story) -> None:
    import gmdb

    with gmdb.connect(story.database) as db:
        cursor = db.cursor()
        cursor.execute(
            "create table accounts (id int primary key, owner varchar(20), balance int not null) "
            "with (change_feed = true)"
        )
        rows = [(number, f"owner {number % 10}", BALANCE) for number in range(ACCOUNTS)]
        with story.step(f"insert {ACCOUNTS:,} accounts by SQL"):
            cursor.executemany("insert into accounts values (?, ?, ?)", rows)
            db.commit()
        with story.step(f"index {TABLE} by i"):
            cursor.execute(f"create index {TABLE}_i on {TABLE} (i)")
            db.commit()
        with story.step("find a row by the index"):
            counted = cursor.execute(f"select count(*) from {TABLE} where i = 77777").fetchall()
        query = f"select count(*), sum(a.balance) from accounts a join {TABLE} t on t.i = a.id where t.s = 'hello'"
        with story.step("join it with accounts"):
            joined = cursor.execute(query).fetchall()
    story.expect("rows found by the index", 1, counted[0][0])
    story.expect("rows of the join", ACCOUNTS, joined[0][0])
    story.expect("balances, by the join", TOTAL, int(joined[0][1]))


@contextmanager
def clerks_at_work(database: Path) -> Iterator[list[int]]:
    """Threads that move money between accounts, each move a transaction; yields how many each has committed."""
    moves = [0] * CLERKS
    leave = threading.Event()
    failures: list[BaseException] = []

    def work(number: int) -> None:
        import gmdb
        from gmdb.errors import Transient

        chance = random.Random(number)
        try:
            with gmdb.connect(database) as db:
                cursor = db.cursor()
                while not leave.is_set():
                    amount, one, other = chance.randint(1, 9), *chance.sample(range(ACCOUNTS), 2)
                    try:
                        cursor.execute("update accounts set balance = balance - ? where id = ?", (amount, one))
                        cursor.execute("update accounts set balance = balance + ? where id = ?", (amount, other))
                        db.commit()
                        moves[number] += 1
                        time.sleep(PAUSE)
                    except Transient:  # a deadlock, say: one of the clerks has to retry
                        db.rollback()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(CLERKS)]
    for thread in threads:
        thread.start()
    try:
        yield moves
    finally:
        leave.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


# ---- Chapters about Spark: it reads one instant while others write, and follows every change.

PARTITION_SIZE = "1MiB"


def read_beside_writers(story: Story) -> None:
    import gmdb

    spark = story.spark()
    with gmdb.connect(story.database), clerks_at_work(story.database) as moves:
        with story.step("read the table with Spark") as notes:
            frame = spark.read.format("gmdb").option("table", TABLE).option("maxPartitionBytes", PARTITION_SIZE)
            rows, added = frame.load(str(story.database.absolute())).selectExpr("count(*)", "sum(i)").first()
            notes.append(f"partitions of {PARTITION_SIZE}; starts the Python workers")
        before = sum(moves)
        with story.step("read the accounts with Spark, three times") as notes:
            accounts = spark.read.format("gmdb").option("table", "accounts")
            sums = [
                int(accounts.load(str(story.database.absolute())).selectExpr("sum(balance)").first()[0])
                for _ in range(3)
            ]
            notes.append(f"{sum(moves) - before:,} transfers were committed meanwhile")
    story.expect("rows, by Spark", 150_002, rows)
    story.expect("sum(i), by Spark", SUM, added)
    for number, total in enumerate(sums, 1):
        story.expect(f"balances, by Spark beside writers ({number})", TOTAL, total)


def stream_changes(story: Story) -> None:
    """Follow the accounts into a second database: a snapshot first, then every change since, each once."""
    import gmdb
    from gmdb.spark import read_changes

    spark = story.spark()
    copy = story.folder / COPY_NAME
    with gmdb.connect(copy) as db:
        db.cursor().execute("create table accounts (id int primary key, owner varchar(20), balance int not null)")
    with gmdb.connect(story.database) as db:
        for when in ("first the rows", "then the changes"):
            with clerks_at_work(story.database) as moves:
                changes = read_changes(spark, str(story.database.absolute()), "accounts", reader="demo")
                with story.step(f"stream the accounts into a copy, {when}") as notes:
                    writer = changes.writeStream.format("gmdb").option("table", "accounts").option("apply", "changes")
                    writer = writer.option("checkpointLocation", str(story.folder / "checkpoints"))
                    writer.trigger(availableNow=True).start(str(copy.absolute())).awaitTermination()
                notes.append(f"{sum(moves):,} transfers were committed meanwhile")
        with story.step("and the last of them, after the clerks stopped"):
            writer.trigger(availableNow=True).start(str(copy.absolute())).awaitTermination()
        mine: dict[int, int] = dict(db.cursor().execute("select id, balance from accounts").fetchall())
    with gmdb.connect(copy, read_only=True) as db:
        theirs: dict[int, int] = dict(db.cursor().execute("select id, balance from accounts").fetchall())
    story.expect("accounts of the copy that are as in the source", ACCOUNTS, len(mine.items() & theirs.items()))
