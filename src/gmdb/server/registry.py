"""The operations that clients can ask for, by their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from gmdb.server.session import Client
from gmdb.server.wire import Head

Answer = Head | tuple[Head, bytes] | None
Operation = TypeVar("Operation", bound=Callable[..., Answer])
OPERATIONS: dict[str, Callable[..., Answer]] = {}


def operation(function: Operation) -> Operation:
    """Let clients ask for the function by its name."""
    OPERATIONS[function.__name__] = function
    return function


def connection_of(client: Client) -> Any:
    """The session's connection, once it is known to be open."""
    client.session.require_open()
    return client.connection


@operation
def require_writable(client: Client) -> None:
    client.session.require_open()
    client.session.require_writable()
