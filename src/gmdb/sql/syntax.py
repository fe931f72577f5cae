"""The parsed tree, of which nothing is dropped: every part that a statement sets is taken, or refused with its place.

A binder never sees sqlglot's nodes but as ``Syntax``.  ``take`` hands out a part and notes that; ``reading`` is the one
way to open a node, and refuses it when it is closed with parts that were not taken.  So a clause that no code knows is
an error by itself, whatever sqlglot reads.

Not here: what parts mean (bind/).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from sqlglot import exp

from gmdb.errors import InvalidSyntax, UnsupportedExpression
from gmdb.process.late_patterns import late_pattern
from gmdb.sql.dialect import GmdbSql, place
from gmdb.tables.catalog.schema import SYSTEM_PREFIX

_NOTES = frozenset({"comments"})  # that mean nothing, wherever they stand


class Syntax:
    """One node, open for reading."""

    __slots__ = ("_taken", "node")

    def __init__(self, node: exp.Expr) -> None:
        self.node = node  # for its class and its place; its parts are taken by name
        self._taken: set[str] = set()

    def take(self, name: str) -> Any:
        """A part: a node, text or flag; None if it is not there."""
        self._taken.add(name)
        value = self.node.args.get(name)
        return None if value is False or value == [] else value

    def list(self, name: str) -> list[Any]:
        """The nodes of a part that is a list."""
        value = self.take(name)
        return [] if value is None else value if isinstance(value, list) else [value]

    def need(self, name: str, what: str) -> Any:
        """A part without which the statement means nothing."""
        value = self.take(name)
        if value is None:
            raise InvalidSyntax(f"syntax error: {what} is missing", *place(self.node))
        return value

    def flag(self, name: str) -> bool:
        return bool(self.take(name))

    def word(self, name: str, *known: str) -> str:
        """A part that is a word, in upper case, one of ``known``; empty if it is not there."""
        value = self.take(name)
        text = "" if value is None else (value.name if isinstance(value, exp.Expr) else str(value)).upper()
        if text and text not in known:
            raise UnsupportedExpression(f"{text} is not supported here", *place(self.node), _instead(known))
        return text

    def ignore(self, *names: str) -> None:
        """Take parts that say nothing beyond what others say: redundant notes of the parser's own."""
        self._taken.update(names)

    def rest(self) -> Sequence[str]:
        """The parts that are set, and that were not taken."""
        return [
            name
            for name, value in self.node.args.items()
            if name not in self._taken
            and name not in _NOTES
            and value is not None
            and value is not False
            and value != []
        ]

    def close(self) -> None:
        rest = self.rest()
        if rest:
            raise refused(self.node, rest[0])


@contextmanager
def reading(node: exp.Expr) -> Iterator[Syntax]:
    """Open a node; when the block ends without an error, every part of it has been taken or it is refused."""
    syntax = Syntax(node)
    yield syntax
    syntax.close()


def refused(node: exp.Expr, name: str) -> UnsupportedExpression:
    """The error for a part of a node that means nothing to gmdb."""
    value = node.args[name]
    first = value[0] if isinstance(value, list) else value
    written = first.sql(dialect=GmdbSql) if isinstance(first, exp.Expr) else ""
    clause = name.rstrip("_").replace("_", " ").upper()
    shown = f"{clause} ({written[:60]})" if written else clause
    where = place(first) if isinstance(first, exp.Expr) else place(node)
    return UnsupportedExpression(f"{shown} is not supported in {_kind(node)}", *where)


def _kind(node: exp.Expr) -> str:
    return type(node).__name__.upper()


def _instead(known: Sequence[str]) -> str:
    return f"There is {', '.join(known)}" if known else ""


def changes_rows(statement: exp.Expr) -> bool:
    """Whether the WITH of a statement changes rows."""
    with_ = statement.args.get("with_")
    return with_ is not None and any(isinstance(one.this, exp.DML) for one in with_.expressions)


# ---- Names as statements write them: what is not quoted is in lower case.  What they mean: bind/names.py.

INFORMATION_SCHEMA, PG_CATALOG = "information_schema", "pg_catalog"


class Written(NamedTuple):
    """A name as it was written; ``schema``: that stands before it, empty if there is none."""

    name: str
    schema: str = ""

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name


def is_system_name(name: str) -> bool:
    """Whether a name is that of a system table or view."""
    return name.startswith(SYSTEM_PREFIX)


def folded(identifier: Any) -> str:
    """A name as the catalog has it.  Raises InvalidSyntax for what is not a name."""
    if not isinstance(identifier, exp.Identifier):
        if not isinstance(identifier, exp.Expr):
            raise InvalidSyntax("syntax error: a name is missing")
        raise InvalidSyntax(f"syntax error: {identifier.sql()} is not a name", *place(identifier))
    with reading(identifier) as syntax:
        name, quoted = str(syntax.need("this", "a name")), syntax.flag("quoted")
    return name if quoted else name.lower()


def table_name(node: Any) -> Written:
    """The name of a table; what else there is of the node, an alias for instance, is the caller's to take."""
    if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
        raise UnsupportedExpression(f"{node.sql()} is not a table", *place(node))
    if node.args.get("catalog") is not None:
        raise UnsupportedExpression(f"a name has no database before it: {node.sql()}", *place(node))
    schema = node.args.get("db")
    return Written(folded(node.this), "" if schema is None else folded(schema))


def table_name_alone(node: Any) -> Written:
    """The name of a table, a view or an index, where nothing else may stand."""
    if not isinstance(node, exp.Table):
        return Written(column_name(node))
    name = table_name(node)
    with reading(node) as syntax:
        syntax.ignore("this", "db", "only")  # no table inherits from another
    return name


def name_alone(node: Any) -> str:
    """A name before which no schema may stand, of a constraint for instance."""
    name = table_name_alone(node)
    if name.schema:
        raise InvalidSyntax(f"syntax error: no schema stands before this name: {name}", *place(node))
    return name.name


_PART = r'(?:"(?:[^"]|"")+"|[^\W\d]\w*)'
QUALIFIED = rf"{_PART}(?:\s*\.\s*{_PART})?"  # a name that may have a schema before it, as a pattern
_PARTS = late_pattern(_PART)


def written_name(text: str) -> Written:
    """The name that a text is, which matches ``QUALIFIED``."""
    parts = [plain_name(part) for part in _PARTS.findall(text)]
    return Written(*reversed(parts))


def plain_name(text: str) -> str:
    """A part of a name, quoted or not."""
    return text[1:-1].replace('""', '"') if text.startswith('"') else text.lower()


def column_name(node: Any) -> str:
    """The name of a column, where nothing else may stand."""
    if not isinstance(node, exp.Column):
        return folded(node)
    with reading(node) as syntax:
        return folded(syntax.need("this", "a name"))


def column_names(nodes: Sequence[exp.Expr]) -> list[str]:
    """The columns of a key: no more than their names."""
    names = []
    for node in nodes:
        inner = node
        if isinstance(node, exp.Ordered):
            with reading(node) as syntax:
                inner = syntax.need("this", "a column")
        if not isinstance(inner, exp.Column | exp.Identifier):
            raise InvalidSyntax(f"{inner.sql(dialect=GmdbSql)} is not the name of a column", *place(inner))
        names.append(column_name(inner))
    return names
