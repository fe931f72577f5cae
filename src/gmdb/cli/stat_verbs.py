"""The verbs of gmstat that draw one thing; those that print a listing are in stat.py."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmdb.cli.listings import add_output, document, make, page_bytes, show
from gmdb.cli.output import is_coloured, paint, print_json, print_problems, print_table
from gmdb.cli.verbs import ask_owner
from gmdb.errors import InterfaceError, StorageError
from gmdb.format.address import page_name, parse_page_id
from gmdb.format.options import options_of
from gmdb.inspect.diff import diff_databases, diff_pages
from gmdb.inspect.draw import draw_page, hex_lines
from gmdb.inspect.draw_tree import Cut, dot, outline
from gmdb.inspect.index_lists import view_of as index_view_of
from gmdb.inspect.index_view import IndexView, find_index, read_index
from gmdb.inspect.inspector import open_files
from gmdb.inspect.listing import Listing
from gmdb.inspect.log_lists import sealed, steps
from gmdb.inspect.report import page_document
from gmdb.inspect.salvage import Salvage, SavedRow
from gmdb.tables.access.indexes import written_columns
from gmdb.tables.files.database_files import DatabaseFiles
from gmdb.tables.files.page_view import view_of

if TYPE_CHECKING:
    import pyarrow as pa

    from gmdb.database.connection import Connection


class PageVerb:
    """``gmstat page``: one page, drawn."""

    NAME = "page"
    HELP = "one page, drawn field by field, and what is wrong with it"
    DESCRIPTION = (
        "Draw a page from its head to its tail: every field with its offset, value and meaning, every row with its\n"
        "bytes and values. A damaged page is drawn as far as it makes sense; what is wrong is listed at the end.\n"
        "--csv, --arrow and --where are about its regions: every byte by its name."
    )
    EXAMPLE = "examples:\n  gmstat page shop.gmdb 4:7\n  gmstat page shop.gmdb 16777223 --json"

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("page", metavar="PAGE", help="the page: DEVICE:PAGE, such as 4:7, or its number")
        parser.add_argument("--full", action="store_true", help="draw every byte of long values too")
        add_output(parser, "regions")

    @staticmethod
    def run(arguments: argparse.Namespace) -> int:
        if arguments.csv or arguments.arrow or arguments.where:
            return show(arguments, make(arguments, "regions", arguments.page))
        page_id = parse_page_id(arguments.page)
        with open_files(arguments.database, arguments.at) as files:
            view = view_of(files, page_id, page_bytes(arguments, files))
        if arguments.json:
            print_json(page_document(view))
        else:
            for line in draw_page(view, paint(), arguments.full):
                print(line)
        return 1 if view.findings else 0


class HexVerb:
    """``gmstat hex``: the bytes of a page, each line with what they are."""

    NAME = "hex"
    HELP = "the bytes of a page in hexadecimal, each with what it is, coloured by region"
    DESCRIPTION = (
        "Print the bytes of a page, sixteen a line, with the names of the regions that begin on it, as "
        "docs/file_format.md\n"
        "has them. Lines that are alike are left out, but for the first. On a terminal each kind of region "
        "has a colour."
    )
    EXAMPLE = "examples:\n  gmstat hex shop.gmdb 4:7\n  gmstat hex shop.gmdb 4:7 --no-color --full"

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("page", metavar="PAGE", help="the page: DEVICE:PAGE, such as 4:7, or its number")
        parser.add_argument("--no-color", action="store_true", help="use no colour, not even on a terminal")
        parser.add_argument("--full", action="store_true", help="print lines that are alike, too")
        add_output(parser, "regions")

    @staticmethod
    def run(arguments: argparse.Namespace) -> int:
        with open_files(arguments.database, arguments.at) as files:
            page = page_bytes(arguments, files)

        def draw(_: Listing) -> None:
            for line in hex_lines(page, is_coloured() and not arguments.no_color, arguments.full):
                print(line)

        return show(arguments, make(arguments, "regions", arguments.page), None if arguments.where else draw)


class FillVerb:
    """``gmstat fill``: how full pages are, as a histogram."""

    NAME = "fill"
    HELP = "how full data pages are, as a histogram"
    DESCRIPTION = (
        "Show how many data pages of a segment, or of the whole database, are how full. Only the heads of "
        "pages are read,\n"
        "and trusted; gmstat pages and gmdb verify look at all bytes."
    )
    EXAMPLE = "examples:\n  gmstat fill shop.gmdb orders\n  gmstat fill shop.gmdb --pages 4:0..4:999"

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("segment", metavar="SEG", nargs="?", help="a table or index by its name, or an entry page")
        add_output(parser, "fill")

    @staticmethod
    def run(arguments: argparse.Namespace) -> int:
        segment = [] if arguments.segment is None else [arguments.segment]
        return show(arguments, make(arguments, "fill", *segment), _draw)


WIDTH = 50


def _draw(listing: Listing) -> None:
    most = max((pages for _, _, pages, _ in listing.rows), default=0)
    for low, high, pages, _ in listing.rows:
        bar = "█" * -(-pages * WIDTH // most) if pages else ""
        print(f"{low:>3} … {high:>3} %  {pages:>9,}  {bar}".rstrip())


class FindVerb:
    """``gmstat find``: the rows of a table for which a condition is true, whether visible or not."""

    NAME = "find"
    HELP = "rows of a table for which a condition is true, deleted ones included"
    DESCRIPTION = (
        "List the rows on a table's pages for which an SQL condition is true. Besides the table's columns it may use\n"
        "those of gmstat rows: _rowid, _page_id, _slot, _size, _lock_id, _flags, _moved_to, _problem."
    )
    EXAMPLE = (
        'examples:\n  gmstat find shop.gmdb orders "id between 10 and 20"\n'
        "  gmstat find shop.gmdb orders \"_lock_id is not null and name like 'a%'\""
    )

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("segment", metavar="SEG", help="a table by its name, or by its entry page")
        parser.add_argument("condition", metavar="PREDICATE", help="an SQL condition, as after WHERE")
        add_output(parser, "rows")

    @staticmethod
    def run(arguments: argparse.Namespace) -> int:
        condition = arguments.condition
        arguments.where = f"({condition}) and ({arguments.where})" if arguments.where else condition
        return show(arguments, make(arguments, "rows", arguments.segment))


class DiffVerb:
    """``gmstat diff``: what differs between two pages, two databases, or one database at two places of its log."""

    NAME = "diff"
    HELP = "what differs between two pages, two databases, or one database at two places of its log"
    DESCRIPTION = (
        "Show what differs: fields by their names, rows by their values, and bytes. A and B are two pages of DB (4:7\n"
        "and 4:8) or two places in its log (lsn:1024 and lsn:end); or A alone is another database to compare DB with.\n"
        "CRCs, and which checkpoint wrote a page, are ignored. Between databases, --bytes also lists bytes."
    )
    EXAMPLE = (
        "examples:\n  gmstat diff shop.gmdb 4:7 4:8\n  gmstat diff shop.gmdb backup.gmdb\n"
        "  gmstat diff shop.gmdb lsn:33554432 lsn:end"
    )

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("first", metavar="A", help="a page, a place of the log as lsn:N, or another database")
        parser.add_argument("second", metavar="B", nargs="?", help="the other page, or the other place")
        parser.add_argument("--bytes", action="store_true", help="between databases, list the bytes that differ, too")
        add_output(parser, None)

    @staticmethod
    def run(arguments: argparse.Namespace) -> int:
        first, second = arguments.first, arguments.second
        if second is None:
            with open_files(arguments.database) as one, open_files(Path(first)) as other:
                return show(arguments, diff_databases(one, other, arguments.bytes))
        if first.startswith(_PLACE) or second.startswith(_PLACE):
            places = [text.removeprefix(_PLACE) for text in (first, second)]
            with open_files(arguments.database, places[0]) as one, open_files(arguments.database, places[1]) as other:
                return show(arguments, diff_databases(one, other, arguments.bytes))
        with open_files(arguments.database) as files:
            return show(arguments, diff_pages(files, first, second))


_PLACE = "lsn:"


class RedoVerb:
    """``gmstat redo``: the log, record by record, and as it is written."""

    NAME = "redo"
    HELP = "records of the redo log, by transaction, page, table or time; --follow shows it grow"
    DESCRIPTION = (
        "List the records of the redo files that are there, those of the archive included: which transaction "
        "changed which\n"
        "bytes of which page, and when transactions committed. --where chooses: by transaction, page, "
        "object, committed…"
    )
    EXAMPLE = (
        "examples:\n  gmstat redo shop.gmdb --where \"object = 'orders'\"\n"
        "  gmstat redo shop.gmdb --where \"kind = 'COMMIT' and time > timestamp '2026-01-31 12:00:00'\"\n"
        "  gmstat redo shop.gmdb --pages 4:7 --follow"
    )

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--since", metavar="LSN", type=int, default=0, help="only records of groups that begin at this LSN or later"
        )
        parser.add_argument("--follow", action="store_true", help="go on with new records, until Ctrl-C")
        add_output(parser, "redo")

    @staticmethod
    def run(arguments: argparse.Namespace) -> int:
        listing = make(arguments, "redo", since=arguments.since)
        status = show(arguments, listing)
        arguments.goes_on = True
        while arguments.follow:
            if listing.rows:
                arguments.since = max(row[0] for row in listing.rows) + 8  # groups begin at multiples of 8
                sys.stdout.flush()
            time.sleep(POLL_SECONDS)
            listing = make(arguments, "redo", since=arguments.since)
            if listing.rows:
                status = max(status, show(arguments, listing))
        return status


POLL_SECONDS = 0.3


class HistoryVerb:
    """``gmstat history``: what the log did to one page, step by step, with the page rebuilt at any step."""

    NAME = "history"
    HELP = "what the log did to a page, step by step; --step draws the page as it was then"
    DESCRIPTION = (
        "List the changes of a page that the redo files have: which transaction wrote which bytes, what they are, "
        "and what\n"
        "was there before. A page is rebuilt from its formatting, from an image in the log, or from the file where "
        "that is\n"
        "older than the log; at steps before that, only what was written is known."
    )
    EXAMPLE = "examples:\n  gmstat history shop.gmdb 4:7\n  gmstat history shop.gmdb 4:7 --step 12"

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("page", metavar="PAGE", help="the page: DEVICE:PAGE, such as 4:7, or its number")
        parser.add_argument("--step", metavar="N", type=int, help="draw the page as it was after step N")
        parser.add_argument("--full", action="store_true", help="with --step, draw every byte of long values too")
        add_output(parser, "history")

    @staticmethod
    def run(arguments: argparse.Namespace) -> int:
        if arguments.step is None:
            return show(arguments, make(arguments, "history", arguments.page))
        page_id = parse_page_id(arguments.page)
        with DatabaseFiles(arguments.database) as files:
            changes = steps(files, page_id, Listing("", ()))
            if not 1 <= arguments.step <= len(changes):
                raise InterfaceError(f"the log has {len(changes)} changes of page {arguments.page}; there is no step "
                                     f"{arguments.step}")  # fmt: skip
            page = changes[arguments.step - 1].page
            if page is None:
                raise InterfaceError(
                    f"page {arguments.page} cannot be rebuilt at step {arguments.step}: the redo files begin "
                    "after its formatting"
                )
            view = view_of(files, page_id, sealed(page))
        if arguments.json:
            print_json(page_document(view))
        else:
            for line in draw_page(view, paint(), arguments.full):
                print(line)
        return 1 if view.findings else 0


class IndexVerb:
    """``gmstat index``: an index, level by level and page by page, from its files or from the process that has it
    open."""

    NAME = "index"
    HELP = "an index: its levels, how full they are, and its tree"
    DESCRIPTION = (
        "Show an index: its table and columns, how many pages and entries each level has and how full they are,\n"
        "then its pages, one per line. Of a B-tree: the separator that bounds a page, its entries, its first and\n"
        "last key. Of a hash index: directories, the bits of an address that lead to each bucket, and the number of\n"
        "buckets by the number of these bits. Of a large index the root and some of its children are shown;\n"
        "--depth goes further down, --full shows every page. Pages are those of the process that has the database\n"
        "open; if there is none, those of the files. gmdb verify checks all bytes of an index.\n"
        "--csv, --arrow and --where are about its pages, with --walk about its entries."
    )
    EXAMPLE = (
        "examples:\n  gmstat index shop.gmdb orders_id\n  gmstat index shop.gmdb orders_id --depth 2\n"
        "  gmstat index shop.gmdb orders_id --dot | dot -Tsvg > tree.svg"
    )

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("index", metavar="NAME", help="the index's name")
        parser.add_argument("--depth", metavar="N", type=_depth, help="show N levels below the root (default: 1)")
        parser.add_argument("--full", action="store_true", help="show every page")
        parser.add_argument("--dot", action="store_true", help="print the pages for Graphviz instead")
        parser.add_argument("--walk", action="store_true", help="list all entries instead, in the order of keys")
        add_output(parser, "index")

    @staticmethod
    def run(arguments: argparse.Namespace) -> int:
        if arguments.walk or arguments.csv or arguments.arrow or arguments.where or arguments.pages:
            name = "entries" if arguments.walk else "index"
            return show(arguments, make(arguments, name, arguments.index, live=True))
        view: IndexView | None = None
        if arguments.at is None:
            view = ask_owner(arguments.database, lambda owner: _from_owner(owner, arguments.index))
        if view is None:
            with open_files(arguments.database, arguments.at) as files:
                view = index_view_of(files, arguments.index)
        if arguments.json:
            print_json(view.document())
        elif arguments.dot:
            for line in dot(view, _cut(arguments)):
                print(line)
        else:
            _print(view, _cut(arguments))
        return 1 if view.problems else 0


def _depth(text: str) -> int:
    depth = int(text)
    if depth < 0:
        raise argparse.ArgumentTypeError("a tree has no levels above its root")
    return depth


def _cut(arguments: argparse.Namespace) -> Cut:
    if arguments.full:
        return Cut(arguments.depth, None)
    return Cut() if arguments.depth is None else Cut(arguments.depth)


def _from_owner(owner: Connection, name: str) -> IndexView:
    tables = [owner.table(table) for table in owner.tables()]
    full, definition = find_index((index for table in tables for index in table.indexes), tables, name)
    sent = owner._index_pages(full)
    pages = dict(zip(sent["page_id"].to_pylist(), sent["page"].to_pylist(), strict=True))
    table = next(table for table in tables if table.obj_id == definition.table_id)
    return read_index(lambda page_id: pages.get(page_id, b"") or _missing(page_id), definition, table)


def _missing(page_id: int) -> bytes:
    raise StorageError(f"page {page_name(page_id)} is not a page of the index's segment")


def _print(view: IndexView, cut: Cut) -> None:
    columns = ", ".join(f"{column.name} {column.type}" for column in view.columns)
    unique = "unique, " if view.definition.unique else ""
    print(f"index {view.definition.name} of table {view.table.name}: {unique}{view.kind} of ({columns})")
    if options_of(view.definition):
        print(f"on {written_columns(view.definition, view.table.columns)}")
    root = "none" if view.root is None else page_name(view.root.page_id)
    print(f"entry page {page_name(view.definition.entry_page)}, root page {root}")
    print()
    for headings, rows in view.tables():
        print_table(headings, rows)
        print()
    for line in outline(view, cut):
        print(line)
    print_problems(view.problems)


class SalvageVerb:
    """``gmstat salvage``: every row that can still be read, into Parquet files, with a report of what was lost."""

    NAME = "salvage"
    HELP = "every row that can still be read out of a damaged database, into Parquet files"
    DESCRIPTION = (
        "Write the rows that can still be read into OUT, a new folder: for each table, TABLE.parquet with its\n"
        "columns, _rowid, _deleted and _uncommitted (a transaction changed the row and never ended). Rows of tables\n"
        "whose definition is lost are written as bytes, with their headers. report.json says what was lost and\n"
        "where. Pages are trusted if their CRC and place are right; neither maps nor the catalog need be whole.\n"
        "The database is not changed."
    )
    EXAMPLE = (
        "examples:\n  gmstat salvage shop.gmdb rescued\n  gmstat salvage shop.gmdb rescued --deleted\n"
        "  gmstat salvage crashed.gmdb rescued --at end"
    )

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("out", metavar="OUT", help="the folder to create")
        parser.add_argument("--deleted", action="store_true", help="also deleted rows that are not yet removed")
        parser.add_argument("--at", metavar="LSN", help="replay the log beside the files, up to an LSN, or to its end")
        add_output(parser, None)

    @staticmethod
    def run(arguments: argparse.Namespace) -> int:
        out = Path(arguments.out)
        with open_files(arguments.database, arguments.at) as files:
            try:
                out.mkdir(parents=True)
            except OSError as error:
                raise StorageError(f"{out}: {error.strerror}; name a folder that does not exist yet") from None
            salvage = Salvage(files)
            with _Writers(out, salvage) as writers:
                for row in salvage.rows(arguments.deleted):
                    writers.write(row)
            listing = salvage.report(writers.counts, writers.names)
        (out / "report.json").write_text(json.dumps(document(listing), indent=2, ensure_ascii=False))
        listing.notes.append(f"what was lost, and where, is in {out / 'report.json'}")
        return show(arguments, listing)


AT_ONCE = 4096  # rows of a table that are held in memory


class _Writers:
    """A Parquet file for each table."""

    def __init__(self, out: Path, salvage: Salvage) -> None:
        self._out, self._salvage = out, salvage
        self._open: dict[int, Any] = {}
        self._rows: dict[int, list[tuple[Any, ...]]] = {}
        self.counts: dict[int, Counter[str]] = {}
        self.names: dict[int, str] = {}

    def __enter__(self) -> _Writers:
        return self

    def __exit__(self, *_: object) -> None:
        for obj_id in list(self._rows):
            self._flush(obj_id)
        for writer in self._open.values():
            writer.close()

    def write(self, row: SavedRow) -> None:
        count = self.counts.setdefault(row.obj_id, Counter())
        count.update(rows=1, deleted=int(row.is_deleted), uncommitted=int(row.is_uncommitted))
        values = (row.raw,) if row.values is None else row.values
        rows = self._rows.setdefault(row.obj_id, [])
        rows.append((*values, str(row.row_id), row.is_deleted, row.is_uncommitted))
        if len(rows) >= AT_ONCE:
            self._flush(row.obj_id)

    def _flush(self, obj_id: int) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = self._schema(obj_id)
        if obj_id not in self._open:
            self.names[obj_id] = self._file_name(obj_id)
            self._open[obj_id] = pq.ParquetWriter(self._out / self.names[obj_id], schema)
        rows, self._rows[obj_id] = self._rows[obj_id], []
        if rows:
            columns = zip(zip(*rows, strict=True), schema, strict=True)
            arrays = [pa.array(values, field.type) for values, field in columns]
            self._open[obj_id].write_table(pa.table(arrays, schema=schema))

    def _file_name(self, obj_id: int) -> str:
        """The table's name, as far as a file name can have it; made unique among these files."""
        name = "".join(c if c.isalnum() or c in "-_" else "_" for c in self._salvage.name_of(obj_id))
        taken = {other.lower() for other in self.names.values()}
        return f"{name}-{obj_id}.parquet" if f"{name}.parquet".lower() in taken else f"{name}.parquet"

    def _schema(self, obj_id: int) -> pa.Schema:
        import pyarrow as pa

        from gmdb.tables.arrow.arrow_types import arrow_type

        table = self._salvage.tables.get(obj_id)
        own = [("_bytes", pa.binary())] if table is None else [(c.name, arrow_type(c.type)) for c in table.columns]
        return pa.schema([*own, ("_rowid", pa.string()), ("_deleted", pa.bool_()), ("_uncommitted", pa.bool_())])
