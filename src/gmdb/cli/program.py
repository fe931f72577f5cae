"""The two programs, gmdb and gmstat: their commands and exit statuses.

Exit status: 0 all is well, 1 something is damaged, 2 the command failed.
A command is imported when it is asked for; neither this file nor a command imports compiled code unless it is needed.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from gmdb import __version__
from gmdb.cli.verbs import add_verb
from gmdb.errors import Error

COMMANDS = {  # by name: the module below this package that has it, or one that has several and the class
    "sql": "sql",
    "import": "import_",
    "serve": "serve:ServeVerb",
    "stat": "stat",
    "explore": "serve:ExploreVerb",
    "verify": "verify",
    "backup": "upkeep:BackupVerb",
    "restore": "upkeep:RestoreVerb",
    "archive": "upkeep:ArchiveVerb",
    "shrink": "upkeep:ShrinkVerb",
    "snapshots": "upkeep:SnapshotsVerb",
    "feeds": "upkeep:FeedsVerb",
    "spark": "spark",
    "demo": "demo",
}
FAILED = 2
INTERRUPTED = 130
READER_GONE = 141  # what a shell reports for a program that SIGPIPE ended


def main(arguments: Sequence[str] | None = None) -> int:
    """The ``gmdb`` command."""
    given = sys.argv[1:] if arguments is None else arguments
    if arguments is None:
        atexit.register(_leave_garbage)
    parser = _parser("gmdb", "Work with gmdb databases from the command line.")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    named = given[:1] if given and given[0] in COMMANDS else COMMANDS  # all of them only to be listed
    for command in map(_command, named):
        command.add_arguments(add_verb(commands, command))
    return _run(parser, given)


def gmstat(arguments: Sequence[str] | None = None) -> int:
    """The ``gmstat`` command: ``gmdb stat`` by its own name."""
    from gmdb.cli import stat

    if arguments is None:
        atexit.register(_leave_garbage)
    parser = _parser("gmstat", stat.DESCRIPTION)
    stat.add_arguments(parser)
    return _run(parser, arguments)


def _leave_garbage() -> None:
    """When a program ends, nothing is worth the searches for garbage that Python goes through then.

    But DuckDB's bindings, if they were used, report what nobody has destroyed.
    """
    if "duckdb" not in sys.modules:
        gc.freeze()


def _command(name: str) -> Any:
    """A command, imported when it is asked for."""
    module, _, verb = COMMANDS[name].partition(":")
    imported = import_module(f"gmdb.cli.{module}")
    return getattr(imported, verb) if verb else imported


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
