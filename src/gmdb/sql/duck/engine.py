"""DuckDB within this process: one instance, its limits, and a connection a statement.

The instance keeps nothing: tables are streams of a statement, and only the macros of macros.py are in its catalog.
It reaches no files, no network and no variables of the program.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gmdb.errors import InterfaceError
from gmdb.sql.duck.macros import MACROS

if TYPE_CHECKING:
    import duckdb

MEMORY_SHARE = 0.4  # of the machine's memory; beyond it, sorts and joins go to temporary files


@dataclass(frozen=True)
class Settings:
    """What DuckDB may use.  ``memory_bytes``: of the machine's memory.  ``threads``: beside those that ask."""

    memory_bytes: int
    threads: int
    temp_directory: str

    @classmethod
    def default(cls) -> Settings:
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        directory = tempfile.mkdtemp(prefix="gmdb-sql-")  # the user's alone: it may get a part of any table
        atexit.register(_remove, directory, os.getpid())
        return cls(int(pages * size * MEMORY_SHARE), len(os.sched_getaffinity(0)), directory)


def _remove(directory: str, pid: int) -> None:
    if os.getpid() == pid:  # a forked child's end is not its parent's
        shutil.rmtree(directory, ignore_errors=True)


_guard = threading.Lock()
_instance: duckdb.DuckDBPyConnection | None = None
_settings: Settings | None = None
_abandoned: list[duckdb.DuckDBPyConnection] = []  # a parent's instances: their threads are not in this process


def configure(settings: Settings) -> None:
    """Say what DuckDB may use; before the first statement that needs it."""
    global _settings
    with _guard:
        if _instance is not None:
            raise InterfaceError("configure comes too late: a query has run already")
        _settings = settings


def cursor() -> duckdb.DuckDBPyConnection:
    """A connection for one statement; whoever asks closes it."""
    global _instance
    with _guard:
        if _instance is None:
            _instance = _start(_settings or Settings.default())
        return _instance.cursor()


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


def _after_fork() -> None:
    global _instance, _guard
    if _instance is not None:
        _abandoned.append(_instance)
    _instance, _guard = None, threading.Lock()


def _stop() -> None:
    global _instance
    with _guard:
        if _instance is not None:
            _instance.close()
            _instance = None


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_stop)
