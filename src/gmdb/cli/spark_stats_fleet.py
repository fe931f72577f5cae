"""``gmdb spark stats`` of a pattern: a row for each database, and the columns of a table in all of them together."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gmdb.cli.fleet_table import print_fleet
from gmdb.cli.spark_profile import print_profile
from gmdb.cli.spark_work import Work, summary
from gmdb.cli.table import print_json
from gmdb.errors import InterfaceError, StorageError
from gmdb.inspect.canvas import printable

if TYPE_CHECKING:
    from gmdb.catalog.schema import TableDefinition
    from gmdb.spark.column_profile import TableProfile
    from gmdb.spark.fleet import LeftOut
    from gmdb.spark.space_profile import DatabaseSpace


def tables(fleet: Path, names: Sequence[str], columns: Sequence[str]) -> list[TableDefinition]:
    """The tables that are asked for, as the first database that can be read has them."""
    from gmdb.spark.fleet import find_members
    from gmdb.spark.fleet_reader import first_table

    find_members([str(fleet)])
    return [first_table([str(fleet)], name, columns or None, skips_databases=True)[0] for name in names]


def run(arguments: argparse.Namespace, work: Work) -> int:
    from gmdb.spark.column_profile import profile_table
    from gmdb.spark.fleet import read_report
    from gmdb.spark.space_profile import database_spaces

    if arguments.plot is not None and not arguments.definitions:
        raise InterfaceError("--plot of several databases draws the columns of a table; name it with --table")
    fleet, columns, exact = arguments.database.absolute(), arguments.columns, arguments.exact
    with (
        tempfile.TemporaryDirectory(prefix="gmdb-report-", ignore_cleanup_errors=True) as folder,
        work.spark() as spark,
    ):
        options = {"onError": "skip", "reportTo": folder}
        profiles = [
            profile_table(spark, fleet, table, columns=columns, exact=exact, **options)
            for table in arguments.definitions
        ]
        spaces = [] if arguments.no_segments else database_spaces(spark, str(fleet), **options)
        seconds = work.seconds
        left_out = {one.database: one for one in reversed(read_report(Path(folder)))}
    if arguments.plot is not None:
        from gmdb.spark.profile_picture import draw_profiles

        draw_profiles(arguments.plot, profiles, [])
    if arguments.json:
        about = {"tables": [profile.document() for profile in profiles], "databases": [s.document() for s in spaces]}
        lost = [{"database": name, "error": one.error} for name, one in sorted(left_out.items())]
        print_json({"fleet": str(fleet), **about, "left_out": lost, "seconds": round(seconds, 3)})
    else:
        _print(arguments.database, profiles, spaces, left_out, seconds)
    return 2 if left_out else 0


def _report_folder(arguments: argparse.Namespace) -> tempfile.TemporaryDirectory[str]:
    """Where workers tell what they leave out: beside the databases, which they all reach, unless they are all here."""
    from gmdb.spark.fleet import find_members
    from gmdb.spark.local import is_local

    beside = find_members([str(arguments.database)])[0].path.parent
    folder = None if is_local(arguments.master) else beside
    try:
        return tempfile.TemporaryDirectory(prefix=".gmdb-report-", dir=folder, ignore_cleanup_errors=True)
    except OSError as error:
        raise StorageError(f"{beside}: {error.strerror}; workers must tell there what they leave out") from error


def _print(
    fleet: Path,
    profiles: Sequence[TableProfile],
    spaces: Sequence[DatabaseSpace],
    left_out: Mapping[str, LeftOut],
    seconds: float,
) -> None:
    from gmdb.spark.fleet import without_path

    def named(database: str) -> str:
        return database if fleet.is_absolute() else os.path.relpath(database)

    for profile in profiles:
        print_profile(profile)
    if spaces:
        _print_spaces([(named(space.database), space) for space in spaces])
    for name, one in sorted(left_out.items()):
        print(f"left out: {named(name)}: {printable(without_path(one.error, Path(name)))}")
    rows = sum(space.rows for space in spaces) if spaces else sum(profile.rows for profile in profiles)
    size = sum(space.size for space in spaces) if spaces else None
    print(
        f"{fleet}: {len(spaces):,} databases, {summary(rows, size, seconds)}"
        if spaces
        else summary(rows, size, seconds)
    )


def _print_spaces(spaces: Sequence[tuple[str, DatabaseSpace]]) -> None:
    from gmdb.spark.fleet import without_path

    headings = ("database", "tables", "rows", "pages", "MiB", "full", "dead", "status", "first problem")
    rows = []
    for name, one in spaces:
        counts = (f"{one.tables:,}", f"{one.rows:,}", f"{one.pages:,}", f"{one.size / (1 << 20):,.1f}")
        dead = one.dead / one.size if one.size else 0.0
        status = f"{one.damaged_pages:,} damaged" if one.damaged_pages else "damaged" if one.problem else "ok"
        problem = without_path(one.problem or "", Path(one.database))
        rows.append((name, *counts, f"{one.fill:.0%}", f"{dead:.0%}", status, problem))
    print_fleet(headings, rows)
    print()
