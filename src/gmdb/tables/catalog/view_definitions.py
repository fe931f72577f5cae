"""Views: what one is, its rows in ``sys_views``, and how sessions make, change and drop them.

A view is its query's text, which SQL binds anew wherever the view is read.  What the text means stays as it was when
the view was made: ``uses`` has the columns that each table had then, and the text knows no others.

Invariants
 1. What a view uses is there, with these columns and their types: what would change that is refused, or drops the view.
 2. A session that makes a view shares the tables and views that it uses until the transaction ends, so that nobody
    drops them meanwhile; views and tables share one namespace.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any

from gmdb.errors import DefinitionChanged, DependentObjects, NoSuchTable, SchemaError
from gmdb.format.columns import Column
from gmdb.process.late_dataclasses import dataclass, replace
from gmdb.storage.documents import parse
from gmdb.tables.catalog.definition_documents import column_from_plain, column_to_plain
from gmdb.tables.catalog.names import PUBLIC, full_name, is_temporary, own_name
from gmdb.tables.catalog.schema import SYSTEM_PREFIX, SchemaDefinition, TableDefinition, require_name

if TYPE_CHECKING:
    from gmdb.tables.catalog.tables import Catalog
    from gmdb.transaction.session import Session

VIEWS = "sys_views"
CHECK_OPTIONS = ("", "local", "cascaded")
PART = 4000  # letters of a view's document in a row of sys_views, all of them ASCII
QUERY_MAX = 1_000_000  # bytes of a view's text


@dataclass(frozen=True)
class ViewDefinition:
    """A view.  ``uses``: the tables and views that its query names, each with the columns that it knows of them."""

    name: str  # with that of its schema before it, unless that is public
    query: str
    columns: tuple[Column, ...]
    uses: tuple[tuple[str, tuple[str, ...]], ...] = ()
    check_option: str = ""  # rows that are changed through the view must be rows of it: "local", "cascaded", "": no
    number: int = 0
    schema: str = PUBLIC

    @property
    def own_name(self) -> str:
        """Its name within its schema."""
        return own_name(self.schema, self.name)

    def in_schema(self, schema: str, name: str) -> ViewDefinition:
        """The view under a full name in a schema."""
        return replace(self, name=name, schema=schema)

    def column_names(self) -> list[str]:
        return [column.name for column in self.columns]


def view_rows(view: ViewDefinition) -> list[tuple[Any, ...]]:
    """A view as rows of ``sys_views``: a document, in as many parts as it takes."""
    columns = [column_to_plain(column) for column in view.columns]
    plain = {"query": view.query, "columns": columns, "uses": view.uses, "check_option": view.check_option}
    if view.schema != PUBLIC:
        plain["schema"] = view.schema
    text = json.dumps(plain, separators=(",", ":"))
    return [(view.number, view.own_name, n, text[at : at + PART]) for n, at in enumerate(range(0, len(text), PART))]


def views_of_rows(rows: Iterable[tuple[Any, ...]]) -> list[ViewDefinition]:
    """The views that rows of ``sys_views`` have."""
    parts: dict[tuple[int, str], dict[int, str]] = {}
    for number, name, part, text in rows:
        parts.setdefault((number, name), {})[part] = text
    return [_view(number, name, texts) for (number, name), texts in parts.items()]


def _view(number: int, name: str, texts: dict[int, str]) -> ViewDefinition:
    plain = parse("".join(texts[n] for n in range(len(texts))))
    require_name("view", name)
    columns = tuple(column_from_plain(one) for one in plain["columns"])
    uses = tuple((str(used), tuple(map(str, names))) for used, names in plain["uses"])
    query, check_option = plain["query"], plain["check_option"]
    if not isinstance(query, str) or check_option not in CHECK_OPTIONS:
        raise SchemaError(f"view {name} has no query, or a check option that there is not")
    schema = plain.get("schema", PUBLIC)
    if not isinstance(schema, str):
        raise SchemaError(f"view {name} is in a schema without a name")
    return ViewDefinition(full_name(schema, name), query, columns, uses, check_option, number, schema)


class ViewChanges:
    """A session's changes of views, each called within ``Session.defining``."""

    def __init__(self, catalog: Catalog, session: Session) -> None:
        self._catalog = catalog
        self._session = session
        self._system = catalog.system(session)

    def create(self, view: ViewDefinition) -> None:
        """Add a view whose name is taken already."""
        self._require_possible(view)
        self._hold_used(view)
        self._enter(replace(view, number=self._catalog.new_number()))

    def replace(self, view: ViewDefinition) -> None:
        """Give a view another query; its columns stay, and others may come behind them."""
        old = self.take(view.name)
        self._require_possible(view)
        if len(view.columns) < len(old.columns):
            raise SchemaError(f"view {view.name}: it cannot lose columns; drop it and create it anew")
        for before, now in zip(old.columns, view.columns, strict=False):
            if before.name != now.name:
                raise SchemaError(f"view {view.name}: its column {before.name} cannot become {now.name}")
            if before.type != now.type:
                raise SchemaError(f"view {view.name}, column {now.name}: it is {before.type} and cannot be {now.type}")
        self._hold_used(view)
        if view.name in self._everything_used(view):
            raise SchemaError(f"view {view.name} cannot be part of its own query")
        self._system.remove_view(old.number)
        self._enter(replace(view, number=old.number))

    def rename(self, name: str, new_name: str) -> None:
        """``new_name`` is taken already."""
        view = self.take(name)
        self.require_unused(view.name, f"view {view.name}")
        self._system.remove_view(view.number)
        schema, _ = self._catalog.parts_of(new_name, self._session)
        self._enter(replace(view, name=new_name, schema=schema))

    def drop(self, name: str, cascade: bool) -> None:
        view = self.take(name)
        self.release(view.name, f"view {view.name}", cascade)
        self._system.remove_view(view.number)
        self._session.change_definitions({view.number: None})

    def take(self, name: str) -> ViewDefinition:
        """Take a view alone; returns its definition, as it is then."""
        while True:
            view = self._catalog.view(name, self._session)
            self._session.take_alone(view.number, f"view {view.name}")
            self._session.see_newest()
            now = self._catalog.view(name, self._session)
            if now.number == view.number:
                return now

    # ---- what depends on what

    def using(self, name: str) -> list[ViewDefinition]:
        """The views whose queries name a table or view."""
        views = self._catalog.views_of(self._session).values()
        return sorted((one for one in views if name in dict(one.uses)), key=lambda one: one.name)

    def require_unused(self, name: str, what: str, advice: str = "drop first what uses it") -> None:
        """Refuse a change of a table or view if views use it."""
        users = self.using(name)
        if users:
            raise DependentObjects(f"{_used_by(what, users)}; {advice}")

    def release(self, name: str, what: str, cascade: bool) -> None:
        """Before a table or view goes: refuse that if views use it, or drop these."""
        if not cascade:
            self.require_unused(name, what, "drop first what uses it, or write CASCADE, which drops that too")
        for view in self.using(name):
            if view.name in self._catalog.views_of(self._session):  # not gone with another one
                self.drop(view.name, cascade=True)

    def require_unaffected(self, before: TableDefinition | None, now: TableDefinition) -> None:
        """Refuse a change of a table if a view uses a column that it has no more, or of another type."""
        if before is None or before.columns == now.columns[: len(before.columns)]:
            return
        types = {column.name: column.type for column in now.columns}
        gone = {column.name for column in before.columns if types.get(column.name) != column.type}
        for view in self.using(before.name) if gone else ():
            for name in dict(view.uses)[before.name]:
                if name in gone:
                    what = f"column {name} of table {before.name}"
                    raise DependentObjects(_used_by(what, [view]) + "; drop the view first")

    def _everything_used(self, view: ViewDefinition) -> set[str]:
        """The names of what a view uses, and of what that uses in turn."""
        views, pending, found = self._catalog.views_of(self._session), [view], set[str]()
        while pending:
            names = {name for name, _ in pending.pop().uses} - found
            found |= names
            pending += [views[name] for name in names if name in views]
        return found

    def _require_possible(self, view: ViewDefinition) -> None:
        require_name("view", view.own_name)
        if view.check_option not in CHECK_OPTIONS:
            raise SchemaError(f"view {view.name}: {view.check_option!r} is not a check option")
        if not 1 <= len(view.query.encode()) <= QUERY_MAX:
            raise SchemaError(f"view {view.name}: a query has 1 to {QUERY_MAX} bytes, not {len(view.query.encode())}")
        names = view.column_names()
        for name in names:
            require_name("column", name)
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise SchemaError(f"view {view.name} has two columns called {twice}; give one another name")

    def _hold_used(self, view: ViewDefinition) -> None:
        """Share what the view uses, and refuse it if that is not what its query was bound to."""
        for name, names in view.uses:
            if name.startswith(SYSTEM_PREFIX):
                continue  # it is always there
            found = self._found(name)
            if found is not None:
                self._session.share_table(found.number, name)
                self._session.see_newest()
            now = self._found(name)
            known = [] if now is None else [column.name for column in now.columns]
            if now is None or found is None or now.number != found.number or not set(names) <= set(known):
                raise DefinitionChanged(f"{name}, which view {view.name} uses, was changed meanwhile; try again")

    def _found(self, name: str) -> TableDefinition | ViewDefinition | None:
        views = self._catalog.views_of(self._session)
        return views.get(name) or self._catalog.tables_of(self._session).get(name)

    def _enter(self, view: ViewDefinition) -> None:
        self._system.enter_view(view)
        self._session.change_definitions({view.number: view})


def _used_by(what: str, views: list[ViewDefinition]) -> str:
    names = ", ".join(view.name for view in views)
    return f"{what} is used by {'view' if len(views) == 1 else 'views'} {names}"


def require_sound_views(
    views: Iterable[ViewDefinition], tables: Iterable[TableDefinition], schemas: Iterable[SchemaDefinition]
) -> None:
    """Refuse a catalog whose names are there twice, or whose views use each other in a circle."""
    by_name: dict[str, ViewDefinition] = {}
    taken = {table.name for table in tables}
    known = {PUBLIC, *(schema.name for schema in schemas)}
    for view in views:
        if view.schema not in known and not is_temporary(view.schema):
            raise SchemaError(f"view {view.name} is in schema {view.schema}, which there is not")
        if view.name in by_name or view.name in taken:
            raise SchemaError(f"there are two tables or views {view.name}")
        by_name[view.name] = view
    try:
        TopologicalSorter({name: [used for used, _ in view.uses] for name, view in by_name.items()}).prepare()
    except CycleError as error:
        raise SchemaError(f"views are parts of their own queries: {', '.join(error.args[1])}") from None


def no_table_but_a_view(name: str) -> NoSuchTable:
    return NoSuchTable(f"{name} is a view, not a table: SQL reads it, and changes rows through it")
