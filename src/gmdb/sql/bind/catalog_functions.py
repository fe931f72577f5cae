"""Functions of PostgreSQL's catalog: what a number or a name stands for, and definitions as SQL.

They ask the connection, and so are done row by row.  ``'t'::regclass`` is the number of a table; as a text, its name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from gmdb.errors import IllTyped, NoSuchTable, UnsupportedExpression
from gmdb.format.columns import ColumnType
from gmdb.sql import operations, postgres_catalog, tree
from gmdb.sql.bind.coercion import assign, convert, settled
from gmdb.sql.bind.expressions import bind
from gmdb.sql.dialect import place
from gmdb.sql.postgres_catalog import PostgresCatalog, Relation
from gmdb.sql.syntax import Syntax, Written
from gmdb.sql.tree import Expression
from gmdb.sql.types import BOOLEAN, INT, TEXT
from gmdb.tables.catalog.names import PUBLIC
from gmdb.tables.catalog.view_definitions import ViewDefinition

if TYPE_CHECKING:
    from gmdb.database.connection import Connection
    from gmdb.sql.bind.binder import Binder
    from gmdb.sql.bind.names import Names
    from gmdb.sql.bind.scope import Scope

Types = tuple[ColumnType, ...]
_CLASSES = {"pg_class": 1259, "pg_constraint": 2606, "pg_namespace": 2615}


class CatalogFunctions:
    """The functions for one statement; what they look up is kept while definitions are the same."""

    def __init__(self, connection: Connection, names: Names) -> None:
        self._connection, self._names = connection, names
        self._seen: Any = None
        self._catalog: PostgresCatalog

    @property
    def _known(self) -> PostgresCatalog:
        seen = self._connection._definitions_seen()
        if self._seen is None or any(one is not other for one, other in zip(seen, self._seen, strict=True)):
            self._seen, self._catalog = seen, PostgresCatalog(self._connection)
        return self._catalog

    def function(self, name: str) -> Callable[..., Any]:
        found: Callable[..., Any] = getattr(self, f"_{name}")
        return found

    def _find(self, text: str) -> int | None:
        from gmdb.sql.statements.sequences import named

        written = named(text)
        found = self._names.find(written)
        if found is not None and (not isinstance(found, ViewDefinition) or found.number):
            return found.number
        for full in self._names.full_names(written):
            for table, index in self._known.indexes():
                if full == (index.name if table.schema == PUBLIC else f"{table.schema}.{index.name}"):
                    return index.obj_id
        return None

    def _to_regclass(self, text: str) -> int | None:
        return self._find(text)

    def _regclass(self, text: str) -> int:
        if text.isdecimal():
            return int(text)
        found = self._find(text)
        if found is None:
            raise NoSuchTable(f"relation {text} does not exist")
        return found

    def _called(self, oid: int) -> str:
        """What a number is called, with its schema where it needs one."""
        relation: Relation | None = self._known.by_oid.get(oid)
        if relation is not None:
            schema, name = relation.schema, relation.own_name
            is_visible = self._pg_table_is_visible(oid)
        else:
            of_index = [(table, index) for table, index in self._known.indexes() if index.obj_id == oid]
            if not of_index:
                return str(oid)
            ((table, index),) = of_index
            schema, name = table.schema, index.name
            is_visible = schema in self._names.path()
        return postgres_catalog.called(name) if is_visible else postgres_catalog.qualified(schema, name)

    def _pg_table_is_visible(self, oid: int) -> bool | None:
        relation = self._known.by_oid.get(oid)
        return None if relation is None else self._names.find(Written(relation.own_name)) is relation

    def _format_type(self, oid: int | None, modifier: int | None) -> str | None:
        return postgres_catalog.format_type(oid, modifier)

    def _pg_get_indexdef(self, oid: int, *_: Any) -> str | None:
        known = self._known.indexes()
        return next((postgres_catalog.index_definition(t, i) for t, i in known if i.obj_id == oid), None)

    def _pg_get_constraintdef(self, oid: int, *_: Any) -> str | None:
        known = self._known
        return next((known.definition_of_constraint(one) for n, _, one in known.constraints() if n == oid), None)

    def _pg_get_viewdef(self, oid: int, *_: Any) -> str | None:
        view = self._known.by_oid.get(oid)
        return view.query if isinstance(view, ViewDefinition) else None

    def _pg_get_expr(self, text: str, *_: Any) -> str:
        return text

    def _obj_description(self, oid: int, kind: str = "pg_class") -> str | None:
        class_ = _CLASSES.get(kind)
        rows = self._known.descriptions()
        return next((text for n, one, column, text in rows if (n, one, column) == (oid, class_, 0)), None)

    def _col_description(self, oid: int, number: int) -> str | None:
        rows = self._known.descriptions()
        wanted = (oid, _CLASSES["pg_class"], number)
        return next((text for n, one, column, text in rows if (n, one, column) == wanted), None) if number else None


_FUNCTIONS: dict[str, tuple[ColumnType, tuple[Types, ...]]] = {
    "to_regclass": (INT, ((TEXT,),)),
    "pg_table_is_visible": (BOOLEAN, ((INT,),)),
    "format_type": (TEXT, ((INT, INT),)),
    "pg_get_indexdef": (TEXT, ((INT,),)),
    "pg_get_constraintdef": (TEXT, ((INT,), (INT, BOOLEAN))),
    "pg_get_viewdef": (TEXT, ((INT,), (INT, BOOLEAN))),
    "pg_get_expr": (TEXT, ((TEXT, INT), (TEXT, INT, BOOLEAN))),
    "obj_description": (TEXT, ((INT,), (INT, TEXT))),
    "col_description": (TEXT, ((INT, INT),)),
}


def _call(binder: Binder, name: str, gives: ColumnType, values: tuple[Expression, ...], node: exp.Expr) -> Expression:
    function = binder.catalog.postgres_function(name, node)
    takes = tuple(value.type for value in values)
    strict = name != "format_type"
    operation = operations.Operation(name, takes, gives, function, strict=strict, volatile=True, by_rows=True)
    return tree.Call(gives, operation, values)


def function_of_catalog(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    name = str(syntax.node.name).lower()
    gives, overloads = _FUNCTIONS[name]
    arguments = [bind(binder, one, scope) for one in syntax.list("expressions")]
    takes = next((one for one in overloads if len(one) == len(arguments)), None)
    if takes is None:
        raise IllTyped(f"{name} does not take {len(arguments)} arguments", *place(syntax.node))
    values = tuple(assign(one, type_, syntax.node) for one, type_ in zip(arguments, takes, strict=True))
    return _call(binder, name, gives, values, syntax.node)


def object_cast(binder: Binder, value: Expression, to: exp.Expr, node: exp.Expr) -> Expression:
    """``::regclass`` and ``::oid``."""
    kind = str(to.this.value if isinstance(to.this, exp.DType) else to.this).upper()
    value = settled(value)
    if kind == "OID":
        return convert(value, INT, node, False)
    if kind != "REGCLASS":
        raise UnsupportedExpression(f"there is no type {kind.lower()}", *place(node))
    if value.type.name == "VARCHAR":
        return _call(binder, "regclass", INT, (value,), node)
    return as_name(binder, convert(value, INT, node, False), node)


def as_name(binder: Binder, value: Expression, node: exp.Expr) -> Expression:
    """A regclass as a text."""
    return _call(binder, "called", TEXT, (value,), node)
