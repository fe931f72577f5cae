"""Chapters about one table of two columns: 150,002 rows on 644 pages."""

from __future__ import annotations

from itertools import takewhile
from string import ascii_letters
from typing import TYPE_CHECKING

from gmdb.cli.demo.steps import Story
from gmdb.cli.terminal import paint
from gmdb.format.address import RowId, page_id_of, page_name

if TYPE_CHECKING:
    import pyarrow as pa

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
    from gmdb.inspect.files import DatabaseFiles
    from gmdb.inspect.page_view import view_page

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
    """What is where in the files, a letter some pages; the explorer shows it in colours, and every page of it."""
    from gmdb.inspect.cell_lists import Strip
    from gmdb.inspect.inspector import open_inspector

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
