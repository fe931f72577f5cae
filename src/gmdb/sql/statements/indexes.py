"""CREATE INDEX: what is read of it, and the index that is asked for.

What PostgreSQL has and gmdb does not (other kinds, operator classes, collations, storage parameters) is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from gmdb.errors import InvalidSyntax, UnsupportedExpression
from gmdb.process.late_dataclasses import dataclass, replace
from gmdb.sql.dialect import GmdbSql, place
from gmdb.sql.index_programs import program_of
from gmdb.sql.syntax import Syntax, column_name, folded, reading
from gmdb.tables.access.indexes import Direction, NewIndex
from gmdb.tables.catalog.schema import TableDefinition


@dataclass(frozen=True)
class IndexRequest:
    """CREATE INDEX as it was written; ``new.name`` is empty if it has none."""

    table: exp.Expr
    new: NewIndex
    where: exp.Expr | None
    if_not_exists: bool
    concurrently: bool

    def of(self, table: TableDefinition) -> NewIndex:
        """The index of a table, as it is defined now."""
        if self.where is None:
            return self.new
        condition, program = program_of(self.where, table.own_name, table.columns)
        return replace(self.new, condition=condition, program=program)


def read_index(create: Syntax) -> IndexRequest:
    """``create``: the statement, of which the kind was taken."""
    if_not_exists, unique = create.flag("exists"), create.flag("unique")
    concurrently = create.flag("concurrently")
    with reading(create.need("this", "an index")) as index:
        named, table = index.take("this"), index.need("table", "a table")
        with reading(index.need("params", "columns")) as parts:
            using = parts.word("using", "BTREE", "HASH").lower() or "btree"
            keys = [_key(node) for node in parts.list("columns")]
            include, where = parts.list("include"), parts.take("where")
            nulls_distinct = parts.word("nulls", "DISTINCT", "NOT DISTINCT") != "NOT DISTINCT"
    if not nulls_distinct and not unique:
        raise InvalidSyntax("syntax error: NULLS NOT DISTINCT belongs to a unique index", *place(create.node))
    if if_not_exists and named is None:
        raise InvalidSyntax("syntax error: IF NOT EXISTS needs the name of the index", *place(create.node))
    directions = tuple(direction.value for _, direction in keys)
    if using != "btree" and any(directions):
        raise UnsupportedExpression("a hash index has no order: no ASC, DESC or NULLS", *place(create.node))
    if using != "btree" and include:
        raise UnsupportedExpression("a hash index includes no columns", *place(include[0]))
    name = "" if named is None else folded(named)
    columns = tuple(column for column, _ in keys)
    included = _included(include, columns)
    new = NewIndex(name, columns, unique, using, directions, included, nulls_distinct=nulls_distinct)
    return IndexRequest(table, new, None if where is None else _inner(where), if_not_exists, concurrently)


def _inner(where: exp.Expr) -> exp.Expr:
    with reading(where) as syntax:
        condition: exp.Expr = syntax.need("this", "a condition")
    return condition


def _key(node: exp.Expr) -> tuple[str, Direction]:
    """A column of the key, and its order."""
    direction = Direction.ASCENDING
    if isinstance(node, exp.Ordered):
        with reading(node) as ordered:
            inner = ordered.need("this", "a column")
            direction = Direction.of(ordered.flag("desc"), ordered.flag("nulls_first"))
        node = inner
    if not isinstance(node, exp.Column | exp.Identifier):
        raise InvalidSyntax(f"{node.sql(dialect=GmdbSql)} is not the name of a column", *place(node))
    return column_name(node), direction


def _included(nodes: Sequence[exp.Expr], key: Sequence[str]) -> tuple[str, ...]:
    """The columns that are only kept: those of the key are there anyhow."""
    return tuple(dict.fromkeys(name for name in map(column_name, nodes) if name not in key))
