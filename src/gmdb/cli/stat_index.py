"""``gmstat index``: an index, level by level and page by page, from its files or from the process that has it open."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gmdb.cli.listings import add_output, make, show
from gmdb.cli.live import ask_owner
from gmdb.cli.table import print_json, print_problems, print_table
from gmdb.errors import StorageError
from gmdb.format.address import page_name
from gmdb.inspect.draw_tree import Cut, dot, outline
from gmdb.inspect.index_kinds import read_index
from gmdb.inspect.index_lists import view_of
from gmdb.inspect.index_view import IndexView, find_index
from gmdb.inspect.inspector import open_files

if TYPE_CHECKING:
    from gmdb.connection import Connection

NAME = "index"
HELP = "an index: its levels, how full they are, and its tree"
DESCRIPTION = (
    "Show an index: what it is of, how many pages and entries each level has and how full they are, then its pages, a\n"
    "page a line. Of a B-tree: the separator that bounds a page, its entries, its first and last key. Of a hash\n"
    "index: directories, by which bits of an address they lead to a bucket, and how many buckets have so many bits.\n"
    "Of a large index the root and some of its children are shown; --depth goes further down, --full shows every\n"
    "page. The process that has the database open is asked for the pages as they are now; if there is none, they are\n"
    "read from the files. gmdb verify checks an index in all its bytes.\n"
    "--csv, --arrow and --where are about its pages, with --walk about its entries."
)
EXAMPLE = (
    "examples:\n  gmstat index shop.gmdb orders_id\n  gmstat index shop.gmdb orders_id --depth 2\n"
    "  gmstat index shop.gmdb orders_id --dot | dot -Tsvg > tree.svg"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("index", metavar="NAME", help="the index's name")
    parser.add_argument("--depth", metavar="N", type=_depth, help="show N levels below the root (default: 1)")
    parser.add_argument("--full", action="store_true", help="show every page")
    parser.add_argument("--dot", action="store_true", help="print the pages for Graphviz instead")
    parser.add_argument("--walk", action="store_true", help="list all entries instead, in the order of keys")
    add_output(parser, "index")


def _depth(text: str) -> int:
    depth = int(text)
    if depth < 0:
        raise argparse.ArgumentTypeError("a tree has no levels above its root")
    return depth


def run(arguments: argparse.Namespace) -> int:
    if arguments.walk or arguments.csv or arguments.arrow or arguments.where or arguments.pages:
        name = "entries" if arguments.walk else "index"
        return show(arguments, make(arguments, name, arguments.index, live=True))
    view: IndexView | None = None
    if arguments.at is None:
        view = ask_owner(arguments.database, lambda owner: _from_owner(owner, arguments.index))
    if view is None:
        with open_files(arguments.database, arguments.at) as files:
            view = view_of(files, arguments.index)
    if arguments.json:
        print_json(view.document())
    elif arguments.dot:
        for line in dot(view, _cut(arguments)):
            print(line)
    else:
        _print(view, _cut(arguments))
    return 1 if view.problems else 0


def _cut(arguments: argparse.Namespace) -> Cut:
    if arguments.full:
        return Cut(arguments.depth, None)
    return Cut() if arguments.depth is None else Cut(arguments.depth)


def _from_owner(owner: Connection, name: str) -> IndexView:
    tables = [owner.table(table) for table in owner.tables()]
    definition = find_index([index for table in tables for index in table.indexes], name)
    sent = owner._index_pages(definition.name)
    pages = dict(zip(sent["page_id"].to_pylist(), sent["page"].to_pylist(), strict=True))
    table = next(table for table in tables if table.obj_id == definition.table_id)
    return read_index(lambda page_id: pages.get(page_id, b"") or _missing(page_id), definition, table)


def _missing(page_id: int) -> bytes:
    raise StorageError(f"page {page_name(page_id)} is no page of the index's segment")


def _print(view: IndexView, cut: Cut) -> None:
    columns = ", ".join(f"{column.name} {column.type}" for column in view.columns)
    unique = "unique, " if view.definition.unique else ""
    print(f"index {view.definition.name} of table {view.table.name}: {unique}{view.kind} of ({columns})")
    root = "none" if view.root is None else page_name(view.root.page_id)
    print(f"entry page {page_name(view.definition.entry_page)}, root page {root}")
    print()
    for headings, rows in view.tables():
        print_table(headings, rows)
        print()
    for line in outline(view, cut):
        print(line)
    print_problems(view.problems)
