"""``gmdb import``: a SQLite database, a CSV or a Parquet file becomes tables; all of it or nothing."""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmdb.cli.output import print_json, print_table, progress
from gmdb.cli.verbs import add_json
from gmdb.errors import DataError, Error, ForeignKeyViolation, InterfaceError, ProgrammingError
from gmdb.inspect.canvas import printable
from gmdb.process.late_dataclasses import replace

if TYPE_CHECKING:
    import pyarrow as pa

    from gmdb.cli.sources.plan import Account, ImportSource, IndexPlan, TablePlan
    from gmdb.database.connection import Connection
    from gmdb.tables.catalog.schema import Constraint

NAME = "import"
HELP = "bring a SQLite database, a CSV or a Parquet file over"
DESCRIPTION = (
    "Read a SQLite database with its keys, foreign keys, defaults, checks, indexes and rows, or a CSV or Parquet\n"
    "file, into a database, in one transaction: all or nothing. Its first bytes say which kind of file it is.\n"
    "What has no place in gmdb, such as triggers, is listed as left out.\n"
    "A CSV or Parquet file may go into a table that is there already, if its columns have the same names.\n"
    "Exit status: 0 everything is imported, 2 nothing is."
)
EXAMPLE = (
    "examples:\n"
    "  gmdb import shop.sqlite                              makes shop.gmdb beside it\n"
    "  gmdb import shop.sqlite --into all.gmdb --table orders\n"
    "  gmdb import prices.csv --into shop.gmdb"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help="a SQLite database, a CSV or a Parquet file")
    parser.add_argument(
        "--into", metavar="DB", type=Path, help="the database's directory; without it, FILE with the ending .gmdb"
    )
    parser.add_argument(
        "--table", metavar="NAME", help="of SQLite: only this table; else the table's name, if it is not that of FILE"
    )
    parser.add_argument("--delimiter", metavar="CHARACTER", help="between the fields of a CSV file")
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    database: Path = arguments.into if arguments.into is not None else arguments.file.with_suffix(".gmdb")
    if database == arguments.file:
        raise InterfaceError(f"{database} would be the database and the file; name one with --into")
    is_new = not database.exists()
    began = time.perf_counter()
    try:
        with _source(arguments) as source:
            plans = source.plans()
            import gmdb  # compiled code, once it is clear that it is needed

            with gmdb.connect(database) as connection:
                done = Import(connection, source.account).run(plans)
    except BaseException:
        if is_new:
            shutil.rmtree(database, ignore_errors=True)
        raise
    _report(arguments, database, done, source.account, time.perf_counter() - began)
    return 0


def _source(arguments: argparse.Namespace) -> ImportSource:
    """What reads the file, by its first bytes."""
    from gmdb.cli.sources.files import PARQUET_MAGIC, CsvSource, ParquetSource
    from gmdb.cli.sources.plan import require_file
    from gmdb.cli.sources.sqlite import MAGIC, SqliteSource

    head = require_file(arguments.file)
    if head.startswith(MAGIC):
        return SqliteSource(arguments.file, arguments.table)
    if head.startswith(PARQUET_MAGIC):
        return ParquetSource(arguments.file, arguments.table)
    return CsvSource(arguments.file, arguments.table, arguments.delimiter)


class Import:
    """Creates tables from plans, in the connection's transaction."""

    def __init__(self, connection: Connection, account: Account) -> None:
        self._connection = connection
        self._account = account

    def run(self, plans: list[TablePlan]) -> list[dict[str, Any]]:
        """Import all tables; returns for each what was imported."""
        done = []
        with progress("import", sum(plan.rows for plan in plans)) as step:
            for plan in plans:
                try:
                    done.append(self._import(plan, step))
                except Error as error:
                    if plan.name in str(error):
                        raise
                    raise type(error)(f"table {plan.name}: {error}") from None
        for plan, counts in zip(plans, done, strict=True):  # now that there are all tables
            counts["foreign_keys"] = sum(self._add_foreign_key(plan.name, key) for key in plan.foreign_keys)
        return done

    def _import(self, plan: TablePlan, step: Callable[[int], None]) -> dict[str, Any]:
        connection = self._connection
        is_addition = not plan.keys and not plan.indexes and plan.name in connection.tables()
        try:
            with connection.all_or_nothing():
                if not is_addition:
                    connection.create_table(plan.name, plan.columns)
                rows = connection.append(plan.name, _counted(plan.batches(), step))
        except Error as error:
            count = sum(column.generated is not None for column in plan.columns)
            if is_addition or not count:
                raise
            what = f"table {plan.name}: how columns are computed: {error}"
            self._account.leave_out("computed columns", what, count)
            connection.create_table(plan.name, [replace(column, generated=None) for column in plan.columns])
            rows = connection.append(plan.name, plan.batches())
        for constraint in plan.keys:
            connection.add_constraint(plan.name, constraint)
        indexes = sum(self._add_index(plan.name, index) for index in plan.indexes)
        checks = sum(self._add_check(plan.name, number, text) for number, text in enumerate(plan.checks, 1))
        if plan.identity is not None and plan.identity[1] > 0:
            connection.next_identity(plan.name, plan.identity[0], plan.identity[1])
        counts = {"table": plan.name, "rows": rows, "columns": len(plan.columns)}
        return {**counts, "keys": len(plan.keys), "indexes": indexes, "checks": checks}

    def _add_index(self, table: str, index: IndexPlan) -> bool:
        from gmdb.cli.sources.plan import in_short

        kind, columns = "unique index" if index.unique else "index", ", ".join(index.columns)
        text = f"create {kind} {_quoted(index.name)} on {_quoted(table)} ({columns})"
        try:
            self._connection.execute(f"{text} where {index.condition}" if index.condition else text)
        except (ProgrammingError, DataError) as error:  # of a condition that none can have, of a key that is too long
            self._account.leave_out("indexes", f"table {table}: index {index.name}: {in_short(error)}")
            return False
        return True

    def _add_check(self, table: str, number: int, text: str) -> bool:
        from gmdb.cli.sources.plan import in_short

        try:
            self._connection.execute(
                f'alter table {_quoted(table)} add constraint "{table}_check{number}" check ({text})'
            )
        except Error as error:
            self._account.leave_out("checks", f"table {table}: check ({text}): {in_short(error)}")
            return False
        return True

    def _add_foreign_key(self, table: str, key: Constraint) -> bool:
        """Rows that refer to nothing are left as they are: SQLite keeps foreign keys only where it is told to."""
        from gmdb.cli.sources.plan import in_short

        what = f"table {table}: foreign key ({', '.join(key.columns)}) to {key.references}"
        try:
            try:
                self._connection.add_constraint(table, key)
            except ForeignKeyViolation as error:
                self._connection.add_constraint(table, replace(key, valid=False))
                self._account.remark(f"{what}: {in_short(error)}: it is NOT VALID, and holds for new rows")
        except Error as error:
            self._account.leave_out("foreign keys", f"{what}: {in_short(error)}")
            return False
        return True


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _counted(batches: Iterator[pa.RecordBatch], step: Callable[[int], None]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        step(batch.num_rows)


def _report(
    arguments: argparse.Namespace, database: Path, done: list[dict[str, Any]], account: Account, seconds: float
) -> None:
    counts, remarks = account.rows(), account.remarks
    if arguments.json:
        document = {"database": str(database), "tables": done, "account": counts, "remarks": remarks}
        print_json({**document, "seconds": seconds})
        return
    for listed in (done, counts):
        headings = tuple(name.replace("_", " ") for name in listed[0]) if listed else ()
        print_table(headings, [tuple(one.values()) for one in listed])
        print()
    for line in remarks:
        print(printable(" ".join(line.split())))
    rows = sum(table["rows"] for table in done)
    print(f"{database}: {rows:,} rows in {seconds:.1f} s")
