"""gmdb for SQLAlchemy: ``create_engine("gmdb:///shop.gmdb")``.

An installed gmdb is found by its entry point; where there is none, importing this package makes it known.
``insert`` is SQLAlchemy's, with ``on_conflict_do_nothing`` and ``on_conflict_do_update`` as PostgreSQL has them.
Alembic, where it is installed, migrates gmdb's tables (migrations.py).
"""

from __future__ import annotations

from importlib.util import find_spec

from sqlalchemy.dialects import registry

from gmdb.sqlalchemy.dialect import GmdbDialect, Insert, insert

__all__ = ["GmdbDialect", "Insert", "insert"]

for _name in ("gmdb", "gmdb.gmdb"):  # the second is what ``gmdb+gmdb://`` asks for: a driver by its name
    registry.register(_name, "gmdb.sqlalchemy.dialect", "GmdbDialect")
registry.register("gmdb.aio", "gmdb.sqlalchemy.aio", "AsyncGmdbDialect")

if find_spec("alembic") is not None:  # it has a table of implementations, in which gmdb's must stand
    import gmdb.sqlalchemy.migrations  # noqa: F401
