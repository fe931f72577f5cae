"""CREATE INDEX: what is read of it, and the index that is asked for.

What PostgreSQL has and gmdb does not (other kinds, operator classes, collations, storage parameters) is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from gmdb.errors import InvalidSyntax, UnsupportedExpression
from gmdb.process.late_dataclasses import dataclass, replace
from gmdb.sql import tree
from gmdb.sql.bind.of_rows import bind_indexed, columns_of, indexed_type
from gmdb.sql.dialect import GmdbSql, parse_expression, place
from gmdb.sql.index_programs import program_of
from gmdb.sql.statements.stored_texts import written
from gmdb.sql.statements.table_parts import unqualified
from gmdb.sql.syntax import Syntax, column_name, folded, reading
from gmdb.sql.tree import Expression
from gmdb.tables.access.indexes import HIDDEN, Direction, NewIndex
from gmdb.tables.catalog.schema import TableDefinition

Kept = tuple[str, str, int, int]  # an expression that rows keep, as the catalog has it


@dataclass(frozen=True)
class IndexRequest:
    """CREATE INDEX as it was written; ``new.name`` is empty if it has none."""

    table: exp.Expr
    new: NewIndex
    where: exp.Expr | None
    if_not_exists: bool
    concurrently: bool
    expressions: Mapping[int, exp.Expr]  # which of the columns are none, but expressions

    def of(self, table: TableDefinition) -> tuple[NewIndex, list[Kept]]:
        """The index of a table, as it is defined now, and the expressions that rows do not have yet."""
        new, missing = self.new, list[Kept]()
        if self.where is not None:
            condition, program = program_of(self.where, table.own_name, table.columns)
            new = replace(new, condition=condition, program=program)
        if not self.expressions:
            return new, missing
        columns = list(new.columns)
        for n, node in self.expressions.items():
            text, bound = kept_as(table, node)
            if isinstance(bound, tree.Reference):  # (name), or name COLLATE "C"
                columns[n] = bound.column.name
                continue
            known = next((one for one in table.expressions if one[0] == text), None)
            if known is None and all(one[0] != text for one in missing):
                type_ = indexed_type(bound, node)
                missing.append((text, type_.name, type_.length, type_.scale))
            columns[n] = HIDDEN + text
        return replace(new, columns=tuple(columns)), missing


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
    columns = tuple(column_name(node) if _is_column(node) else "" for node, _ in keys)
    expressions = {n: node for n, (node, _) in enumerate(keys) if not _is_column(node)}
    included = _included(include, columns)
    new = NewIndex(name, columns, unique, using, directions, included, nulls_distinct=nulls_distinct)
    return IndexRequest(table, new, None if where is None else _inner(where), if_not_exists, concurrently, expressions)


def _inner(where: exp.Expr) -> exp.Expr:
    with reading(where) as syntax:
        condition: exp.Expr = syntax.need("this", "a condition")
    return condition


def kept_as(table: TableDefinition, node: exp.Expr) -> tuple[str, Expression]:
    """The text of an expression that an index is on: of equal ones, that which rows of the table have already."""
    node = unqualified(table.name, node, "an index")
    own = columns_of(table.columns)
    bound = bind_indexed(node, table.own_name, table.columns, own)
    if not tree.columns_of(bound):
        raise UnsupportedExpression("an index on what is the same in all rows", *place(node))
    for column in table.hidden:
        if column.generated is not None:
            other = bind_indexed(parse_expression(column.generated), table.own_name, table.columns, own)
            if other == bound:
                return column.generated, bound
    return written(node), bound


def _is_column(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column | exp.Identifier)


def _key(node: exp.Expr) -> tuple[exp.Expr, Direction]:
    """A column of the key, or an expression, and its order."""
    direction = Direction.ASCENDING
    if isinstance(node, exp.Ordered):
        with reading(node) as ordered:
            inner = ordered.need("this", "a column")
            direction = Direction.of(ordered.flag("desc"), ordered.flag("nulls_first"))
        node = inner
    if not _is_column(node) and not isinstance(node, exp.Paren | exp.Func | exp.Cast):
        message = f"syntax error: {node.sql(dialect=GmdbSql)} is neither a column nor a call of a function"
        raise InvalidSyntax(message, *place(node), "Write an expression in parentheses")
    return node.this if isinstance(node, exp.Paren) else node, direction


def _included(nodes: Sequence[exp.Expr], key: Sequence[str]) -> tuple[str, ...]:
    """The columns that are only kept: those of the key are there anyhow."""
    return tuple(dict.fromkeys(name for name in map(column_name, nodes) if name not in key))
