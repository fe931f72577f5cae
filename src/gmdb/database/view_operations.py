"""What a connection tells of tables and views by their names, and what it does about views.

What a view's query means is SQL's to know, which also makes views (sql/statements/views.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gmdb.database.operations import Again, operation

if TYPE_CHECKING:
    from gmdb.database.engine import Database
    from gmdb.tables.catalog.view_definitions import ViewDefinition
    from gmdb.transaction.session import Session


class HasViews:
    """The part of a connection that is about views, and which names there are."""

    session: Session
    _database: Database

    @operation()
    def tables(self) -> list[str]:
        """The names of the tables that were created here."""
        return self._database.catalog.user_tables(self.session)

    @operation()
    def views(self) -> list[str]:
        """The names of the views."""
        return sorted(self._database.catalog.views_of(self.session))

    @operation()
    def view(self, name: str) -> ViewDefinition:
        """A view's definition."""
        return self._database.catalog.view(name, self.session)

    @operation(writes=True, again=Again.UNCOMMITTED)
    def _create_view(self, view: ViewDefinition, replace: bool = False) -> None:
        """Add a view, or, with ``replace``, give one of that name another query."""
        with self._database.define(self.session) as change:
            change.create_view(view, replace)

    @operation(writes=True, again=Again.UNCOMMITTED)
    def drop_view(self, name: str, *, cascade: bool = False) -> None:
        """Remove a view.  ``cascade``: and the views that use it."""
        with self._database.define(self.session) as change:
            change.drop_view(name, cascade)

    @operation(writes=True, again=Again.UNCOMMITTED)
    def rename_view(self, name: str, new_name: str) -> None:
        """Give a view another name."""
        with self._database.define(self.session) as change:
            change.rename_view(name, new_name)
