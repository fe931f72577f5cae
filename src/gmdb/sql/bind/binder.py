"""Binder: from a parsed statement to the bound tree, with names resolved and types known.

A binder is for one statement and one signature of parameters.  It notes what the statement names and depends on, so
that a cache of the result knows when it is stale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from sqlglot import exp

from gmdb.errors import NoSuchTable, UnsupportedExpression
from gmdb.format.columns import Column as StoredColumn
from gmdb.format.columns import ColumnType
from gmdb.process.late_dataclasses import dataclass, replace
from gmdb.sql import tree
from gmdb.sql.bind.coercion import fold_relation, settled
from gmdb.sql.bind.names import SYSTEM_SCHEMAS, Names, is_a_sequence
from gmdb.sql.bind.scope import Named, Scope, references
from gmdb.sql.dialect import place
from gmdb.sql.syntax import Written, is_system_name
from gmdb.sql.tree import Call, Column, Expression, ParameterKey, Project, Reference, Relation
from gmdb.sql.types import numeric, within
from gmdb.tables.catalog.schema import TableDefinition
from gmdb.tables.catalog.view_definitions import ViewDefinition

if TYPE_CHECKING:
    from gmdb.database.connection import Connection
    from gmdb.sql.bind.targets import Target


@dataclass(frozen=True, slots=True)
class Lock:
    """FOR UPDATE of a table's rows.  ``wait``: True waits for rows that others hold, False fails (NOWAIT), and None
    leaves them out (SKIP LOCKED)."""

    table: tree.Table
    wait: bool | None = True


@dataclass(frozen=True, slots=True)
class Bound:
    """A query.  ``values`` has an expression for each column of its output: a reference to a column of ``relation``,
    or, if open types were asked for, a constant or a parameter that has no type yet.  Unless there are such,
    ``relation.columns`` are the output's, in its order."""

    relation: Relation
    names: tuple[str, ...]
    values: tuple[Expression, ...]
    locks: tuple[Lock, ...] = ()


@dataclass(frozen=True, slots=True)
class ChangeSource:
    """The rows that UPDATE or DELETE change.  ``relation`` has the columns of ``table``, its row id included, and those
    of the tables beside it; a row of ``table`` may be there several times then.  ``scope`` binds SET and RETURNING.
    ``shared``: the queries of WITH; what reads them must be the body of a ``tree.With`` of them."""

    relation: Relation
    table: tree.Table
    scope: Scope
    target: Target
    shared: tuple[tree.Shared, ...] = ()


class Catalog:
    """What a statement's names may mean outside of it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.names = Names(connection)
        self._functions: Any = None  # of PostgreSQL's catalog, once there is one

    def find(self, written: Written, in_view: bool, passed: set[str]) -> TableDefinition | ViewDefinition | None:
        """What a name means, if anything; ``passed`` gets the full names that came before."""
        return self.names.find(written, in_view, passed)

    def no_such_table(self, written: Written, node: exp.Expr, others: Sequence[str] = ()) -> Exception:
        return self.names.no_such_table(written, node, others)

    def current_schema(self, node: exp.Expr) -> str | None:
        """The schema in which new tables are."""
        del node
        return next(self.names.current_schemas(), None)

    def column_of(self, table: Written, node: exp.Expr) -> str:
        """The full name of a table that stands before a column, with its schema."""
        del node
        return self.names.full_names(table)[0] if table.schema not in SYSTEM_SCHEMAS else str(table)

    def postgres_function(self, name: str, node: exp.Expr) -> Callable[..., Any]:
        """What a function of PostgreSQL's catalog does."""
        from gmdb.sql.bind.catalog_functions import CatalogFunctions

        del node
        if self._functions is None:
            self._functions = CatalogFunctions(self._connection, self.names)
        found: Callable[..., Any] = self._functions.function(name)
        return found

    def sequence_function(self, name: str, node: exp.Expr) -> Callable[..., Any]:
        """What a function of sequences does."""
        from gmdb.sql.statements.sequences import sequence_function

        del node
        return sequence_function(self._connection, name)

    def is_view(self, name: str) -> bool:
        """Whether a name is that of a system view."""
        return is_system_name(name)

    def listing(
        self, name: str, arguments: Sequence[Any], options: Mapping[str, Any], node: exp.Expr
    ) -> Sequence[StoredColumn]:
        """The columns of a system view, or of a table function of the inspector."""
        from gmdb.sql.statements.table_functions import listing_columns, require_listing

        if not self.is_view(name):
            require_listing(name, node)
            return listing_columns(self._connection, name, arguments, options)
        try:
            return listing_columns(self._connection, name)
        except NoSuchTable:
            raise self.names.no_such_table(Written(name), node) from None


class PartsOfWith(Protocol):
    """The parts of a statement that stand in its WITH and are run once, whoever reads what they return."""

    def are_of(self, node: exp.Expr) -> bool:
        """Whether this query of WITH is to be a part."""

    def take(self, node: exp.Expr, name: str, scope: Scope, before: tuple[tree.Shared, ...]) -> Bound | None:
        """Add a part; returns what can be read of it.  ``before``: the queries of WITH in front of it."""


class Binder:
    """What is known of a whole statement while it is bound."""

    def __init__(self, catalog: Catalog, parameters: Mapping[ParameterKey, ColumnType | None]) -> None:
        self.catalog = catalog
        self.parameters = parameters
        self.tables: dict[str, TableDefinition] = {}  # all that the statement names, by full names
        self.views: dict[str, ViewDefinition] = {}
        self.passed: set[str] = set()  # full names that would come before these, if there were such tables or views
        self.schema: tuple[str | None, ...] = ()  # the current one, if the statement asks for it
        self.meanings: list[tuple[exp.Expr, Written, TableDefinition | ViewDefinition]] = []  # of names not in views
        self.uses: dict[str, tuple[str, ...]] = {}  # what it names itself, not within views: with all columns
        self._inside: dict[str, tuple[str, ...]] | None = None  # a view: the tables that it knows, with their columns
        self.used_parameters: set[ParameterKey] = set()
        self.uses_time = False
        self.parts: PartsOfWith | None = None  # what the statement does beside its own work, if it may
        self.merge_action: Expression | None = None  # what merge_action() is, where it may stand
        self._declared: set[Column] = set()

    def named(self, node: exp.Expr, written: Written, others: Sequence[str] = ()) -> TableDefinition | ViewDefinition:
        """The table or view that a node names, noted as one of the statement's.

        Raises NoSuchTable with the nearest name, of tables and views or of ``others``.
        """
        in_view = self._inside is not None
        found = self.catalog.find(written, in_view, self.passed)
        if found is None:
            raise self.catalog.no_such_table(written, node, others)
        if isinstance(found, TableDefinition) and found.sequence:
            raise is_a_sequence(found, node)
        if isinstance(found, ViewDefinition) and not found.number:
            return found  # it is always there
        self._note(found.name, found.columns)
        if not in_view:
            self.meanings.append((node, written, found))
        if isinstance(found, ViewDefinition):
            self.views[found.name] = found
        else:
            self.tables[found.name] = found
        return found

    def current_schema(self, node: exp.Expr) -> str | None:
        """The schema in which new tables are, noted as one on which the statement depends."""
        self.schema = (self.catalog.current_schema(node),)
        return self.schema[0]

    def means_the_same(self) -> bool:
        """Whether names that were bound would still mean what they do, as far as other names decide about that."""
        names = self.catalog.names
        if self.schema and self.schema[0] != next(names.current_schemas(), None):
            return False
        return not any(map(names.is_there, self.passed))

    def listing(self, node: exp.Expr, name: str, arguments: Sequence[Any], options: dict[str, Any]) -> list[Column]:
        """The columns of a system view, or of a function of the inspector."""
        stored = self.catalog.listing(name, arguments, options, node)
        if self.catalog.is_view(name):
            self._note(name, stored)
        return [Column(one.name, within(one.type)) for one in stored]

    def _note(self, name: str, columns: Sequence[StoredColumn]) -> None:
        if self._inside is None:
            self.uses[name] = tuple(column.name for column in columns)

    @contextmanager
    def inside(self, view: ViewDefinition) -> Iterator[None]:
        """What is bound within is the view's text."""
        before, self._inside = self._inside, dict(view.uses)
        try:
            yield
        finally:
            self._inside = before

    def known(self, table: str, columns: Sequence[Named]) -> Sequence[Named]:
        """The columns of a table that there are where the statement is bound now."""
        names = None if self._inside is None else self._inside.get(table)
        if names is None:
            return columns
        by_name = {one.name: one for one in columns}
        return [by_name[name] for name in names if name in by_name]

    def query(self, node: exp.Expr, parent: Scope | None = None, open_types: bool = False) -> Bound:
        """A query within a statement; ``parent`` is what it stands in."""
        from gmdb.sql.bind import queries

        bound = queries.query(self, node, Scope(parent))
        if bound.locks:
            raise UnsupportedExpression("FOR UPDATE cannot stand in a query within another", *place(node))
        return bound if open_types else self.closed(bound)

    def statement(self, node: exp.Expr) -> Bound:
        """A whole query, of the types that are shown, its constants computed."""
        from gmdb.sql.bind import queries

        bound = queries.query(self, node, Scope())
        values = [settled(value) for value in bound.values]
        relation = bound.relation
        types = [self.shown_type(value) for value in values]
        if tuple(values) != references(relation) or types != [column.type for column in relation.columns]:
            columns = [Column(name, type_) for name, type_ in zip(bound.names, types, strict=True)]
            relation = projected(relation, list(zip(columns, values, strict=True)))
        relation = fold_relation(relation)
        return replace(bound, relation=relation, values=references(relation))

    def select_list(self, nodes: Sequence[exp.Expr], scope: Scope) -> list[tuple[str, Expression]]:
        """The values of a list such as RETURNING's, with their names; ``*`` is all columns of the scope."""
        from gmdb.sql.bind import queries

        return [(name, settled(value)) for name, value, _ in queries.select_list(self, nodes, scope)]

    def with_clause(self, node: exp.Expr | None, parent: Scope | None = None) -> tuple[Scope, tuple[tree.Shared, ...]]:
        """WITH: a scope in which its queries can be read, and these, for the ``tree.With`` around what reads them."""
        from gmdb.sql.bind import queries

        return queries.with_clause(self, node, Scope(parent))

    def change_source(
        self,
        target: exp.Table,
        others: Sequence[exp.Expr],
        where_: exp.Expr | None,
        with_: exp.Expr | None = None,
        around: Scope | None = None,
    ) -> ChangeSource:
        """The rows that UPDATE or DELETE change, found by the condition over the target and the tables beside it.

        ``around``: where the statement stands, if it is part of another one.
        """
        from gmdb.sql.bind import queries

        return queries.change_source(self, target, others, where_, with_, around or Scope())

    # ---- columns

    def closed(self, bound: Bound) -> Bound:
        """A query whose open columns are texts."""
        return self.with_values(bound, [settled(value) for value in bound.values])

    def with_values(self, bound: Bound, values: Sequence[Expression]) -> Bound:
        """A query whose columns have these values, over its own ones."""
        if tuple(values) == references(bound.relation):
            return bound
        outputs = [self.output(name, value) for name, value in zip(bound.names, values, strict=True)]
        relation = projected(bound.relation, outputs)
        return replace(bound, relation=relation, values=references(relation))

    def output(self, name: str, value: Expression) -> tree.Output:
        """A column for a value."""
        column = Column(name, value.type)
        if self.is_declared(value):
            self._declared.add(column)
        return column, value

    def declare(self, columns: Sequence[Column]) -> None:
        """Note that the digits of columns were written down, and are shown."""
        self._declared.update(one for one in columns if one.type.name == "DECIMAL")

    def is_declared(self, value: Expression) -> bool:
        if isinstance(value, Reference):
            return value.column in self._declared
        return isinstance(value, Call) and value.operation.name == "cast"

    def shown_type(self, value: Expression) -> ColumnType:
        """The type that a result's column has: a computed DECIMAL has as many digits as there can be."""
        is_computed = value.type.name == "DECIMAL" and not self.is_declared(value)
        return numeric(value.type.scale) if is_computed else value.type


def projected(relation: Relation, outputs: Sequence[tree.Output]) -> Relation:
    """Other columns of a relation; those of a projection are put in its place."""
    if isinstance(relation, tree.With):
        return replace(relation, body=projected(relation.body, outputs))
    if not isinstance(relation, Project):
        return Project(relation, tuple(outputs))
    below = dict(relation.outputs)
    if any(not isinstance(value, Reference | tree.Constant | tree.Parameter) for _, value in outputs):
        return Project(relation, tuple(outputs))
    columns = [value.column for _, value in outputs if isinstance(value, Reference)]
    if len(set(columns)) < len(columns):
        return Project(relation, tuple(outputs))  # what stands there twice is computed once
    merged = [
        (column, below.get(value.column, value) if isinstance(value, Reference) else value) for column, value in outputs
    ]
    return Project(relation.source, tuple(merged))
