"""Listings on the command line: aligned text, JSON, CSV or an Arrow file, filtered by a condition."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Callable
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from gmdb.cli.output import NONE, print_problems, print_table
from gmdb.cli.verbs import add_json, ask_owner
from gmdb.errors import StorageError
from gmdb.format.address import parse_page_id
from gmdb.inspect.inspector import open_inspector, takes_pages
from gmdb.inspect.listing import Listing
from gmdb.tables.files.database_files import DatabaseFiles
from gmdb.tables.files.page_view import plain

if TYPE_CHECKING:
    import pyarrow as pa

CELL_MAX = 60  # characters of a value that are printed without --all
Draw = Callable[[Listing], None]


def add_output(parser: argparse.ArgumentParser, listing: str | None) -> None:
    """The arguments that say what to show of a listing, and how."""
    add_json(parser)
    parser.add_argument("--csv", action="store_true", help="print comma-separated values instead, all columns")
    parser.add_argument("--arrow", metavar="FILE", help="write an Arrow file instead, all columns")
    parser.add_argument("--where", metavar="CONDITION", help="show only rows for which an SQL condition is true")
    parser.add_argument("--all", action="store_true", help="print all columns, and long values in full")
    if listing is not None:
        parser.add_argument("--live", action="store_true", help="ask the process that has the database open")
        parser.add_argument("--at", metavar="LSN", help="replay the log in memory, up to an LSN, or to its 'end'")
        if takes_pages(listing):
            parser.add_argument("--pages", metavar="RANGE", help="only a page, or a range of pages, such as 4:7..4:20")


def make(arguments: argparse.Namespace, name: str, *positional: Any, live: bool = False, **options: Any) -> Listing:
    """A listing from the owner's memory, with --live, or if ``live`` and there is an owner; else from the files."""
    if getattr(arguments, "pages", None) is not None:
        options["pages"] = arguments.pages
    if (live and arguments.at is None) or arguments.live:
        table = ask_owner(arguments.database, lambda owner: owner.inspect(name, *positional, **options))
        if table is not None:
            return Listing.from_arrow(table)
        if arguments.live:
            raise StorageError(f"no process has {arguments.database} open; without --live its files are read")
    with open_inspector(arguments.database, arguments.at) as inspector:
        return inspector.listing(name, *positional, **options)


def page_bytes(arguments: argparse.Namespace, files: DatabaseFiles) -> bytes:
    """The page that the arguments name, from the owner's memory with --live, else from the files."""
    if not arguments.live:
        return files.page(parse_page_id(arguments.page))
    page: bytes = make(arguments, "image", arguments.page).rows[0][2]
    return page


def show(arguments: argparse.Namespace, listing: Listing, draw: Draw | None = None) -> int:
    """Print a listing as the arguments say; ``draw`` prints it as text.  Returns the exit status."""
    if arguments.where:
        listing = filtered(listing, arguments.where)
    if arguments.arrow:
        _write_arrow(listing.arrow(), arguments.arrow)
    elif arguments.json:
        print(json.dumps(document(listing), indent=2, ensure_ascii=False))
    elif arguments.csv:
        _print_csv(listing, not getattr(arguments, "goes_on", False))
    else:
        (draw or (lambda one: print_listing(one, arguments.all)))(listing)
        for note in listing.notes:
            print(note)
        print_problems(listing.problems)
    return 1 if listing.problems else 0


def print_listing(listing: Listing, everything: bool = False) -> None:
    chosen = [n for n, column in enumerate(listing.columns) if everything or not column.is_detail]
    headings = [listing.columns[n].name for n in chosen]
    width = None if everything else CELL_MAX
    print_table(headings, [tuple(_cell(row[n], width) for n in chosen) for row in listing.rows])


def _cell(value: Any, width: int | None) -> object:
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return value
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text if width is None or len(text) <= width else text[: width - 1] + "…"


def document(listing: Listing) -> dict[str, Any]:
    """A listing for JSON."""
    rows = [{name: _plain(value) for name, value in row.items()} for row in listing.dicts()]
    problems = [f"{where}: {what}" for where, what in listing.problems]
    return {listing.name: rows, "problems": problems, "notes": listing.notes}


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date | datetime) else plain(value)


def _print_csv(listing: Listing, with_names: bool) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    if with_names:
        writer.writerow([column.name for column in listing.columns])
    for row in listing.rows:
        writer.writerow(["" if value is None else _plain(value) for value in row])
    _print_problems_aside(listing)


def _write_arrow(table: pa.Table, path: str) -> None:
    import pyarrow as pa

    try:
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    except OSError as error:
        raise StorageError(f"{path}: {error}") from None
    print(f"{table.num_rows:,} rows to {path}")


def _print_problems_aside(listing: Listing) -> None:
    """Problems on stderr, so that they do not mix with the values."""
    for where, what in listing.problems:
        print(f"damaged: {where}: {what}", file=sys.stderr)


def filtered(listing: Listing, where: str) -> Listing:
    """The rows for which an SQL condition is true."""
    import pyarrow as pa

    from gmdb.sql.filtering import RowFilter
    from gmdb.tables.catalog.schema import TableDefinition

    columns = listing.table_columns()
    table = TableDefinition(listing.name, 0, 0, 0, tuple(columns))
    chosen = RowFilter(table, [column.name for column in columns], where)
    chosen.check(columns)
    batches = list(chosen.batches(_Source(listing)))
    rows: list[tuple[Any, ...]] = []
    for batch in batches:
        rows += zip(*(column.to_pylist() for column in pa.Table.from_batches([batch]).columns), strict=True)
    return Listing(listing.name, listing.columns, rows, listing.problems, [])


class _Source:
    """A listing as DuckDB reads it."""

    def __init__(self, listing: Listing) -> None:
        self.columns = listing.table_columns()
        self._table = listing.arrow()

    def read(self, columns: list[str] | None) -> pa.RecordBatchReader:
        return (self._table if columns is None else self._table.select(columns)).to_reader()
