"""``gmdb sql``: a shell, or statements from the command line, a file or a pipe."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gmdb import __version__
from gmdb.errors import InterfaceError

if TYPE_CHECKING:
    from gmdb.cli.shell.input import Piece
    from gmdb.cli.shell.shell import Shell

NAME = "sql"
HELP = "a shell for SQL, or statements from the command line or a file"
DESCRIPTION = (
    "Read statements and print their results. On a terminal it is a shell with history and completion; help\n"
    "lists its commands. Every statement is a transaction of its own until: set autocommit off. If another process\n"
    "has the database open, the shell works through it; a database that does not exist is created.\n"
    "Statements of -c, -f or a pipe stop at the first that fails.\n"
    "Exit status: 0 all is well, 2 a statement failed, 130 one was interrupted."
)
EXAMPLE = (
    "examples:\n"
    "  gmdb sql shop.gmdb\n"
    '  gmdb sql shop.gmdb -c "select count(*) from orders"\n'
    "  gmdb sql shop.gmdb -f schema.sql\n"
    "  GMDB_TOKEN=$(cat token) gmdb sql 'gmdb+tls://db.example.org:7433?tls_ca=ca.pem'\n"
    '  gmdb sql shop.gmdb -c "select * from orders" --output parquet --to orders.parquet'
)
FAILED = 2
INTERRUPTED = 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("database", metavar="DB", help="the database's directory, or a server: gmdb://host:7433")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("-c", "--command", metavar="STATEMENT", action="append", help="run this; may be given repeatedly")
    what.add_argument("-f", "--file", metavar="FILE", type=Path, help="run the statements of a file; - is a pipe")
    parser.add_argument(
        "--output", choices=("table", "csv", "json", "parquet"), default="table", help="how results are written"
    )
    parser.add_argument("--to", metavar="FILE", type=Path, help="write results into a file")
    parser.add_argument("--read-only", action="store_true", help="change nothing")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from gmdb.cli.shell.outputs import OUTPUTS
    from gmdb.cli.shell.shell import Shell, connector

    output = OUTPUTS[arguments.output](arguments.to)
    source = "" if arguments.file is None or str(arguments.file) == "-" else str(arguments.file)
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    script = _script(arguments, is_terminal)
    shell = Shell(connector(arguments.database, arguments.read_only), output, source)
    try:
        return _converse(shell) if script is None else _run_script(shell, _pieces(script))
    finally:
        shell.close()


def _script(arguments: argparse.Namespace, is_terminal: bool) -> Iterable[str] | None:
    """The lines to run; None if a user is to type them."""
    if arguments.command is not None:
        return [line for command in arguments.command for line in _ended(command)]
    if arguments.file is not None and str(arguments.file) != "-":
        try:
            return io.StringIO(arguments.file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise InterfaceError(f"{arguments.file} cannot be read: {error}") from None
    return None if is_terminal else sys.stdin


def _ended(command: str) -> list[str]:
    """A command's lines; the semicolon at its end may be left out."""
    return [*(line + "\n" for line in command.splitlines()), ";\n"]


def _pieces(lines: Iterable[str]) -> Iterator[Piece]:
    """The statements and commands of a script."""
    from gmdb.cli.shell.input import Piece, Pieces, is_command

    pieces = Pieces()
    for number, line in enumerate(lines, 1):
        if not pieces.rest and is_command(line):
            pieces.feed("\n")
            yield Piece(line.strip(), number)
        else:
            yield from pieces.feed(line)
    yield from pieces.finish()


def _run_script(shell: Shell, pieces: Iterable[Piece]) -> int:
    from gmdb.cli.shell.shell import Failed, Leave
    from gmdb.errors import StatementInterrupted

    try:
        shell.run_script(pieces)
    except Leave:
        pass
    except Failed as failed:
        return INTERRUPTED if isinstance(failed.__cause__, StatementInterrupted) else FAILED
    return 0


def _converse(shell: Shell) -> int:
    """Take what is typed until the user leaves."""
    from gmdb.cli.shell.input import Piece, Pieces, is_command
    from gmdb.cli.shell.prompt import Prompt
    from gmdb.cli.shell.shell import Failed, Leave

    print(f"gmdb {__version__}; help lists the commands")
    prompt = Prompt(lambda: shell.connection, lambda: shell.status)
    begun = ""
    while True:
        try:
            text = prompt.read(begun)
            pieces = Pieces()
            complete = [Piece(text, 1)] if is_command(text) else pieces.feed(text + "\n")
            begun = pieces.rest.strip()
            for piece in complete:
                shell.run(piece)
        except KeyboardInterrupt:
            begun = ""
        except Failed:
            continue
        except (EOFError, Leave):
            return 0
