"""The shell itself: statements in, results and errors out.

Invariants
 1. A statement that fails ends nothing but itself: a terminal's shell goes on, a script ends there.
 2. The connection is used by one thread at a time: by the one that runs a statement, or, while none runs, by this one.
"""

from __future__ import annotations

import contextlib
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import gmdb
from gmdb.cli.output import Activity, clear_line, paint
from gmdb.cli.shell.input import HELP, Command, Piece, command_of, error_lines
from gmdb.cli.shell.outputs import OUTPUTS, PIECE, Output, QueryResult, described, described_whole
from gmdb.database.connection import Connection
from gmdb.database.dbapi import Cursor
from gmdb.errors import Error, OwnerGone, StatementInterrupted
from gmdb.process.late_imports import pyarrow as pa
from gmdb.process.late_patterns import late_pattern

# ---- Waiting for a statement: it runs in a thread, so that the main thread can handle Ctrl-C and show activity.

LOOK_SECONDS = 0.1
INTERRUPT_SECONDS = 0.3  # until a statement is interrupted again: the first time may have been too early
Result = TypeVar("Result")


class StatementThread:
    """The one thread in which a shell's statements run."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "gmdb-shell")

    def wait_for(self, function: Callable[[], Result], interrupt: Callable[[], None], label: str) -> Result:
        """What the function returns.  Ctrl-C calls ``interrupt``, repeatedly until the function has ended."""
        is_interrupted = threading.Event()
        future = self._pool.submit(function)
        with _on_interrupt(is_interrupted.set), Activity(label) as activity:
            interrupted_at = 0.0
            while True:
                try:
                    return self._result(future)
                except NotYet:
                    if future.done():
                        raise
                if is_interrupted.is_set() and time.monotonic() - interrupted_at > INTERRUPT_SECONDS:
                    interrupt()
                    interrupted_at = time.monotonic()
                activity.show()

    @staticmethod
    def _result(future: Future[Any]) -> Any:
        return future.result(LOOK_SECONDS)

    def close(self) -> None:
        self._pool.shutdown()


@contextmanager
def _on_interrupt(act: Callable[[], None]) -> Iterator[None]:
    """Have Ctrl-C call ``act`` instead of raising KeyboardInterrupt; other threads than the main one cannot."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: act())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


# ---- The shell itself.

_END = late_pattern(r"(?:commit|end|rollback)\b(?!\s+(?:(?:work|transaction)\s+)?to\b)", re.I)
_READS = late_pattern(r"\(*\s*(?:select|with|values|explain|set|savepoint|release|begin|start)\b", re.I)
_DID = {"insert": "inserted", "update": "updated", "delete": "deleted", "merge": "merged", "copy": "copied"}
_COPIES = late_pattern(r"copy\b", re.I)
_TO_STDOUT = late_pattern(r"\bto\s+stdout\b", re.I)
_COMMENTS = late_pattern(r"(?:\s+|--[^\n]*(?:\n|$)|/\*.*?\*/)*", re.S)


class Failed(Exception):
    """A statement failed, and its error was printed."""


class Leave(Exception):
    """The user wants to leave."""


class Shell:
    def __init__(self, connect: Callable[[], Connection], output: Output, source: str = "") -> None:
        """``connect`` opens the database.  ``source``: the script's name."""
        self.connection = connect()
        self._output = output
        self._source = source
        self._thread = StatementThread()
        self._timing = self._feedback = False
        self._changed = False  # something is not committed
        self._last = ""
        self._autocommit = self.connection.autocommit

    # ---- running

    def run(self, piece: Piece) -> None:
        """Run a statement or a command; raises Failed after printing an error."""
        began = time.perf_counter()
        try:
            command = command_of(piece.text)
            if command is not None:
                self._run_command(command)
            else:
                self._execute(piece.text)
        except OwnerGone as error:
            self._print_error(piece, error)
            self.connection.rollback()
            self._changed = False
            raise Failed from None
        except _shown_errors() as error:
            if isinstance(error, BrokenPipeError):
                raise
            self._print_error(piece, error)
            raise Failed from error
        except KeyboardInterrupt:  # while rows were written
            sys.stdout.flush()
            clear_line()
            self._print_error(piece, StatementInterrupted("the statement was interrupted"))
            raise Failed from StatementInterrupted()
        if self._timing and command is None:
            print(f"{time.perf_counter() - began:.3f} s\n")

    def _wait_for(self, function: Callable[[], Any]) -> Any:
        return self._thread.wait_for(function, self.connection.interrupt, "running")

    def _execute(self, text: str) -> None:
        bare = text[_COMMENTS.match(text).end() :]  # type: ignore[union-attr]
        try:
            cursor: Cursor = self._wait_for(lambda: self._executed(text, bare))
            if cursor.description is not None:
                self._show(cursor)
            else:
                verb = bare.split(maxsplit=1)[0].lower()
                self._note(f"{_rows(cursor.rowcount)} {_DID[verb]}" if verb in _DID else "done", verb in _DID)
        finally:
            self._note_end(bare)

    def _executed(self, text: str, bare: str) -> Cursor:
        """The cursor of a statement; only COPY, as the one who types it wants, reads and writes files."""
        if not _COPIES.match(bare):
            return self.connection.execute(text)
        return self.connection.cursor().copy(bare, sys.stdout if _TO_STDOUT.search(bare) else None)

    def _note_end(self, bare: str) -> None:
        """Keep track of whether there are uncommitted changes."""
        if _END.match(bare):
            self._changed = False
        elif not _READS.match(bare) and self.connection.in_transaction:
            self._changed = True

    def _show(self, cursor: Cursor) -> None:
        names = [column[0] for column in cursor.description or ()]
        reader = partial(self._reader, cursor)
        try:
            count = self._output.write(QueryResult(names, cursor.types, self._pieces(cursor), reader))
        finally:
            cursor.close()
        self._note(f"{_rows(count)} found", True)

    def _pieces(self, cursor: Cursor) -> Iterator[list[Any]]:
        while piece := self._wait_for(lambda: cursor.fetchmany(PIECE)):
            yield piece

    def _reader(self, cursor: Cursor) -> pa.RecordBatchReader:
        reader = cursor.fetch_record_batch()

        def batches() -> Iterator[pa.RecordBatch]:
            while (batch := self._wait_for(lambda: next(reader, None))) is not None:
                yield batch

        return pa.RecordBatchReader.from_batches(reader.schema, batches())

    def _note(self, what: str, is_count: bool) -> None:
        """Show the outcome of a statement in the status line; print it if feedback is on."""
        self._last = what
        if self._feedback and is_count:
            print(what + "\n")

    def _print_error(self, piece: Piece, error: BaseException) -> None:
        sys.stdout.flush()
        for line in error_lines(piece, error, self._source, paint()):
            print(line, file=sys.stderr)
        sys.stderr.flush()
        self._last = "failed"

    # ---- commands

    def _run_command(self, command: Command) -> None:
        act: Callable[..., None] = getattr(self, f"_do_{command.name}")
        act(*command.arguments)

    def _do_exit(self) -> None:
        raise Leave

    def _do_help(self) -> None:
        print(HELP)

    def _do_autocommit(self, switch: str) -> None:
        on = switch.lower() == "on"
        self._wait_for(lambda: setattr(self.connection, "autocommit", on))
        self._changed = False

    def _do_timing(self, switch: str) -> None:
        self._timing = switch.lower() == "on"

    def _do_feedback(self, switch: str) -> None:
        self._feedback = switch.lower() == "on"

    def _do_output(self, kind: str, path: str) -> None:
        new = OUTPUTS[kind.lower()](Path(path.strip("'")) if path else None)
        self._output.close()
        self._output = new

    def _do_tables(self) -> None:
        self._execute("select full_name as name, kind from sys_relations order by name")

    def _do_describe(self, name: str) -> None:
        plain = name.strip('"') if name.startswith('"') else name.lower()
        is_view = plain in self.connection.views()
        table = self.connection.view(plain) if is_view else self.connection.table(plain)
        for result in described(table) if self._output.is_for_people else [described_whole(table)]:
            self._output.write(result)

    # ---- the beginning and the end

    @property
    def status(self) -> str:
        """The status line."""
        mode = "autocommit on" if self._is_autocommit() else "autocommit off"
        state = "not committed: commit or rollback" if self._changed else ""
        return "  ".join(part for part in (f" {self.connection.path.name}", mode, state, self._last) if part)

    def _is_autocommit(self) -> bool:
        """The last known state while the owner is gone with a transaction: the next statement says so."""
        with contextlib.suppress(OwnerGone):
            self._autocommit = self.connection.autocommit
        return self._autocommit

    def run_script(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            self.run(piece)

    def close(self) -> None:
        """Leave; uncommitted changes are rolled back, with a message."""
        self._output.close()
        self._thread.close()
        if self._changed:
            print("what was not committed is rolled back", file=sys.stderr)
        self.connection.close()


def _shown_errors() -> tuple[type[Exception], ...]:
    """What a statement or an output may fail with; Arrow's own errors come of those that have used it."""
    return (Error, OSError, pa.ArrowException) if "pyarrow" in sys.modules else (Error, OSError)


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


def connector(path: str, read_only: bool) -> Callable[[], Connection]:
    def connect() -> Connection:
        return gmdb.connect(path, autocommit=True, read_only=read_only)

    return connect
