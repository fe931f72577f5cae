"""DuckDB within this process: one instance, its limits, and a connection a statement.

The instance keeps nothing: tables are streams of a statement, and only macros and operations that Python does are in
its catalog.  It reaches no files, no network and no variables of the program.

Invariants
 1. At the process's end every statement is ended, and then the instance: whatever the program still holds, none of
    DuckDB's objects is left that its bindings would report as leaked.
 2. A forked child touches nothing of its parent's instance or statements, and destroys nothing of it.
"""

from __future__ import annotations

import atexit
import os
import re
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from gmdb import errors
from gmdb.process.finalizers import Living
from gmdb.process.forked import keep_forever, silence_leak_reports
from gmdb.process.late_dataclasses import dataclass
from gmdb.sql.duck.values import Functions
from gmdb.sql.operations.macros import FAILURE, MACROS
from gmdb.sql.operations.registry import Operation, RowFunction

if TYPE_CHECKING:
    import duckdb


# ---- DuckDB's errors as gmdb's: by what went wrong, in gmdb's words.

_KIND = re.compile(r"(?:.*?: )?(\w[\w -]*?) Error: (.*)", re.DOTALL)
_OWN = re.compile(rf"convert string ['\"]{FAILURE}(\w+): (.*)['\"] to INT32", re.DOTALL)  # of gm_fail
_PYTHON = re.compile(r"executing the UDF: (?:[\w.]+\.)?(\w+): (.*)", re.DOTALL)
_OUT_OF_RANGE = re.compile(
    "out of range|overflow|can't be cast because|too large|to DECIMAL|negative|cast decimal value", re.IGNORECASE
)
_BY_KIND: dict[str, type[errors.DatabaseError]] = {
    "Conversion": errors.InvalidText,
    "Out of Range": errors.ValueOutOfRange,
    "Invalid Input": errors.ValueOutOfRange,
    "Out of Memory": errors.OperationalError,
    "IO": errors.OperationalError,
}
_FAULTS = ("INTERNAL", "FATAL")  # of DuckDB's own; others are mistakes in the query
_NO_FRAME = errors.UndefinedResult, "the offset of a frame must be neither negative nor NULL"
_BY_TEXT: tuple[tuple[str, tuple[type[errors.DatabaseError], str]], ...] = (
    ("Division by zero in expression", (errors.DivisionByZero, "division by zero")),
    (
        "More than one row returned by a subquery",
        (errors.SubqueryTooManyRows, "more than one row returned by a subquery used as an expression"),
    ),
    ("PERCENTILEs can only take", (errors.ValueOutOfRange, "a percentile is a number between 0 and 1")),
    ("LIMIT/OFFSET cannot be negative", (errors.ValueOutOfRange, "LIMIT and OFFSET cannot be negative")),
    ("PRECEDING expression cannot be", _NO_FRAME),
    ("FOLLOWING expression cannot be", _NO_FRAME),
)


def translated(error: BaseException) -> errors.DatabaseError:
    """gmdb's error for one that DuckDB raised, directly or through an Arrow stream."""
    text = str(error)
    if type(error).__name__ == "InterruptException" or "INTERRUPT Error" in text:
        return errors.StatementInterrupted("the statement was interrupted")
    own = _PYTHON.search(text) or _OWN.search(text)
    if own is not None:
        class_ = getattr(errors, own[1], None)
        if isinstance(class_, type) and issubclass(class_, errors.DatabaseError):
            return class_(own[2])
        return errors.InternalError(f"a function failed: {own[1]}: {own[2]}")
    for part, (class_, message) in _BY_TEXT:
        if part in text:
            return class_(message)
    match = _KIND.match(text)
    kind, message = (match[1], match[2]) if match is not None else ("", text)
    message = _plain(message)
    if kind == "Conversion" and _OUT_OF_RANGE.search(message):
        return errors.ValueOutOfRange(message)
    if kind in _BY_KIND:
        return _BY_KIND[kind](message)
    fault = errors.EngineFault if kind in _FAULTS else errors.InternalError
    return fault(f"DuckDB failed at the translated statement: {text.strip().splitlines()[0]}")


def _plain(message: str) -> str:
    """The first line, without DuckDB's advice on its own settings and its names for our columns."""
    line = message.strip().split("\n")[0]
    return re.split(r" You might want| Use TRY_CAST|\. Consider| when casting from source column", line)[0].rstrip(
        "!. "
    )


# ---- DuckDB within this process.

MEMORY_SHARE = 0.4  # of the machine's memory; beyond it, sorts and joins go to temporary files


@dataclass(frozen=True)
class Settings:
    """What DuckDB may use.  ``memory_bytes``: of the machine's memory.  ``threads``: beside those that call it."""

    memory_bytes: int
    threads: int
    temp_directory: str

    @classmethod
    def default(cls) -> Settings:
        import tempfile

        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        directory = tempfile.mkdtemp(prefix="gmdb-sql-")  # the user's alone: it may get a part of any table
        atexit.register(_remove, directory, os.getpid())
        return cls(int(pages * size * MEMORY_SHARE), len(os.sched_getaffinity(0)), directory)


def _remove(directory: str, pid: int) -> None:
    if os.getpid() == pid:  # a forked child's end is not its parent's
        import shutil

        shutil.rmtree(directory, ignore_errors=True)


class Statement(Protocol):
    """What is at work in DuckDB, or has rows that are not read yet."""

    def stop(self) -> bool:
        """End it for good, even while it is read; returns whether another thread uses it, and may hold a part of it."""

    def leave_to_parent(self) -> list[Any]:
        """In a forked child: end, without a call of DuckDB; returns the objects that are not to be destroyed."""


_guard = threading.Lock()
_instance: duckdb.DuckDBPyConnection | None = None
_functions: Functions | None = None  # of the instance
_settings: Settings | None = None
_at_work: Living[Statement] = Living()
_stopped = False


def configure(settings: Settings) -> None:
    """Set what DuckDB may use; before the first statement that needs it."""
    global _settings
    with _guard:
        if _instance is not None:
            raise errors.InterfaceError("configure comes too late: a query has run already")
        _settings = settings


def cursor(operations: Iterable[Operation | RowFunction] = ()) -> duckdb.DuckDBPyConnection:
    """A connection for one statement, which calls these operations in Python; the caller closes it."""
    global _instance, _functions
    with _guard:
        if _stopped:  # code that runs at the process's end may still call
            instance = _start(_settings or Settings.default())
            Functions(instance).require(operations)
            return instance
        if _instance is None:
            _instance = _start(_settings or Settings.default())
            _functions = Functions(_instance)
            atexit.unregister(_stop)  # a parent's
            atexit.register(_stop)  # now: it is to come before connections are closed, which is registered by now
        assert _functions is not None
        _functions.require(operations)
        return _instance.cursor()


def renew() -> None:
    """Let the next statement begin a new instance: after a fault of its own DuckDB refuses all that comes."""
    global _instance, _functions
    with _guard:
        instance, _instance, _functions = _instance, None, None
    if instance is not None:
        with suppress(failure()):
            instance.close()


def register(connection: duckdb.DuckDBPyConnection, alias: str, stream: Any, count: int | None) -> None:
    """Register a stream with a connection; with the number of its rows, if this version of DuckDB takes that."""
    counted = _counted_stream()
    if counted is None:
        connection.register(alias, stream)
    else:
        connection._register_arrow_source(alias, counted(stream, count))


@cache
def _counted_stream() -> Any:
    """A class for streams that tell how many rows they have, by which DuckDB chooses the order of joins.

    DuckDB's public interface has none; without it, joins of three tables take up to twice the time.
    """
    import duckdb

    try:
        from duckdb._sources import ArrowScanSource
    except ImportError:
        return None
    if not hasattr(duckdb.DuckDBPyConnection, "_register_arrow_source"):
        return None

    class CountedStream(ArrowScanSource):
        schema_is_stable = True

        def __init__(self, stream: Any, count: int | None) -> None:
            super().__init__(stream)
            self._count = count

        def rows(self) -> int | None:
            return self._count

        def __arrow_c_schema__(self) -> object:
            return self.obj.schema.__arrow_c_schema__()

        def stream(self, columns: Sequence[int] | None, filters: Sequence[object]) -> tuple[object, bool]:
            del filters  # none is accepted
            return self.obj.opened(columns), columns is not None

    return CountedStream


def failure() -> type[Exception]:
    """What DuckDB raises."""
    import duckdb

    return duckdb.Error


def _start(settings: Settings) -> duckdb.DuckDBPyConnection:
    import duckdb  # when it is needed: many programs find rows by their keys alone

    instance = duckdb.connect(
        ":memory:",
        config={
            "memory_limit": f"{settings.memory_bytes >> 20}MiB",
            "threads": settings.threads,
            "temp_directory": settings.temp_directory,
            "python_enable_replacements": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        },
    )
    for macro in MACROS:
        instance.execute(f"CREATE MACRO {macro}")
    instance.execute("SET enable_external_access = false")
    instance.execute("SET lock_configuration = true")
    return instance


def watch(statement: Statement) -> None:
    """End it at the process's end, if it has not ended by then."""
    _at_work.add(statement)


def has_stopped() -> bool:
    """Whether the process is ending."""
    return _stopped


def _after_fork() -> None:
    global _instance, _functions, _guard
    inherited = [thing for statement in list(_at_work) for thing in statement.leave_to_parent()]
    if _instance is not None:
        inherited.append(_instance)
    for thing in inherited:
        keep_forever(thing)
    if inherited:
        silence_leak_reports()
    _at_work.clear()
    _instance, _functions, _guard = None, None, threading.Lock()


def _stop() -> None:
    global _instance, _functions, _stopped
    _stopped = True
    if any([statement.stop() for statement in list(_at_work)]):
        silence_leak_reports()  # the interpreter freezes such a thread, with all that it holds
    with _guard:
        if _instance is not None:
            with suppress(failure()):  # a thread that nothing could stop
                _instance.close()
            _instance = _functions = None


os.register_at_fork(after_in_child=_after_fork)
