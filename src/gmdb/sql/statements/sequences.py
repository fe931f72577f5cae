"""CREATE, ALTER and DROP SEQUENCE, SERIAL columns, and the functions nextval, currval, lastval and setval."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from gmdb.errors import InvalidSyntax, NoSuchSequence, SchemaError, TableExists
from gmdb.format.columns import ColumnType
from gmdb.process.late_patterns import late_pattern
from gmdb.sql.bind.names import Names
from gmdb.sql.dialect import place
from gmdb.sql.syntax import Syntax, Written
from gmdb.tables.catalog.counters import Counting, identity_plain
from gmdb.tables.catalog.names import full_name
from gmdb.tables.catalog.schema import INTEGERS

if TYPE_CHECKING:
    from gmdb.database.connection import Connection

_TOKEN = late_pattern(r'(--[^\n]*|/\*(?s:.*?)\*/)|"((?:[^"]|"")+)"|([-+]?\s*\d+)|([^\W\d]\w*)|(\.)|(\S)')
_TYPES = {
    **dict.fromkeys(("smallint", "int2"), "SMALLINT"),
    **dict.fromkeys(("int", "integer", "int4"), "INT"),
    **dict.fromkeys(("bigint", "int8"), "BIGINT"),
}
_OPTIONS = ("as", "increment", "minvalue", "maxvalue", "no", "start", "restart", "cache", "cycle", "owned")
SERIALS = {"SERIAL": "INT", "BIGSERIAL": "BIGINT", "SMALLSERIAL": "SMALLINT"}


class _Words:
    """What stands behind the name of a sequence, word by word."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []  # what it is, and how it reads
        for comment, quoted, number, word, dot, other in _TOKEN.findall(text):
            if comment:
                continue
            if other:
                raise InvalidSyntax(f"syntax error near {other!r} in the options of a sequence")
            kind = "name" if quoted else "number" if number else "word" if word else "dot"
            self._tokens.append((kind, quoted.replace('""', '"') or number or word or dot))
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._tokens)

    def take(self, *words: str) -> str:
        """The next word if it is one of these, in small letters; else nothing is taken."""
        if self and self._tokens[self._at][0] == "word" and self._tokens[self._at][1].lower() in words:
            self._at += 1
            return self._tokens[self._at - 1][1].lower()
        return ""

    def need(self, what: str, *kinds: str) -> str:
        if not self or self._tokens[self._at][0] not in kinds:
            near = f", not {self._tokens[self._at][1]!r}" if self else ""
            raise InvalidSyntax(f"syntax error: {what} must stand in the options of the sequence{near}")
        self._at += 1
        return self._tokens[self._at - 1][1]

    def number(self) -> int:
        return int(self.need("a number", "number").replace(" ", ""))

    def names(self, least: int, most: int) -> list[str]:
        """Names with dots between them, so many at least and at most."""
        names = [self.name()]
        while self and self._tokens[self._at][0] == "dot":
            self._at += 1
            names.append(self.name())
        if not least <= len(names) <= most:
            raise InvalidSyntax(f"syntax error: {'.'.join(names)} in the options of a sequence")
        return names

    def name(self) -> str:
        is_quoted = bool(self) and self._tokens[self._at][0] == "name"
        name = self.need("a name", "name", "word")
        return name if is_quoted else name.lower()

    def refuse(self, word: str = "") -> InvalidSyntax:
        """The error for a word that was taken, or for the next one."""
        return InvalidSyntax(f"syntax error near {word or self._tokens[self._at][1]!r} in the options of a sequence")


def _options(words: _Words, is_new: bool) -> dict[str, Any]:
    """The options as ``Connection.create_sequence`` and ``alter_sequence`` take them."""
    options: dict[str, Any] = {}
    for name, value in _read(words, is_new):
        if name in options:
            raise InvalidSyntax(f"syntax error: a sequence has its {name} twice")
        options[name] = value
    return options


def _read(words: _Words, is_new: bool) -> Iterator[tuple[str, Any]]:
    while words:
        word = words.take(*_OPTIONS)
        if word == "as":
            type_ = words.name()
            if type_ not in _TYPES:
                raise SchemaError(f"a sequence is smallint, integer or bigint, not {type_}")
            yield "type", _TYPES[type_]
        elif word == "increment":
            words.take("by")
            yield "increment", words.number()
        elif word in ("minvalue", "maxvalue"):
            yield {"minvalue": "low", "maxvalue": "high"}[word], words.number()
        elif word == "no":
            what = words.take("minvalue", "maxvalue", "cycle")
            if not what:
                raise InvalidSyntax("syntax error: NO MINVALUE, NO MAXVALUE or NO CYCLE")
            yield ("cycle", False) if what == "cycle" else ({"minvalue": "low", "maxvalue": "high"}[what], None)
        elif word == "start":
            words.take("with")
            yield "start", words.number()
        elif word == "restart" and not is_new:
            yield "restart", words.number() if words.take("with") or _at_number(words) else True
        elif word == "cache":
            cache = words.number()
            if cache < 1:
                raise SchemaError(f"a sequence sets one number aside at least, not {cache}")
            yield "cache", cache
        elif word == "cycle":
            yield "cycle", True
        elif word == "owned":
            if not words.take("by"):
                raise InvalidSyntax("syntax error: OWNED needs BY")
            yield "owner", _owner(words)
        else:
            raise words.refuse(word)


def _at_number(words: _Words) -> bool:
    return bool(words) and words._tokens[words._at][0] == "number"


def _owner(words: _Words) -> tuple[str, ...]:
    """A column as it was written, with its table and perhaps a schema before it; none: it belongs to none."""
    if words.take("none"):
        return ()
    return tuple(words.names(2, 3))


def _with_owner(connection: Connection, options: dict[str, Any], node: exp.Expr) -> dict[str, Any]:
    """Options with the full name of the table that the sequence goes with."""
    if not options.get("owner"):
        return options
    *table, column = options["owner"]
    definition = Names(connection).table(Written(*reversed(table)), node)
    definition.column(column)
    return {**options, "owner": (definition.name, column)}


def create_sequence(connection: Connection, exists: str, written: Written, rest: str, temporary: bool) -> None:
    """CREATE SEQUENCE, of which the options are ``rest``."""
    nowhere = exp.Identifier()
    options = _with_owner(connection, _options(_Words(rest), True), nowhere)
    try:
        with connection.all_or_nothing():
            name = Names(connection).for_new(written, nowhere, temporary)
            connection.create_sequence(name, **options)
    except TableExists:
        if not exists:
            raise


def alter_sequence(connection: Connection, exists: str, written: Written, rest: str) -> None:
    """ALTER SEQUENCE, of which what is to change is ``rest``."""
    words, names = _Words(rest), Names(connection)
    if exists and names.find_sequence(written) is None:
        return
    name = names.sequence(written)
    if words.take("rename"):
        if not words.take("to"):
            raise InvalidSyntax("syntax error: RENAME needs TO")
        new_name = words.name()
        if words:
            raise words.refuse()
        connection.rename_sequence(name, full_name(connection._parts_of(name)[0], new_name))
        return
    if not words:
        raise InvalidSyntax("syntax error: ALTER SEQUENCE needs an option")
    options = _with_owner(connection, _options(words, False), exp.Identifier())
    connection.alter_sequence(name, **options)


# ---- columns that get the numbers of a sequence, or of a counter of their own

_NO_IDENTITY = {"type": "as", "owner": "owned by"}  # options of sequences that an identity cannot have


def identity_numbers(syntax: Syntax, type_: ColumnType) -> tuple[Any, ...]:
    """How an identity counts, as its column keeps it; none if it counts as usual."""
    node = syntax.take("expression")
    if node is None:
        return ()
    try:
        options = _options(_Words(node.name.removeprefix("IDENTITY")), True)
    except InvalidSyntax as error:
        raise InvalidSyntax(str(error), *place(node)) from None
    if not options:
        raise InvalidSyntax("syntax error: the options of an identity are empty", *place(node))
    for name in _NO_IDENTITY.keys() & options.keys():
        raise InvalidSyntax(f"syntax error: an identity has no option {_NO_IDENTITY[name]}", *place(node))
    counting = Counting.of(type_.name if type_.name in INTEGERS else "BIGINT", **options)
    return identity_plain(counting)


def sequence_of_default(node: exp.Expr, names: Names) -> str:
    """The full name of the sequence whose next number a default is; empty if it is something else."""
    while isinstance(node, exp.Paren):
        node = node.this
    if not isinstance(node, exp.Anonymous) or str(node.this).lower() != "nextval" or len(node.expressions) != 1:
        return ""
    (argument,) = node.expressions
    if isinstance(argument, exp.Cast) and argument.to.sql().lower() == "regclass":
        argument = argument.this
    return names.sequence(named(argument.name)) if isinstance(argument, exp.Literal) and argument.is_string else ""


def named(text: str) -> Written:
    """The name that stands in a text, as PostgreSQL reads ``'s'``, ``'"S"'`` and ``'schema.s'``."""
    try:
        words = _Words(text)
        names = words.names(1, 2)
    except InvalidSyntax:
        raise NoSuchSequence(f"{text} is not the name of a sequence") from None
    if words:
        raise NoSuchSequence(f"{text} is not the name of a sequence")
    return Written(*reversed(names))


def free_name(connection: Connection, schema: str, table: str, column: str, also: set[str]) -> str:
    """A full name for the sequence of a SERIAL column; ``table``: within its schema."""
    taken = {*connection.tables(), *connection.sequences(), *also}
    stem = f"{table}_{column}".encode()[:55].decode(errors="ignore")
    name, number = full_name(schema, f"{stem}_seq"), 0
    while name in taken:
        number += 1
        name = full_name(schema, f"{stem}_seq{number}")
    return name


# ---- functions


def sequence_function(connection: Connection, name: str) -> Callable[..., Any]:
    """What a function of sequences does, for a connection."""
    names = Names(connection)

    def known(text: str) -> str:
        return names.sequence(named(text))

    functions: dict[str, Callable[..., Any]] = {
        "nextval": lambda text: connection.nextval(known(text)),
        "currval": lambda text: connection.currval(known(text)),
        "lastval": connection.lastval,
        "setval": lambda text, value, is_called=True: connection.setval(known(text), value, is_called),
    }
    return functions[name]
