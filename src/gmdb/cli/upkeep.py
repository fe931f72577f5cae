"""Maintenance of a database: backup and restore, archiving the log, shrinking files, pins, readers of changes."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmdb.cli.output import print_json, print_table, progress_of_steps
from gmdb.cli.stat import SNAPSHOTS
from gmdb.cli.verbs import add_database, add_json, add_list_and_drop, ask_owner, database_directory
from gmdb.errors import InterfaceError
from gmdb.storage.directory import read_control, require_database
from gmdb.storage.feeds import LogPosition, Reader, log_behind, read_readers, remove_reader
from gmdb.storage.pins import drop_closed, read_pins

if TYPE_CHECKING:
    from gmdb.database.connection import Connection
    from gmdb.storage.log.reports import Recovery


class BackupVerb:
    """``gmdb backup``: a copy of a database, in use or not, as it is at one instant."""

    NAME = "backup"
    HELP = "copy a database, in use or not, as it is at one instant"
    DESCRIPTION = (
        "Copy a database to a new directory, as it is at one instant. If another process has it open, that process\n"
        "makes the copy, and goes on with its work meanwhile. gmdb restore makes a database out of the copy; gmdb\n"
        "verify checks it. Exit status: 0 the backup was made, 2 it was not, and nothing is left of it."
    )
    EXAMPLE = "examples:\n  gmdb backup shop.gmdb backups/monday\n  gmdb backup shop.gmdb backups/monday --json"

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        add_database(parser)
        parser.add_argument("target", metavar="TARGET", help="where the backup is to be; nothing may be there yet")
        add_json(parser)
        parser.set_defaults(run=BackupVerb.run)

    @staticmethod
    def run(arguments: argparse.Namespace) -> int:
        from gmdb import connect
        from gmdb.database.copies import local_time
        from gmdb.process.late_dataclasses import asdict
        from gmdb.storage.log.backup import is_backup

        require_database(Path(arguments.database))
        if is_backup(Path(arguments.database)):
            raise InterfaceError(f"{arguments.database} is a backup itself: copy its files")
        with progress_of_steps() as step, connect(arguments.database, progress=step) as connection:
            report = connection.backup(arguments.target, step)
        if arguments.json:
            print_json(asdict(report))
        else:
            size = f"{report.bytes / (1 << 20):,.1f} MiB of pages, {report.redo_bytes / (1 << 20):,.1f} MiB of log"
            print(f"{report.path}: {size}, in {report.seconds:.1f} s; as it was at {local_time(report.time)}")
        return 0


class RestoreVerb:
    """``gmdb restore``: a database out of a backup, brought to any time since if its log was archived."""

    NAME = "restore"
    HELP = "make a database out of a backup, as it was then or later"
    DESCRIPTION = (
        "Make a database out of a backup, as it was when the backup was made. With the log archived since then, it\n"
        "is brought to the last commit in that log, or to the last one up to a time. The backup stays as it is. The\n"
        "new database has an id of its own and archives nothing; log and backups of the old one do not fit it.\n"
        "Exit status: 0 the database was made, 2 it was not, and nothing is left of it."
    )
    EXAMPLE = (
        "examples:\n"
        "  gmdb restore backups/monday shop.gmdb\n"
        "  gmdb restore backups/monday shop.gmdb --archive old.gmdb/archive\n"
        '  gmdb restore backups/monday shop.gmdb --archive old.gmdb/archive --to "2026-11-15 12:00:00"'
    )

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("backup", metavar="BACKUP", help="what gmdb backup made")
        parser.add_argument("target", metavar="TARGET", help="where the database is to be; nothing may be there yet")
        parser.add_argument("--archive", metavar="DIR", help="a folder with archived log, or a database that has one")
        parser.add_argument("--to", metavar="TIME", help="the time to go to: local, or in ISO form with a zone")
        add_json(parser)
        parser.set_defaults(run=RestoreVerb.run)

    @staticmethod
    def run(arguments: argparse.Namespace) -> int:
        to = None if arguments.to is None else parse_time(arguments.to)
        from gmdb.database.copies import restore  # compiled code, which other commands do not need

        with progress_of_steps() as step:
            recovery = restore(arguments.backup, arguments.target, archive=arguments.archive, to=to, progress=step)
        if arguments.json:
            print_json({"database": arguments.target, "recovery": recovery.document()})
        else:
            print(recovery)
            print(_summary(arguments.target, to, recovery))
        return 0


def parse_time(text: str) -> datetime:
    """A time in ISO form; without a zone it is local."""
    try:
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError):
        hint = "is not a time; write it as 2026-11-15 12:00:00, or with a zone as 2026-11-15T12:00:00+01:00"
        raise InterfaceError(f"{text!r} {hint}") from None


def _summary(target: str, to: datetime | None, recovery: Recovery) -> str:
    from gmdb.database.copies import local_time

    newest = "no commit was replayed"
    if recovery.last_commit:
        newest = f"the newest commit that was replayed is of {local_time(recovery.last_commit)}"
    if to is not None and not recovery.stopped:
        newest += f"; the log ends before {to:%Y-%m-%d %H:%M:%S}, so what was committed after that is not there"
    return f"{target}: {newest}; make a new backup, older ones do not fit this database"


class ArchiveVerb:
    """``gmdb archive``: whether a database keeps its log, so that backups can be brought to any time since."""

    NAME = "archive"
    HELP = "keep a database's log, or do not, for gmdb restore"
    DESCRIPTION = (
        "Keep a database's log: redo files that are no longer needed are moved to its folder archive instead of\n"
        "being removed. With a backup made since then, gmdb restore can bring the database to any later time. The\n"
        "files may be moved elsewhere from that folder; gmdb removes none of them.\n"
        "Exit status: 0 done, 2 the command failed."
    )
    EXAMPLE = "examples:\n  gmdb archive shop.gmdb on\n  gmdb archive shop.gmdb off"

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        add_database(parser)
        parser.add_argument("state", choices=("on", "off"), help="whether the log is kept from now on")
        parser.set_defaults(run=ArchiveVerb.run)

    @staticmethod
    def run(arguments: argparse.Namespace) -> int:
        from gmdb import connect

        require_database(Path(arguments.database))
        with connect(arguments.database) as connection:
            connection.set_archiving(arguments.state == "on")
        if arguments.state == "on":
            print(f"{arguments.database} keeps its log from now on; make a backup to begin with")
        else:
            print(f"{arguments.database} keeps no log from now on; what was archived stays")
        return 0


class ShrinkVerb:
    """``gmdb shrink``: free pages at the end of a database's files, given back to the operating system."""

    NAME = "shrink"
    HELP = "make a database's files as short as their last page in use allows"
    DESCRIPTION = (
        "Give free pages at the end of a database's files back to the operating system, after rows were "
        "deleted or tables\n"
        "dropped. Pages in use stay where they are, so free pages before the last of them remain, for new rows.\n"
        "The database may be open in another process, which then does it while others go on working."
    )
    EXAMPLE = "examples:\n  gmdb shrink shop.gmdb\n  gmdb shrink shop.gmdb --json"

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        add_database(parser)
        add_json(parser)
        parser.set_defaults(run=ShrinkVerb.run)

    @staticmethod
    def run(arguments: argparse.Namespace) -> int:
        import gmdb  # compiled code, which other commands do not need

        require_database(Path(arguments.database))
        with gmdb.connect(arguments.database) as db:
            freed = db.shrink()
        if arguments.json:
            print_json({"bytes": freed})
        else:
            print(f"{freed / (1 << 20):,.1f} MiB given back")
            if pins := read_pins(Path(arguments.database)):
                print(f"files stay as long as they are for {len(pins)} pinned snapshots: see gmdb snapshots list")
        return 0


class SnapshotsVerb:
    """``gmdb snapshots``: pinned snapshots, listed and dropped."""

    NAME = "snapshots"
    HELP = "list the snapshots that are pinned for readers in other processes, or drop some"
    DESCRIPTION = (
        "A snapshot is pinned for readers in other processes, as Spark's are: what they may still read is "
        "kept for them\n"
        "until they let it go, or it expires."
    )
    LIST_HELP, LIST_DESCRIPTION = SNAPSHOTS.HELP, SNAPSHOTS.DESCRIPTION
    DROP_DESCRIPTION = (
        "Drop pinned snapshots, and remove what was kept for them; readers that still use one get an error that it\n"
        "has expired. If a process has the database open, that process drops them."
    )
    EXAMPLE = "examples:\n  gmdb snapshots list shop.gmdb\n  gmdb snapshots drop shop.gmdb 0000000012-1f0c22aa\n"
    EXAMPLE += "  gmdb snapshots drop shop.gmdb --all"

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        listing = add_list_and_drop(parser, SnapshotsVerb, "snapshots")
        SNAPSHOTS.add_arguments(listing)
        listing.set_defaults(run=SNAPSHOTS.run)

    @staticmethod
    def names(directory: Path) -> list[str]:
        return [pin.name for pin in read_pins(directory)]

    @staticmethod
    def drop(directory: Path, chosen: Sequence[str]) -> None:
        def ask(owner: Connection) -> bool:
            for name in chosen:
                owner.drop_snapshot(name)
            return True

        if ask_owner(str(directory), ask) is None:
            for name in chosen:
                drop_closed(directory, name)


class FeedsVerb:
    """``gmdb feeds``: who reads the database's changes, and how much log is kept for them."""

    NAME = "feeds"
    HELP = "list the named readers of the database's changes, or drop some"
    DESCRIPTION = (
        "A named reader of changes, as a stream is, stands behind a commit; the log of the commits after it "
        "is kept until\n"
        "the reader has them, up to a limit."
    )
    LIST_HELP = "list them"
    LIST_DESCRIPTION = (
        "List every named reader of changes: behind which commit it stands, when it last said so, how much "
        "log is kept\n"
        "for it, and the limit. They are read from files, so the database may be open or closed."
    )
    DROP_DESCRIPTION = (
        "Drop readers of changes: the log is no longer kept for them. A stream that continues with one gets an error\n"
        "that its place is gone, and starts again from a snapshot."
    )
    EXAMPLE = "examples:\n  gmdb feeds list shop.gmdb\n  gmdb feeds drop shop.gmdb nightly-copy"

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        listing = add_list_and_drop(parser, FeedsVerb, "readers")
        add_json(listing)
        listing.set_defaults(run=_list)

    @staticmethod
    def names(directory: Path) -> list[str]:
        return [reader.name for reader in read_readers(directory)]

    @staticmethod
    def drop(directory: Path, chosen: Sequence[str]) -> None:
        for name in chosen:
            remove_reader(directory, name)


HEADINGS = ("reader", "behind commit", "last seen", "log kept", "at most")


def _list(arguments: argparse.Namespace) -> int:
    directory = database_directory(arguments)
    readers = [_fields(directory, reader) for reader in read_readers(directory)]
    if arguments.json:
        print_json({"readers": readers})
        return 0
    rows = [
        (one["name"], one["scn"], one["seen"], _size(one["kept_bytes"]), _size(one["limit_bytes"])) for one in readers
    ]
    print_table(HEADINGS, rows)
    return 0


def _fields(directory: Path, reader: Reader) -> dict[str, Any]:
    database_id = read_control(directory)["database_id"]
    return {
        "name": reader.name,
        "position": reader.position,
        "scn": LogPosition.from_text(reader.position, database_id).scn,
        "seen": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(reader.seen)),
        "kept_bytes": log_behind(directory, reader),
        "limit_bytes": reader.keep,
    }


def _size(size: int) -> str:
    return f"{size / (1 << 20):,.1f} MiB"
