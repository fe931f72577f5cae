"""The two programs, gmdb and gmstat: their commands and exit statuses.

Exit status: 0 all is well, 1 something is damaged, 2 the command failed.
Neither this file nor a command imports compiled code unless it is needed.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

from gmdb import __version__
from gmdb.cli import demo, import_, spark, sql, stat, verify
from gmdb.cli.serve import ExploreVerb, ServeVerb
from gmdb.cli.upkeep import ArchiveVerb, BackupVerb, FeedsVerb, RestoreVerb, ShrinkVerb, SnapshotsVerb
from gmdb.cli.verbs import add_verb
from gmdb.errors import Error

COMMANDS = (
    sql,
    import_,
    ServeVerb,
    stat,
    ExploreVerb,
    verify,
    BackupVerb,
    RestoreVerb,
    ArchiveVerb,
    ShrinkVerb,
    SnapshotsVerb,
    FeedsVerb,
    spark,
    demo,
)
FAILED = 2
INTERRUPTED = 130
READER_GONE = 141  # what a shell reports for a program that SIGPIPE ended


def main(arguments: Sequence[str] | None = None) -> int:
    """The ``gmdb`` command."""
    parser = _parser("gmdb", "Work with gmdb databases from the command line.")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_arguments(add_verb(commands, command))
    return _run(parser, arguments)


def gmstat(arguments: Sequence[str] | None = None) -> int:
    """The ``gmstat`` command: ``gmdb stat`` by its own name."""
    parser = _parser("gmstat", stat.DESCRIPTION)
    stat.add_arguments(parser)
    return _run(parser, arguments)


def _parser(name: str, description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=name, description=description)
    parser.add_argument("--version", action="version", version=f"{name} {__version__}")
    return parser


def _run(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> int:
    parsed = parser.parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that is not UTF-8 still gets its drawing
    try:
        status: int = parsed.run(parsed)
        sys.stdout.flush()
        return status
    except Error as error:
        print(f"{parser.prog}: {' '.join(str(error).split())}", file=sys.stderr)
        return FAILED
    except BrokenPipeError:
        # Python flushes stdout once more at exit; it must not find the closed pipe again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_GONE
    except KeyboardInterrupt:
        return INTERRUPTED
