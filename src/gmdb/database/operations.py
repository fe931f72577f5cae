"""Operations of a connection: each is declared once, by a decorator on the method that does it.

``@operation()`` marks a method that works on the database.  From the declaration come three things:

  here          the method waits its turn and runs to its end with signals held (transaction/interrupts.py); it is
                refused once the connection is closed and, with ``writes=True``, where nothing may be written
  the server    the operation that clients may ask for by its name; no others exist (server/operations.py)
  the client    the method that asks for it, with the same signature and documentation (server/remote.py)

``@scope()`` marks a context manager of the same kind: what happens between its two ends is the program's.
``@composed`` marks a method that consists of operations.  It runs where the program does, and a client inherits it.

Arguments and results travel by their types (server/wire.py).  ``again`` says what becomes of an operation whose owner
went before it answered (server/link.py).  Not here: what an operation does (database/connection.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from enum import Enum, auto
from types import FunctionType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from gmdb.process.late_dataclasses import dataclass
from gmdb.transaction.interrupts import operation as composed

if TYPE_CHECKING:
    from gmdb.transaction.session import Session

__all__ = ["Again", "Operation", "composed", "declared_in", "members_of", "operation", "scope"]

Method = TypeVar("Method", bound=Callable[..., Any])
C = TypeVar("C")
P = ParamSpec("P")
T = TypeVar("T")


class Again(Enum):
    """Whether an operation that was asked for once, and may have been done, can be asked for once more."""

    NEVER = auto()  # it may last
    ALWAYS = auto()  # it reads, or changes no more than the session, or comes to the same when it is done twice
    UNCOMMITTED = auto()  # it belongs to the transaction: unless that commits with it, nothing of it lasts
    COMMITS = auto()  # it ends the transaction: what that had changed may last
    ROLLS_BACK = auto()  # it ends the transaction, as the end of the session does


@dataclass(frozen=True)
class Operation:
    """What is declared.  ``run``: the method as it is called, checks and turns included."""

    name: str
    run: Callable[..., Any]
    writes: bool
    again: Again
    is_scope: bool = False


def operation(
    *, writes: bool = False, name: str | None = None, again: Again | None = None
) -> Callable[[Method], Method]:
    """Declare a method of a connection an operation.  ``name``: if it is not the method's own.

    One that does not write can be asked for again, unless ``again`` says otherwise; one that writes cannot.
    """

    def declare(method: Method) -> Method:
        run = composed(method, _require_writable if writes else _require_open)
        kind = again or (Again.NEVER if writes else Again.ALWAYS)
        run.declared = Operation(name or method.__name__, run, writes, kind)  # type: ignore[attr-defined]
        return run

    return declare


def _require_open(session: Session) -> None:
    session.require_open()


def _require_writable(session: Session) -> None:
    session.require_open()
    session.require_writable()


def scope() -> Callable[
    [Callable[Concatenate[C, P], Iterator[T]]], Callable[Concatenate[C, P], AbstractContextManager[T]]
]:
    """Declare a generator method a context manager that clients may enter, too.

    It yields an instant to read by (``tables/arrow/scan.py``: ``Reading``), or nothing.
    """

    def declare(
        method: Callable[Concatenate[C, P], Iterator[T]],
    ) -> Callable[Concatenate[C, P], AbstractContextManager[T]]:
        enter = contextmanager(method)
        enter.declared = Operation(method.__name__, enter, False, Again.ALWAYS, is_scope=True)  # type: ignore[attr-defined]
        return enter

    return declare


def declared_in(kind: type) -> dict[str, Operation]:
    """The operations of a class by their names."""
    return {declared.name: declared for value in members_of(kind).values() for declared in declarations_of(value)}


def members_of(kind: type) -> dict[str, Any]:
    """What a class has, and what it has from those that it is made of."""
    return {name: value for one in reversed(kind.__mro__) for name, value in vars(one).items()}


def declarations_of(value: Any) -> list[Operation]:
    """The operation that a member of a class declares; of a property, those of its getter and setter."""
    functions = (value.fget, value.fset) if isinstance(value, property) else (value,)
    return [one.declared for one in functions if isinstance(one, FunctionType) and hasattr(one, "declared")]
