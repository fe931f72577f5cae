"""The dialect: how SQLAlchemy connects to gmdb, and what it may expect."""

from __future__ import annotations

from typing import Any

from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.sql.compiler import InsertmanyvaluesSentinelOpts

import gmdb
from gmdb.errors import DatabaseClosed, InterfaceError, OwnerGone
from gmdb.sqlalchemy.compiler import DefinitionCompiler, IdentifierPreparer, StatementCompiler
from gmdb.sqlalchemy.reflection import Reflection
from gmdb.sqlalchemy.types import IMPLEMENTATIONS, TypeCompiler
from sqlalchemy import URL, pool, schema

AUTOCOMMIT = "AUTOCOMMIT"
LEVELS = ("READ COMMITTED", "REPEATABLE READ")


class GmdbDialect(Reflection, DefaultDialect):  # type: ignore[misc]
    """``gmdb:///shop.gmdb``, a path relative to the working directory; ``gmdb:////srv/shop.gmdb``, an absolute one;
    ``gmdb://:token@host:7433``, a server."""

    name = "gmdb"
    driver = "gmdb"
    default_paramstyle = "qmark"
    supports_statement_cache = True
    max_identifier_length = 63
    max_index_name_length = 63
    max_constraint_name_length = 63

    statement_compiler = StatementCompiler
    ddl_compiler = DefinitionCompiler
    type_compiler_cls = TypeCompiler
    preparer = IdentifierPreparer
    colspecs = IMPLEMENTATIONS
    construct_arguments = [  # noqa: RUF012
        (schema.Table, {"tablespace": None, "pctfree": None}),
        (schema.Index, {"using": None}),
    ]

    supports_native_boolean = True
    supports_native_decimal = True
    supports_sane_rowcount = True
    supports_sane_multi_rowcount = True
    supports_sane_rowcount_returning = True
    supports_default_values = True
    supports_default_metavalue = True
    supports_empty_insert = False
    supports_multivalues_insert = True
    supports_identity_columns = True
    supports_alter = False  # as far as SQLAlchemy asks: for foreign keys of tables that name each other
    supports_is_distinct_from = True
    supports_comments = False
    supports_sequences = False
    supports_schemas = False
    supports_views = False
    postfetch_lastrowid = True
    favor_returning_over_lastrowid = True
    preexecute_autoincrement_sequences = False
    cte_follows_insert = False

    insert_returning = update_returning = delete_returning = True
    use_insertmanyvalues = True
    insertmanyvalues_implicit_sentinel = InsertmanyvaluesSentinelOpts.ANY_AUTOINCREMENT  # rows are numbered in order
    insertmanyvalues_page_size = 200  # rows of a statement, which is parsed once for each number of rows

    _backslash_escapes = False

    def __init__(
        self,
        json_serializer: Any = None,
        json_deserializer: Any = None,
        **given: Any,
    ) -> None:
        super().__init__(**given)
        self._json_serializer = json_serializer
        self._json_deserializer = json_deserializer
        self.leaves_foreign_keys_out = False

    # ---- connections

    @classmethod
    def import_dbapi(cls) -> Any:
        return gmdb

    @classmethod
    def get_pool_class(cls, url: URL) -> type[pool.Pool]:  # noqa: ARG003
        return pool.QueuePool

    def create_connect_args(self, url: URL) -> tuple[list[Any], dict[str, Any]]:
        """A path or a server, and what ``gmdb.connect`` takes beside it: ``?lock_timeout=2&read_only=true``."""
        options = dict(url.query)
        unknown = sorted(set(options) - {"lock_timeout", "read_only", "sync", "foreign_keys", "tls", "tls_ca"})
        if unknown:
            known = "lock_timeout, read_only, sync, foreign_keys, tls or tls_ca"
            raise InterfaceError(f"{url}: there is no option {unknown[0]}; use {known}")
        if bool(url.database) == bool(url.host):
            forms = "gmdb:///shop.gmdb, gmdb:////srv/shop.gmdb, or, for a server, gmdb://:token@host:7433"
            raise InterfaceError(f"{url} names no database; write {forms}")
        made: dict[str, Any] = {}
        if url.password is not None:
            made["token"] = str(url.password)
        if "tls_ca" in options:
            made["tls_ca"] = options["tls_ca"]
        if options.get("foreign_keys") not in (None, "refused", "left_out"):
            raise InterfaceError(f"{url}: foreign_keys is refused, or left_out of tables")
        self.leaves_foreign_keys_out = options.get("foreign_keys") == "left_out"
        if "lock_timeout" in options:
            made["lock_timeout"] = float(str(options["lock_timeout"]))
        if "read_only" in options:
            made["read_only"] = _is_yes(options["read_only"])
        if "sync" in options:
            made["sync"] = options["sync"]
        return [_server(url, _is_yes(options.get("tls", ""))) if url.host else url.database], made

    def is_disconnect(self, e: Any, connection: Any, cursor: Any) -> bool:  # noqa: ARG002
        if isinstance(e, OwnerGone | DatabaseClosed):
            return True
        return isinstance(e, InterfaceError) and str(e) == "the connection is closed"

    def _get_server_version_info(self, connection: Any) -> tuple[int, ...]:  # noqa: ARG002
        return tuple(int(part) for part in gmdb.__version__.split(".") if part.isdigit())

    def _get_default_schema_name(self, connection: Any) -> Any:  # noqa: ARG002
        return None

    # ---- isolation

    def get_isolation_level_values(self, dbapi_conn: Any) -> list[Any]:  # noqa: ARG002
        return [*LEVELS, AUTOCOMMIT]

    def get_default_isolation_level(self, dbapi_conn: Any) -> Any:
        return self.get_isolation_level(dbapi_conn)

    def get_isolation_level(self, dbapi_connection: Any) -> Any:
        return AUTOCOMMIT if dbapi_connection.autocommit else dbapi_connection.isolation.upper()

    def set_isolation_level(self, dbapi_connection: Any, level: Any) -> None:
        if level == AUTOCOMMIT:
            dbapi_connection.autocommit = True
            return
        dbapi_connection.autocommit = False
        dbapi_connection.isolation = level.lower()

    def detect_autocommit_setting(self, dbapi_conn: Any) -> bool:
        return bool(dbapi_conn.autocommit)


def _is_yes(value: Any) -> bool:
    return str(value).lower() in ("1", "true", "yes", "on")


def _server(url: URL, tls: bool) -> str:
    """The URL of a server as ``gmdb.connect`` takes it."""
    host = f"[{url.host}]" if ":" in str(url.host) else url.host
    return f"gmdb{'+tls' if tls else ''}://{host}{'' if url.port is None else f':{url.port}'}"


dialect = GmdbDialect
