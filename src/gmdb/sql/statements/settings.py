"""Settings of a session: SET, SHOW and RESET, of those that there are.

Each is declared once: how it is shown, and what setting it does.  Others are refused, for what is set is to have an
effect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gmdb.errors import InvalidSyntax, UnsupportedExpression
from gmdb.process.late_dataclasses import dataclass
from gmdb.process.late_patterns import late_pattern
from gmdb.tables.catalog.names import PUBLIC

if TYPE_CHECKING:
    from gmdb.database.connection import Connection

_SECONDS = {"": 0.001, "ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0}  # a number alone counts milliseconds
_TIME = late_pattern(r"(\d+)\s*(ms|s|min|h)?")
_WITHOUT_END = 1e9  # seconds, for a lock timeout of 0
_PLAIN_NAME = late_pattern(r"[a-z_][a-z0-9_$]*")
_SCHEMA = r'"(?:[^"]|"")*"|\'(?:[^\']|\'\')*\'|[a-zA-Z_][\w$]*'
_SCHEMAS = late_pattern(rf"(?:{_SCHEMA})(?:\s*,\s*(?:{_SCHEMA}))*")
_ONE_SCHEMA = late_pattern(_SCHEMA)
_ON, _OFF = ("on", "true", "yes", "1"), ("off", "false", "no", "0")


@dataclass(frozen=True)
class Setting:
    """``usual``: what RESET and DEFAULT set; without ``set`` it can only be shown."""

    show: Callable[[Connection], str]
    set: Callable[[Connection, str], None] | None = None
    usual: str | None = None


def setting(name: str) -> Setting:
    found = _SETTINGS.get(name.lower())
    if found is None:
        raise UnsupportedExpression(f"there is no setting {name}", hint=f"There are {', '.join(_SETTINGS)}")
    return found


def show(connection: Connection, name: str) -> str:
    return setting(name).show(connection)


def assign(connection: Connection, name: str, value: str) -> None:
    """SET, to a value or DEFAULT."""
    found = setting(name)
    if value.lower() == "default":
        reset(connection, name)
        return
    if found.set is None:
        raise UnsupportedExpression(f"{name} cannot be set")
    found.set(connection, value)


def reset(connection: Connection, name: str) -> None:
    found = setting(name)
    if found.set is None or found.usual is None:
        raise UnsupportedExpression(f"{name} has no default to go back to")
    found.set(connection, found.usual)


def is_on(name: str, value: str) -> bool:
    if value.lower() not in (*_ON, *_OFF):
        raise InvalidSyntax(f"{name} is on or off, not {value}")
    return value.lower() in _ON


def _switch(on: bool) -> str:
    return "on" if on else "off"


def _only(name: str, *values: str) -> Callable[[Connection, str], None]:
    """For what is always so: setting it to that does nothing."""

    def require(_connection: Connection, value: str) -> None:
        if value.lower() not in values:
            raise UnsupportedExpression(f"{name} is always {values[0]}, and cannot be {value}")

    return require


def _set_lock_timeout(connection: Connection, value: str) -> None:
    match = _TIME.fullmatch(value.lower())
    if match is None:
        raise InvalidSyntax(f"lock_timeout is a number of milliseconds, or a time such as '2s', not {value}")
    connection.session.lock_timeout = int(match[1]) * _SECONDS[match[2] or ""] or _WITHOUT_END


def _lock_timeout(connection: Connection) -> str:
    seconds = connection.session.lock_timeout
    return "0" if seconds == _WITHOUT_END else f"{round(seconds * 1000)}ms"


def _search_path(connection: Connection) -> str:
    return ", ".join(map(_identifier, connection.session.search_path)) or '""'


def _identifier(name: str) -> str:
    """A name as SQL writes it, in quotes where it needs them."""
    return name if _PLAIN_NAME.fullmatch(name) else f'"{name.replace(chr(34), chr(34) * 2)}"'


def _set_search_path(connection: Connection, value: str) -> None:
    """Schemas, which need not be there; ``"$user"`` is none."""
    if not _SCHEMAS.fullmatch(value):
        raise InvalidSyntax(f"search_path is a list of schemas, separated by commas, not {value}")
    names = map(_schema, _ONE_SCHEMA.findall(value))
    connection._look_in([name for name in dict.fromkeys(names) if name not in ("", "$user")])


def _schema(word: str) -> str:
    """A schema's name as it stands in a list."""
    quote = word[0]
    return word[1:-1].replace(quote * 2, quote) if quote in "\"'" else word.lower()


def _server_version(_connection: Connection) -> str:
    from importlib.metadata import version  # few ask for it, and it takes long to import

    return version("gmdb")


def _autocommit(connection: Connection) -> str:
    return _switch(connection.autocommit)


def _isolation(connection: Connection) -> str:
    return connection.isolation


def _set_autocommit(connection: Connection, value: str) -> None:
    connection.autocommit = is_on("autocommit", value)


def _set_time_zone(connection: Connection, value: str) -> None:
    from gmdb.sql.zones import zone_setting

    statements: Any = connection._statements
    statements.time_zone = zone_setting("UTC" if value.lower() == "local" else value)


def _time_zone(connection: Connection) -> str:
    statements: Any = connection._statements
    return str(statements.time_zone)


_SETTINGS = {
    "autocommit": Setting(_autocommit, _set_autocommit),
    "transaction_isolation": Setting(_isolation, lambda c, value: c.set_transaction(isolation=value.lower())),
    "transaction_read_only": Setting(
        lambda c: _switch(c.session.is_read_only),
        lambda c, value: c.set_transaction(read_only=is_on("transaction_read_only", value)),
    ),
    "default_transaction_isolation": Setting(
        lambda c: c.session.usual_isolation,
        lambda c, value: c.set_all_transactions(isolation=value.lower()),
        "read committed",
    ),
    "default_transaction_read_only": Setting(
        lambda c: _switch(c.session.is_usually_read_only),
        lambda c, value: c.set_all_transactions(read_only=is_on("default_transaction_read_only", value)),
        "off",
    ),
    "lock_timeout": Setting(_lock_timeout, _set_lock_timeout, "5s"),
    "timezone": Setting(_time_zone, _set_time_zone, "UTC"),
    "search_path": Setting(_search_path, _set_search_path, PUBLIC),
    "client_encoding": Setting(lambda _: "UTF8", _only("client_encoding", "utf8", "utf-8"), "utf8"),
    "server_encoding": Setting(lambda _: "UTF8"),
    "server_version": Setting(_server_version),
    "standard_conforming_strings": Setting(lambda _: "on", _only("standard_conforming_strings", "on"), "on"),
}
