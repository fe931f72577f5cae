"""What PostgreSQL's catalog says of a database: rows for ``pg_catalog``, made of definitions when they are asked for.

Each table is declared once, by its columns and what makes its rows; bind/standard_views.py has the names of PostgreSQL
for them.  Numbers of things (``oid``) are those by which gmdb knows them: a table's and a view's stay while it is
there, an index's until its table's rows are made anew.  A constraint's and a default's follow from its table and its
name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from zlib import crc32

from sqlglot import exp

from gmdb.format.columns import Column, ColumnType
from gmdb.process.late_imports import pyarrow as pa
from gmdb.sql.dialect import GmdbSql
from gmdb.sql.types import CALLED, pg_name
from gmdb.tables.access.indexes import HIDDEN, IndexDefinition
from gmdb.tables.catalog.names import PUBLIC, is_temporary, parts_of
from gmdb.tables.catalog.schema import (
    CHECK,
    FOREIGN_KEY,
    PRIMARY_KEY,
    UNIQUE,
    Constraint,
    TableDefinition,
    key_constraint,
)
from gmdb.tables.catalog.view_definitions import ViewDefinition

if TYPE_CHECKING:
    from gmdb.database.connection import Connection

PUBLIC_OID, PG_CATALOG_OID, INFORMATION_SCHEMA_OID = 2200, 11, 13000  # the first two are PostgreSQL's
_CLASS_OID, _CONSTRAINT_OID, _NAMESPACE_OID = 1259, 2606, 2615  # of the catalog's own tables, as PostgreSQL has them
_DERIVED = 1 << 30  # from here on are numbers that follow from names
_OWNER = 10
Row = tuple[Any, ...]
Relation = TableDefinition | ViewDefinition

# PostgreSQL's types by their short names: the number, the length of a value, and the category.
_TYPES = {
    "bool": (16, 1, "B"), "bytea": (17, -1, "U"), "int8": (20, 8, "N"), "int2": (21, 2, "N"), "int4": (23, 4, "N"),
    "text": (25, -1, "S"), "oid": (26, 4, "N"), "json": (114, -1, "U"), "float4": (700, 4, "N"),
    "float8": (701, 8, "N"), "bpchar": (1042, -1, "S"), "varchar": (1043, -1, "S"), "date": (1082, 4, "D"),
    "time": (1083, 8, "D"), "timestamp": (1114, 8, "D"), "timestamptz": (1184, 8, "D"), "interval": (1186, 16, "T"),
    "numeric": (1700, -1, "N"), "uuid": (2950, 16, "U"), "jsonb": (3802, -1, "U"),
}  # fmt: skip
_ARRAYS = {
    "bool": 1000, "bytea": 1001, "int2": 1005, "int4": 1007, "text": 1009, "bpchar": 1014, "varchar": 1015,
    "int8": 1016, "float4": 1021, "float8": 1022, "timestamp": 1115, "date": 1182, "time": 1183, "timestamptz": 1185,
    "interval": 1187, "numeric": 1231, "uuid": 2951, "json": 199, "jsonb": 3807,
}  # fmt: skip
_LONG_NAMES = {one.short: one.name for name, one in CALLED.items() if name not in ("BLOB", "CLOB")}
_KINDS = {PRIMARY_KEY: "p", UNIQUE: "u", CHECK: "c", FOREIGN_KEY: "f"}
_ACTIONS = {"no action": "a", "restrict": "r", "cascade": "c", "set null": "n", "set default": "d"}


def type_oid(type_: ColumnType) -> int:
    if type_.is_array:
        return _ARRAYS.get(_short_name(type_.element), 0)
    return _TYPES.get(_short_name(type_), (0, 0, ""))[0]


def _short_name(type_: ColumnType) -> str:
    return "text" if pg_name(type_) == "text" else CALLED[type_.name].short


def type_modifier(type_: ColumnType) -> int:
    """The length or the digits of a type, as PostgreSQL keeps them; -1 for none."""
    if type_.is_array:
        return type_modifier(type_.element)
    if type_.name == "DECIMAL":
        return ((type_.length << 16) | type_.scale) + 4
    return type_.length + 4 if type_.name in ("CHAR", "VARCHAR") and type_.length else -1


def format_type(oid: int | None, modifier: int | None) -> str | None:
    """What a type is called in SQL, with its length or digits."""
    if oid is None:
        return None
    element = next((short for short, number in _ARRAYS.items() if number == oid), None)
    if element is not None:
        return f"{format_type(_TYPES[element][0], modifier)}[]"
    short = next((short for short, (number, _, _) in _TYPES.items() if number == oid), None)
    if short is None:
        return "-" if oid == 0 else "???"
    name, size = _LONG_NAMES.get(short, short), (modifier or -1) - 4
    if modifier is None or modifier < 4:
        return name
    if short == "numeric":
        return f"{name}({size >> 16},{size & 0xFFFF})"
    return f"{name}({size})" if short in ("bpchar", "varchar") else name


# ---- definitions as SQL


def called(name: str) -> str:
    """A name as PostgreSQL writes it: in quotes where it needs them."""
    plain = name == name.lower() and name.isidentifier() and name.isascii()
    return name if plain else exp.to_identifier(name, quoted=True).sql(dialect=GmdbSql)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(called, names))


def qualified(schema: str, name: str) -> str:
    return f"{called(schema)}.{called(name)}"


def index_definition(table: TableDefinition, index: IndexDefinition) -> str:
    """CREATE INDEX, as ``pg_get_indexdef`` writes it."""
    names = [table.stored[n].name for n in index.positions]
    keys = []
    for n, name in enumerate(names[: len(index.key)]):
        direction = index.direction(n)
        written = f"({name.removeprefix(HIDDEN)})" if name.startswith(HIDDEN) else called(name)
        words = [written, *(["DESC"] if direction.descending else [])]
        if direction.nulls_first != direction.descending:
            words.append("NULLS FIRST" if direction.nulls_first else "NULLS LAST")
        keys.append(" ".join(words))
    parts = [
        f"CREATE {'UNIQUE ' if index.unique else ''}INDEX {called(index.name)}",
        f"ON {qualified(table.schema, table.own_name)} USING {index.using} ({', '.join(keys)})",
        f"INCLUDE ({_listed(names[len(index.key) :])})" if index.included else "",
        "" if index.nulls_distinct else "NULLS NOT DISTINCT",
        f"WHERE ({index.condition})" if index.condition is not None else "",
    ]
    return " ".join(part for part in parts if part)


def constraint_definition(constraint: Constraint, parent: tuple[str, str] = ("", "")) -> str:
    """A constraint, as ``pg_get_constraintdef`` writes it; ``parent``: schema and name of what it refers to."""
    if constraint.kind == CHECK:
        return f"CHECK (({constraint.text})){'' if constraint.valid else ' NOT VALID'}"
    if constraint.kind != FOREIGN_KEY:
        nulls = "" if constraint.nulls_distinct else "NULLS NOT DISTINCT "
        return f"{constraint.kind.upper()} {nulls}({_listed(constraint.columns)})"
    schema, name = parent
    shown = called(name) if schema == PUBLIC else qualified(schema, name)
    parts = [f"FOREIGN KEY ({_listed(constraint.columns)}) REFERENCES {shown}({_listed(constraint.key)})"]
    parts += ["MATCH FULL"] if constraint.match_full else []
    parts += [f"ON UPDATE {constraint.on_update.upper()}"] if constraint.on_update != "no action" else []
    if constraint.on_delete != "no action":
        sets = f" ({_listed(constraint.sets)})" if constraint.sets else ""
        parts.append(f"ON DELETE {constraint.on_delete.upper()}{sets}")
    parts += ["DEFERRABLE"] if constraint.deferrable else []
    parts += ["INITIALLY DEFERRED"] if constraint.deferred else []
    return " ".join([*parts, *([] if constraint.valid else ["NOT VALID"])])


# ---- the catalog


class PostgresCatalog:
    """The definitions that a connection sees, with numbers."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.relations: list[Relation] = connection._relations()
        self.by_name = {one.name: one for one in self.relations}
        self.by_oid: dict[int, Relation] = {one.number: one for one in self.relations}
        self.tables = [one for one in self.relations if isinstance(one, TableDefinition)]
        self._derived: dict[int, tuple[Any, ...]] = {}

    @property
    def schemas(self) -> dict[str, int]:
        names = {name: self._connection._schema(name).number for name in self._connection.schemas()}
        own = {one.schema for one in self.relations if is_temporary(one.schema)}
        numbers = {name: int(name.rpartition("_")[2]) for name in own}
        system = {PUBLIC: PUBLIC_OID, "pg_catalog": PG_CATALOG_OID, "information_schema": INFORMATION_SCHEMA_OID}
        return {**system, **names, **numbers}

    def indexes(self) -> Iterator[tuple[TableDefinition, IndexDefinition]]:
        return ((table, index) for table in self.tables for index in table.indexes if not index.building)

    def constraints(self) -> Iterator[tuple[int, TableDefinition, Constraint]]:
        for table in self.tables:
            for one in table.constraints:
                yield self._number("constraint", table.number, one.name), table, one

    def _number(self, *what: Any) -> int:
        """A number that follows from what it is of; of two with the same one, the second has the next."""
        oid = _DERIVED + crc32(repr(what).encode()) % _DERIVED
        while self._derived.setdefault(oid, what) != what:
            oid += 1
        return oid

    def definition_of_constraint(self, constraint: Constraint) -> str:
        parent = parts_of(constraint.references, self.schemas) if constraint.kind == FOREIGN_KEY else ("", "")
        return constraint_definition(constraint, parent)

    # ---- rows of its tables

    def namespaces(self) -> Iterator[Row]:
        return ((oid, name, _OWNER) for name, oid in self.schemas.items())

    def classes(self) -> Iterator[Row]:
        schemas = self.schemas
        for one in self.relations:
            is_table = isinstance(one, TableDefinition) and not one.sequence
            kind = "r" if is_table else "S" if isinstance(one, TableDefinition) else "v"
            checks = sum(c.kind == CHECK for c in one.constraints) if isinstance(one, TableDefinition) else 0
            indexed = isinstance(one, TableDefinition) and bool(one.indexes)
            persistence = "t" if is_temporary(one.schema) else "p"
            shape = (kind, persistence, len(one.columns), checks, indexed)
            yield one.number, one.own_name, schemas[one.schema], _OWNER, *shape
        for table, index in self.indexes():
            persistence = "t" if is_temporary(table.schema) else "p"
            shape = ("i", persistence, len(index.positions), 0, False)
            yield index.obj_id, index.name, schemas[table.schema], _OWNER, *shape

    def attributes(self) -> Iterator[Row]:
        for one in self.relations:
            for n, column in enumerate(one.columns, 1):
                yield one.number, *self._attribute(column, n)
        for table, index in self.indexes():
            for n, position in enumerate(index.positions, 1):
                column = table.stored[position]
                bare = Column(column.name.removeprefix(HIDDEN), column.type)
                yield index.obj_id, *self._attribute(bare, n)

    def _attribute(self, column: Column, number: int) -> Row:
        has_default = column.default is not None or column.generated is not None
        identity = {"always": "a", "by default": "d"}.get(column.identity or "", "")
        generated = "s" if column.generated is not None else ""
        shape = (type_oid(column.type), number, type_modifier(column.type), not column.nullable, has_default)
        return column.name, *shape, identity, generated

    def defaults(self) -> Iterator[Row]:
        for table in self.tables:
            for n, column in enumerate(table.columns, 1):
                text = column.default if column.generated is None else column.generated
                if text is not None:
                    yield self._number("default", table.number, column.name), table.number, n, text

    def index_rows(self) -> Iterator[Row]:
        for table, index in self.indexes():
            is_primary = any(one.kind == PRIMARY_KEY and one.name == index.name for one in table.constraints)
            directions = [index.direction(n) for n in range(len(index.key))]
            options = " ".join(str(int(one.descending) | int(one.nulls_first) << 1) for one in directions)
            keys = " ".join(str(n + 1 if n < len(table.columns) else 0) for n in index.positions)
            counts = (len(index.positions), len(index.key))
            flags = (index.unique, not index.nulls_distinct, is_primary)
            condition, definition = index.condition, index_definition(table, index)
            yield index.obj_id, table.number, *counts, *flags, keys, options, condition, definition

    def constraint_rows(self) -> Iterator[Row]:
        schemas = self.schemas
        for oid, table, one in self.constraints():
            keys = _numbers(table, one.columns) if one.columns else None
            place = (oid, one.name, schemas[table.schema], _KINDS[one.kind], one.deferrable, one.deferred, one.valid)
            definition = self.definition_of_constraint(one)
            parent = self.by_name.get(one.references)
            if one.kind != FOREIGN_KEY or not isinstance(parent, TableDefinition):
                index = table.index(one.name).obj_id if one.kind in (PRIMARY_KEY, UNIQUE) else 0
                yield *place, table.number, index, 0, " ", " ", " ", keys, None, definition
                continue
            index = parent.index(key_constraint(parent, one.key).name).obj_id
            actions = (_ACTIONS[one.on_update], _ACTIONS[one.on_delete], "f" if one.match_full else "s")
            yield *place, table.number, index, parent.number, *actions, keys, _numbers(parent, one.key), definition

    def descriptions(self) -> Iterator[Row]:
        for table in self.tables:
            yield table.number, _CLASS_OID, 0, table.comment
            for n, column in enumerate(table.columns, 1):
                yield table.number, _CLASS_OID, n, column.comment
        for _, index in self.indexes():
            yield index.obj_id, _CLASS_OID, 0, index.comment
        for oid, _, one in self.constraints():
            yield oid, _CONSTRAINT_OID, 0, one.comment
        for name in self._connection.schemas():
            schema = self._connection._schema(name)
            yield schema.number, _NAMESPACE_OID, 0, schema.comment

    def view_uses(self) -> Iterator[Row]:
        """What views are over."""
        for view in self.relations:
            if isinstance(view, ViewDefinition):
                for used in (self.by_name.get(name) for name, _ in view.uses):
                    if used is not None:
                        yield view.schema, view.own_name, used.schema, used.own_name


def _numbers(table: TableDefinition, names: Sequence[str]) -> str:
    """Columns as an array of their numbers."""
    return f"{{{','.join(str(table.position(name) + 1) for name in names)}}}"


def _types() -> Iterator[Row]:
    for name, (oid, size, category) in _TYPES.items():
        yield oid, name, PG_CATALOG_OID, size, "b", category
    for name, oid in _ARRAYS.items():
        yield oid, f"_{name}", PG_CATALOG_OID, -1, "b", "A"


_Rows = Callable[[PostgresCatalog], Iterator[Row]]
_TABLES: dict[str, tuple[str, _Rows]] = {
    "namespace": ("oid:i nspname:s nspowner:i", PostgresCatalog.namespaces),
    "class": (
        "oid:i relname:s relnamespace:i relowner:i relkind:s relpersistence:s relnatts:i relchecks:i relhasindex:b",
        PostgresCatalog.classes,
    ),
    "attribute": (
        "attrelid:i attname:s atttypid:i attnum:i atttypmod:i attnotnull:b atthasdef:b attidentity:s attgenerated:s",
        PostgresCatalog.attributes,
    ),
    "attrdef": ("oid:i adrelid:i adnum:i adbin:s", PostgresCatalog.defaults),
    "index": (
        "indexrelid:i indrelid:i indnatts:i indnkeyatts:i indisunique:b indnullsnotdistinct:b indisprimary:b indkey:s "
        "indoption:s indpred:s definition:s",
        PostgresCatalog.index_rows,
    ),
    "constraint": (
        "oid:i conname:s connamespace:i contype:s condeferrable:b condeferred:b convalidated:b conrelid:i conindid:i "
        "confrelid:i confupdtype:s confdeltype:s confmatchtype:s conkey:s confkey:s definition:s",
        PostgresCatalog.constraint_rows,
    ),
    "description": ("objoid:i classoid:i objsubid:i description:s", PostgresCatalog.descriptions),
    "type": ("oid:i typname:s typnamespace:i typlen:i typtype:s typcategory:s", lambda _: _types()),
    "view_uses": ("view_schema:s view_name:s table_schema:s table_name:s", PostgresCatalog.view_uses),
}
PREFIX = "sys_pg_"


def is_listing(name: str) -> bool:
    return name.removeprefix(PREFIX) in _TABLES and name.startswith(PREFIX)


def read_catalog(connection: Connection, name: str) -> pa.Table:
    """A table of the catalog, by its name behind ``sys_pg_``."""
    columns, rows_of = _TABLES[name.removeprefix(PREFIX)]
    kinds = {"i": pa.int32(), "s": pa.string(), "b": pa.bool_()}
    schema = pa.schema([(one[:-2], kinds[one[-1]]) for one in columns.split()])
    rows = list(rows_of(PostgresCatalog(connection)))
    arrays = zip(*rows, strict=True) if rows else [()] * len(schema)
    return pa.table([pa.array(values, field.type) for values, field in zip(arrays, schema, strict=True)], schema=schema)
