"""CREATE, DROP and ALTER VIEW: what a view is made of, and that it can be.

Not here: what reading a view means (bind/views.py), changing rows through one (bind/targets.py), what depends on what
(tables/catalog/view_definitions.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from gmdb.errors import DependentObjects, InvalidSyntax, NoSuchTable, SchemaError, UnsupportedExpression
from gmdb.format.columns import Column
from gmdb.process.late_dataclasses import replace
from gmdb.sql.bind.binder import Binder, Catalog
from gmdb.sql.bind.names import Names
from gmdb.sql.bind.targets import view_target
from gmdb.sql.bind.views import query_of
from gmdb.sql.dialect import INSTANT, GmdbSql, place
from gmdb.sql.syntax import Syntax, Written, name_alone, reading, table_name_alone
from gmdb.tables.catalog.names import PUBLIC, is_temporary
from gmdb.tables.catalog.schema import TableDefinition
from gmdb.tables.catalog.view_definitions import ViewDefinition

if TYPE_CHECKING:
    from gmdb.database.connection import Connection
    from gmdb.sql.prepared import Statement


def made(statement: Statement, name: str, names: Sequence[str]) -> ViewDefinition:
    """The view of a CREATE statement, whose query is bound for what it names, and noted to depend on that."""
    options, binder = statement.parsed.options, Binder(Catalog(statement.connection), {})
    if "query" not in options:
        raise InvalidSyntax("syntax error: CREATE VIEW needs AS and a query")
    view = ViewDefinition(name, options["query"], (), check_option=options.get("check_option", ""))
    query = query_of(view)
    bound = binder.statement(query)
    view = replace(view, query=_as_kept(view.query, query, binder))
    if bound.locks:
        raise UnsupportedExpression("FOR UPDATE cannot stand in a view", *place(query))
    statement.depend_on(binder)
    if len(names) > len(bound.names):
        raise SchemaError(f"view {name}: {len(names)} columns were named, but the query has {len(bound.names)}")
    called = [*names, *bound.names[len(names) :]]
    columns = tuple(Column(one, value.type) for one, value in zip(called, bound.values, strict=True))
    view = ViewDefinition(name, view.query, columns, tuple(binder.uses.items()), view.check_option)
    if view.check_option:
        view_target(Binder(Catalog(statement.connection), {}), view, statement.parsed.statement)  # type: ignore[arg-type]
    return view


def is_of_session(statement: Statement) -> bool:
    """Whether the query of a CREATE statement names something temporary, as which the view goes with it."""
    options, binder = statement.parsed.options, Binder(Catalog(statement.connection), {})
    if "query" not in options:
        return False
    binder.statement(query_of(ViewDefinition("", options["query"], ())))
    return any(is_temporary(found.schema) for _, _, found in binder.meanings)


def _as_kept(text: str, query: exp.Expr, binder: Binder) -> str:
    """A view's text that means the same wherever it is read: names that are not in ``public`` have a schema, and
    instants a zone."""
    places = {}
    for node, written, found in binder.meanings:
        if not written.schema and found.schema != PUBLIC:
            at = node.this.meta["start"]
            places[at] = at, exp.to_identifier(found.schema, quoted=True).sql() + "."
    for literal in query.find_all(exp.Literal):
        if INSTANT in literal.meta:
            places[literal.meta["start"]] = literal.meta["end"] + 1, f"'{literal.meta[INSTANT]}'"
    for at, (end, new) in sorted(places.items(), reverse=True):
        text = f"{text[:at]}{new}{text[end:]}"
    return text


def drop(connection: Connection, nodes: Sequence[exp.Expr], exists: bool, cascade: bool) -> None:
    """Drop views: of several, those first that use others."""
    pending = []
    for node in nodes:
        written = table_name_alone(node)
        view = Names(connection).view(written)
        if view is not None:
            pending.append(view.name)
        elif not exists or Names(connection).find(written) is not None:
            raise _no_such_view(connection, written)
    while pending:
        left, error = list[str](), None
        for name in pending:
            try:
                if name in connection.views():  # not gone with another one
                    connection.drop_view(name, cascade=cascade)
            except DependentObjects as refused:
                left.append(name)
                error = error or refused
        if error is not None and len(left) == len(pending):
            raise error
        pending = left


def alter(connection: Connection, syntax: Syntax) -> None:
    """ALTER VIEW, which can be renamed."""
    actions, target, exists = syntax.list("actions"), syntax.need("this", "a view"), syntax.flag("exists")
    name = table_name_alone(target)
    if len(actions) != 1 or not isinstance(actions[0], exp.AlterRename):
        shown = ", ".join(action.sql(dialect=GmdbSql) for action in actions)
        hint = "A view can be renamed, or replaced by CREATE OR REPLACE VIEW"
        raise UnsupportedExpression(f"alter view {name} {shown}", *place(syntax.node), hint)
    with reading(actions[0]) as part:
        new_name = name_alone(part.need("this", "a name"))
    names = Names(connection)
    view = names.view(name)
    if view is None:
        if exists and names.find(name) is None:
            return
        raise _no_such_view(connection, name)
    connection.rename_view(view.name, names.for_new(Written(new_name, view.schema), syntax.node))


def _no_such_view(connection: Connection, name: Written) -> SchemaError:
    if isinstance(Names(connection).find(name), TableDefinition):
        return SchemaError(f"{name} is a table, not a view")
    return NoSuchTable(f"there is no view {name}; the views are: {', '.join(connection.views()) or 'none yet'}")
