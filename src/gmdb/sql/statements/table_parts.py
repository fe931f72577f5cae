"""Columns and constraints of a table, as CREATE TABLE and ALTER TABLE write them.

What gmdb does not keep (deferred keys and checks, virtual columns) is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from gmdb.errors import InvalidSyntax, SchemaError, UnsupportedExpression
from gmdb.format.columns import Column, ColumnType
from gmdb.process.late_dataclasses import dataclass, field, replace
from gmdb.sql.bind.expressions import named_type
from gmdb.sql.bind.names import Names
from gmdb.sql.bind.of_rows import columns_of
from gmdb.sql.bind.scope import Scope
from gmdb.sql.dialect import GmdbSql, parse_expression, place
from gmdb.sql.statements.assignment import bind_check, bind_default
from gmdb.sql.statements.generated import bind_generated
from gmdb.sql.statements.references import read_foreign_key
from gmdb.sql.statements.sequences import SERIALS, free_name, identity_numbers, sequence_of_default
from gmdb.sql.statements.stored_texts import written
from gmdb.sql.syntax import Syntax, Written, column_names, folded, reading
from gmdb.tables.catalog.schema import CHECK, PRIMARY_KEY, UNIQUE, Constraint
from gmdb.tables.catalog.sequences import default_of

if TYPE_CHECKING:
    from gmdb.database.connection import Connection

_AT_ONCE = ("NOT DEFERRABLE", "INITIALLY IMMEDIATE")  # what constraints are anyhow


@dataclass(slots=True)
class ColumnParts:
    """A column, and the constraints that were written with it; ``default`` as it was written."""

    column: Column
    constraints: list[Constraint] = field(default_factory=list)
    default: exp.Expr | None = None
    serial: str = ""  # the type of the sequence that it brings
    generated: exp.Expr | None = None  # as it was written


@dataclass(frozen=True, slots=True)
class Owner:
    """The table whose columns and constraints are read: its full name, also if it is not there yet."""

    connection: Connection
    full_name: str

    @property
    def schema(self) -> str:
        return self.connection._parts_of(self.full_name)[0]

    @property
    def name(self) -> str:
        """Within its schema."""
        return self.connection._parts_of(self.full_name)[1]

    @property
    def names(self) -> Names:
        return Names(self.connection)

    def referred(self, written: Written, node: exp.Expr) -> str:
        """The full name of the table that a foreign key names, which may be this one."""
        for name in self.names.full_names(written):
            if name == self.full_name or self.connection._relation(name) is not None:
                return name
        raise self.names.no_such_table(written, node)


def read_column(table: Owner, syntax: Syntax) -> ColumnParts:
    """A column's definition, of which ``exists`` is the caller's to take."""
    name, kind = folded(syntax.need("this", "a column's name")), syntax.take("kind")
    if kind is None:
        raise InvalidSyntax(f"column {name} has no type", *place(syntax.node))
    serial = SERIALS.get(kind.sql().upper(), "") if isinstance(kind, exp.DataType) else ""
    type_ = ColumnType(serial) if serial else whole_type(name, kind)
    parts, nullable = ColumnParts(Column(name, type_), serial=serial), set[bool | None]()
    if serial:
        nullable.add(False)
    for node in syntax.list("constraints"):
        with reading(node) as constraint:
            named = constraint.take("this")
            nullable.add(_add(table, parts, constraint.need("kind", "a constraint"), named and folded(named)))
    if nullable >= {True, False}:
        raise InvalidSyntax(f"column {name} is both NULL and NOT NULL", *place(syntax.node))
    parts.column = replace(parts.column, nullable=False not in nullable)
    if parts.generated is not None and (parts.default is not None or parts.column.identity or serial):
        what = f"column {name} is generated, and has a default or numbers as well"
        raise InvalidSyntax(f"syntax error: {what}", *place(parts.generated))
    return parts


def _add(table: Owner, parts: ColumnParts, node: exp.Expr, name: str | None) -> bool | None:
    """Add what is written behind a column; whether it may be NULL then, if that says so."""
    column = parts.column
    if isinstance(node, exp.NotNullColumnConstraint):
        with reading(node) as syntax:
            return syntax.flag("allow_null")
    if isinstance(node, exp.DefaultColumnConstraint):
        _require_once(parts.default, "DEFAULT", node)
        with reading(node) as syntax:
            parts.default = syntax.need("this", "a value")
        if parts.serial:
            raise InvalidSyntax("syntax error: a serial column has a default already", *place(node))
        parts.column = replace(column, **default_changes(parts.default, column, table.names))
        return None
    if isinstance(node, exp.ComputedColumnConstraint):
        _require_once(parts.generated, "GENERATED", node)
        with reading(node) as syntax:
            parts.generated = unqualified(table.name, syntax.need("this", "an expression"), "a generated column")
        parts.column = replace(column, generated=written(parts.generated))
        return None
    is_identity = isinstance(node, exp.GeneratedAsIdentityColumnConstraint)
    if is_identity and not isinstance(node.args.get("expression"), exp.Var | None):
        message = "a generated column is STORED; there are no virtual ones"
        raise UnsupportedExpression(message, *place(node), "Write GENERATED ALWAYS AS (...) STORED")
    if is_identity:
        _require_once(column.identity, "GENERATED AS IDENTITY", node)
        if parts.serial:
            raise InvalidSyntax("syntax error: a serial column is no identity", *place(node))
        parts.column = replace(column, **_identity(node, column))
        return False
    parts.constraints.append(read_constraint(table, node, name or "", column.name))
    return False if parts.constraints[-1].kind == PRIMARY_KEY else None


def _require_once(before: Any, what: str, node: exp.Expr) -> None:
    if before is not None:
        raise InvalidSyntax(f"syntax error: a column has {what} twice", *place(node))


def default_changes(node: exp.Expr, column: Column, names: Names) -> dict[str, Any]:
    """What a default makes of a column: an expression, or the numbers of a sequence."""
    sequence = sequence_of_default(node, names)
    if sequence:
        return {"default": default_of(sequence), "sequence": sequence}
    bind_default(node, column)
    return {"default": written(node), "sequence": ""}


def _identity(node: exp.Expr, column: Column) -> dict[str, Any]:
    with reading(node) as syntax:
        always = syntax.flag("this")
        numbers = identity_numbers(syntax, column.type)
    return {"identity": "always" if always else "by default", "numbers": numbers}


def read_constraint(table: Owner, node: exp.Expr, name: str = "", column: str | None = None) -> Constraint:
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
            nulls = syntax.word("nulls", "DISTINCT", "NOT DISTINCT")
            return Constraint(UNIQUE, _key(syntax, own), name=name, nulls_distinct=nulls != "NOT DISTINCT")
        if isinstance(node, exp.CheckColumnConstraint):
            condition = unqualified(table.name, syntax.need("this", "a condition"))
            return Constraint(CHECK, text=written(condition), name=name)
        if isinstance(node, exp.Reference | exp.ForeignKey):
            return read_foreign_key(syntax, own, name, table.referred)
        raise UnsupportedExpression(f"gmdb has no constraint {node.sql(dialect=GmdbSql)}", *place(node))


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


def unqualified(table: str, node: exp.Expr, what: str = "a check") -> exp.Expr:
    """An expression whose columns do not say whose they are, since tables get other names."""
    node = node.copy()
    for column in node.find_all(exp.Column):
        owner = column.args.get("table")
        if owner is not None and folded(owner) != table:
            raise UnsupportedExpression(f"{what} of table {table} can only ask for its own columns", *place(column))
        if column.args.get("db") is not None:
            raise UnsupportedExpression(f"no schema stands before a column of {what}", *place(column))
        column.set("table", None)
    return node


def as_kept(constraint: Constraint, table: str, columns: Sequence[Column]) -> Constraint:
    """A constraint as the catalog keeps it.  Refuses a check that is not a condition of the table's rows."""
    if constraint.kind != CHECK:
        return constraint
    node = parse_expression(constraint.text)
    bind_check(node, Scope.of_table(table, columns_of(columns)))
    return replace(constraint, text=written(node))


def with_sequence(table: Owner, parts: ColumnParts, names: set[str]) -> Column:
    """A column with the sequence that it brings if it is SERIAL."""
    if not parts.serial:
        return parts.column
    name = free_name(table.connection, table.schema, table.name, parts.column.name, names)
    table.connection.create_sequence(name, type=parts.serial)
    names.add(name)
    return replace(parts.column, default=default_of(name), sequence=name)


def whole_type(name: str, node: exp.Expr) -> ColumnType:
    """A type for a column, which says how many digits a DECIMAL has."""
    type_, has_digits = named_type(node)
    if not has_digits:
        message = f"column {name}: how many digits, and how many behind the point?"
        raise UnsupportedExpression(message, *place(node), "Write numeric(p, s)")
    return type_


def read_columns(table: Owner, nodes: Sequence[exp.Expr]) -> tuple[list[Column], list[Constraint], set[str]]:
    """The columns and constraints of a new table, and the sequences that columns bring."""
    columns: list[Column] = []
    constraints: list[Constraint] = []
    names: set[str] = set()
    generated: dict[int, exp.Expr] = {}
    for node in nodes:
        if isinstance(node, exp.ColumnDef):
            with reading(node) as syntax:
                parts = read_column(table, syntax)
            columns.append(with_sequence(table, parts, names))
            constraints += parts.constraints
            if parts.generated is not None:
                generated[len(columns) - 1] = parts.generated
        elif isinstance(node, exp.Identifier):
            raise InvalidSyntax(f"column {node.name} has no type", *place(node))
        else:
            constraints.append(read_constraint(table, node))
    keys = [c for c in constraints if c.kind == PRIMARY_KEY]
    if len(keys) > 1:
        raise SchemaError(f"table {table.full_name} has two primary keys")
    if keys:
        columns = [replace(c, nullable=c.nullable and c.name not in keys[0].columns) for c in columns]
    for n, node in generated.items():
        bind_generated(node, columns[n], table.name, columns, columns_of(columns))
        columns[n] = replace(columns[n], generated=written(node))
    return columns, [as_kept(constraint, table.full_name, columns) for constraint in constraints], names
