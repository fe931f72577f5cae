"""Columns and constraints, as CREATE TABLE and ALTER TABLE write them.

What gmdb does not keep (foreign keys, deferred constraints, identities that do not count from 1) is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from gmdb.catalog.schema import CHECK, PRIMARY_KEY, UNIQUE, Constraint, TableDefinition
from gmdb.errors import InvalidSyntax, NoSuchTable, UnsupportedExpression
from gmdb.format.columns import Column
from gmdb.sql.bind.expressions import named_type
from gmdb.sql.bind.scope import Scope
from gmdb.sql.changes.assignment import bind_check, bind_default, columns_of
from gmdb.sql.dialect import GmdbSql, parse_expression, place
from gmdb.sql.names import column_names, folded, name_alone
from gmdb.sql.prepared import no_such_table
from gmdb.sql.syntax import Syntax, reading

if TYPE_CHECKING:
    from gmdb.connection import Connection

_AT_ONCE = ("NOT DEFERRABLE", "INITIALLY IMMEDIATE")  # what constraints are anyhow
_IDENTITY = ("start", "increment", "minvalue")  # which are all 1


@dataclass(slots=True)
class ColumnParts:
    """A column, and the constraints that were written with it; ``default`` as it was written."""

    column: Column
    constraints: list[Constraint] = field(default_factory=list)
    default: exp.Expr | None = None


def existing(connection: Connection, node: exp.Expr) -> TableDefinition:
    """The table of a name that stands alone."""
    name = name_alone(node)
    try:
        return connection.table(name)
    except NoSuchTable:
        raise no_such_table(connection, name, node) from None


def written(node: exp.Expr) -> str:
    """An expression as SQL writes it, for the catalog to keep."""
    return node.sql(dialect=GmdbSql)


def read_column(table: str, syntax: Syntax) -> ColumnParts:
    """A column's definition, of which ``exists`` is the caller's to take."""
    name, kind = folded(syntax.need("this", "a column's name")), syntax.take("kind")
    if kind is None:
        raise InvalidSyntax(f"column {name} has no type", *place(syntax.node))
    type_, has_digits = named_type(kind)
    if not has_digits:
        said = f"column {name}: how many digits, and how many behind the point?"
        raise UnsupportedExpression(said, *place(kind), "Write numeric(p, s)")
    parts, nullable = ColumnParts(Column(name, type_)), set()
    for node in syntax.list("constraints"):
        with reading(node) as constraint:
            named = constraint.take("this")
            nullable.add(_add(table, parts, constraint.need("kind", "a constraint"), named and folded(named)))
    if nullable >= {True, False}:
        raise InvalidSyntax(f"column {name} is both NULL and NOT NULL", *place(syntax.node))
    parts.column = replace(parts.column, nullable=False not in nullable)
    return parts


def _add(table: str, parts: ColumnParts, node: exp.Expr, name: str | None) -> bool | None:
    """Add what is written behind a column; whether it may be NULL then, if that says so."""
    column = parts.column
    if isinstance(node, exp.NotNullColumnConstraint):
        with reading(node) as syntax:
            return syntax.flag("allow_null")
    if isinstance(node, exp.DefaultColumnConstraint):
        _require_once(parts.default, "DEFAULT", node)
        with reading(node) as syntax:
            parts.default = syntax.need("this", "a value")
        bind_default(parts.default, column)
        parts.column = replace(column, default=written(parts.default))
        return None
    if isinstance(node, exp.GeneratedAsIdentityColumnConstraint):
        _require_once(column.identity, "GENERATED AS IDENTITY", node)
        parts.column = replace(column, identity=_identity(node))
        return False
    parts.constraints.append(read_constraint(table, node, name or "", column.name))
    return False if parts.constraints[-1].kind == PRIMARY_KEY else None


def _require_once(before: Any, what: str, node: exp.Expr) -> None:
    if before is not None:
        raise InvalidSyntax(f"syntax error: a column has {what} twice", *place(node))


def _identity(node: exp.Expr) -> str:
    with reading(node) as syntax:
        always = syntax.flag("this")
        for name in _IDENTITY:
            value = syntax.take(name)
            if value is not None and value.sql() != "1":
                said = f"an identity begins at 1 and goes up by one: {name} cannot be {value.sql()}"
                raise UnsupportedExpression(said, *place(value))
    return "always" if always else "by default"


def read_constraint(table: str, node: exp.Expr, name: str = "", column: str | None = None) -> Constraint:
    """A constraint of a table, or of the column with which it was written."""
    if isinstance(node, exp.Constraint):
        with reading(node) as syntax:
            name = folded(syntax.need("this", "a name"))
            (first, *rest) = syntax.list("expressions")
        if rest:
            raise UnsupportedExpression(f"{rest[0].sql()} behind a constraint", *place(rest[0]))
        return read_constraint(table, first, name)
    own = () if column is None else (column,)
    with reading(node) as syntax:
        if isinstance(node, exp.PrimaryKey | exp.PrimaryKeyColumnConstraint):
            return Constraint(PRIMARY_KEY, _key(syntax, own), name=name)
        if isinstance(node, exp.UniqueColumnConstraint):
            return Constraint(UNIQUE, _key(syntax, own), name=name)
        if isinstance(node, exp.CheckColumnConstraint):
            condition = _unqualified(table, syntax.need("this", "a condition"))
            return Constraint(CHECK, text=written(condition), name=name)
        raise _refused(node)


def _key(syntax: Syntax, own: tuple[str, ...]) -> tuple[str, ...]:
    """The columns of a key, if nothing is to be different with it."""
    with reading(syntax.need("include", "a key")):
        pass  # nothing may be set in it
    for option in syntax.list("options"):
        text = " ".join(str(option).upper().split())
        if text not in _AT_ONCE:
            raise UnsupportedExpression(f"{text} is not supported: keys are unique at any time", *place(syntax.node))
    if isinstance(syntax.node, exp.PrimaryKeyColumnConstraint):
        return own
    listed = syntax.list("expressions" if isinstance(syntax.node, exp.PrimaryKey) else "this")
    if isinstance(syntax.node, exp.UniqueColumnConstraint) and listed:
        with reading(listed[0]) as schema:
            listed = schema.list("expressions")
    if not listed and not own:
        raise InvalidSyntax("syntax error: a key needs columns", *place(syntax.node))
    if own and listed:
        raise InvalidSyntax("syntax error: a key behind a column is one of that column alone", *place(syntax.node))
    return tuple(column_names(listed)) or own


def _unqualified(table: str, node: exp.Expr) -> exp.Expr:
    """A check whose columns do not say whose they are, since tables get other names."""
    node = node.copy()
    for column in node.find_all(exp.Column):
        owner = column.args.get("table")
        if owner is not None and folded(owner) != table:
            raise UnsupportedExpression(f"a check of table {table} can only ask for its own columns", *place(column))
        column.set("table", None)
    return node


def require_check(constraint: Constraint, table: str, columns: Sequence[Column]) -> None:
    """Refuse a check that is no condition of the table's rows."""
    bind_check(parse_expression(constraint.text), Scope.of_table(table, columns_of(columns)))


def renamed(text: str, old: str, new: str) -> str:
    """A check, after a column has got another name."""
    node = parse_expression(text)
    for column in list(node.find_all(exp.Column)):
        if folded(column.this) == old:
            column.set("this", exp.to_identifier(new, quoted=True))
    return written(node)


def _refused(node: exp.Expr) -> UnsupportedExpression:
    if isinstance(node, exp.Reference | exp.ForeignKey):
        said = "foreign keys are not enforced by gmdb, and so not accepted; leave REFERENCES out"
    else:
        said = f"gmdb has no constraint {node.sql(dialect=GmdbSql)}"
    return UnsupportedExpression(said, *place(node))
