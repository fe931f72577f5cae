"""The system tables' own definitions, and the shape of a table's definition.

The system tables lie in device 0.  ``sys_tables`` is found without looking anything up: its entry page is 0:1.
It lists every table, itself included; ``sys_columns`` lists their columns.
Not here: reading or changing them (tables.py for an open database, inspect/ for one that is closed).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from gmdb.errors import NoSuchColumn, NoSuchConstraint, SchemaError
from gmdb.format.address import SYSTEM_DEVICE, page_id_of
from gmdb.format.columns import IDENTITIES, Column, ColumnType, numbers_of, parse_column
from gmdb.format.heap import row_size_max
from gmdb.format.lob import LobSegment
from gmdb.format.options import OPTIONS_MAX, option, options_of, with_options
from gmdb.format.page import PAGE_SIZES
from gmdb.format.row import MAX_COLUMNS, header_size
from gmdb.process.late_dataclasses import dataclass, replace
from gmdb.storage.feeds import Feed
from gmdb.tables.access.indexes import HIDDEN, IndexDefinition, no_such_index
from gmdb.tables.catalog.names import PUBLIC, full_name, own_name

SYS_TABLES_ENTRY = page_id_of(SYSTEM_DEVICE, 1)
SYS_TABLES_ID, SYS_COLUMNS_ID, SYS_INDEXES_ID, SYS_CONSTRAINTS_ID, SYS_IDENTITIES_ID = 1, 2, 5, 6, 7
SYS_STATISTICS_ID, SYS_STREAMS_ID, SYS_VIEWS_ID, SYS_SCHEMAS_ID, FIRST_USER_ID = 8, 10, 11, 12, 16
PRIMARY_KEY, UNIQUE, CHECK, FOREIGN_KEY = "primary key", "unique", "check", "foreign key"
NO_ACTION, RESTRICT, CASCADE, SET_NULL, SET_DEFAULT = "no action", "restrict", "cascade", "set null", "set default"
ACTIONS = (NO_ACTION, RESTRICT, CASCADE, SET_NULL, SET_DEFAULT)
INTEGERS = ("SMALLINT", "INT", "BIGINT")  # types of columns that can be numbered
SYSTEM_PREFIX = "sys_"  # of the names of system tables and views
EXPRESSION_MAX = 2000  # bytes of an expression that a definition keeps


@dataclass(frozen=True)
class Constraint:
    """A constraint on a table's rows.

    A primary key or a unique constraint is kept by the unique index of the same name, a foreign key by the checks that
    follow changes of rows (foreign_keys.py); what a check says, and whether rows fulfil it, the one who changes rows
    must know.
    """

    kind: str  # "primary key", "unique", "check" or "foreign key"
    columns: tuple[str, ...] = ()
    text: str = ""  # of a check: the expression, as SQL writes it
    name: str = ""  # if empty, the table chooses one
    valid: bool = option(True)  # rows from before it fulfil it, too
    references: str = option("")  # what follows is a foreign key's: the table that it refers to,
    key: tuple[str, ...] = option(())  # and the columns there; none: its primary key
    on_delete: str = option(NO_ACTION)
    on_update: str = option(NO_ACTION)
    sets: tuple[str, ...] = option(())  # what "set null" and "set default" set when a row is deleted; none: all columns
    match_full: bool = option(False)  # its columns are NULL all together or not at all
    deferrable: bool = option(False)
    deferred: bool = option(False)  # checked at the commit, unless a transaction says otherwise
    nulls_distinct: bool = option(True)  # of a unique one: keys with a NULL are never each other's duplicates
    comment: str | None = option(None)


@dataclass(frozen=True, repr=False)
class TableDefinition:
    """A table: its name and number, where its segment starts, and its columns in order."""

    name: str  # with that of its schema before it, unless that is public (names.py)
    obj_id: int
    space_id: int
    entry_page: int
    columns: tuple[Column, ...]
    indexes: tuple[IndexDefinition, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    lobs: LobSegment | None = None  # where its large objects are, if it has columns for them
    number: int = 0  # by which sessions know the table: its first obj_id, also after it got another segment
    feed: Feed | None = None  # its changes are logged for readers
    referenced: int = option(0)  # how many foreign keys refer to it
    sequence: tuple[Any, ...] = option(())  # if it is a sequence, which has no rows: what ``counts`` says
    columns_ever: int = option(0)  # how many columns it has had, if some were dropped
    comment: str | None = option(None)
    schema: str = option(PUBLIC)
    on_commit: str = option("")  # of a temporary table: "delete" its rows, "drop" it
    expressions: tuple[tuple[str, str, int, int], ...] = option(())  # that indexes are on: see ``hidden``

    def __post_init__(self) -> None:
        if not self.number:
            object.__setattr__(self, "number", self.obj_id)

    def __repr__(self) -> str:
        columns = ", ".join(f"{c.name} {c.type}{'' if c.nullable else ' NOT NULL'}" for c in self.columns)
        indexes = "".join(f", index {index.name}" for index in self.indexes)
        return f"<TableDefinition {self.name}: {columns}{indexes}>"

    @property
    def own_name(self) -> str:
        """Its name within its schema."""
        return own_name(self.schema, self.name)

    def called(self, name: str) -> TableDefinition:
        """The table under another name in its schema."""
        return replace(self, name=full_name(self.schema, name))

    @property
    def counts(self) -> NumberSequence:
        """How a sequence counts."""
        counter, type_, owner, column, *numbers = self.sequence
        return NumberSequence(counter, type_, owner, column, tuple(numbers))

    @cached_property
    def hidden(self) -> tuple[Column, ...]:
        """What rows have behind ``columns``: what the expressions give that indexes are on, each with its type.

        Readers of rows pass them over.  A text is empty if no index is on the expression any more.
        """
        kinds = ((text, ColumnType(name, length, scale)) for text, name, length, scale in self.expressions)
        return tuple(
            Column(f"{HIDDEN}{text or n}", type_, generated=text or None) for n, (text, type_) in enumerate(kinds)
        )

    @cached_property
    def stored(self) -> tuple[Column, ...]:
        """All that rows have; indexes name columns by their positions here."""
        return (*self.columns, *self.hidden) if self.expressions else self.columns

    def used_expressions(self, indexes: Sequence[IndexDefinition]) -> tuple[tuple[str, str, int, int], ...]:
        """The expressions, without the texts of those that none of these indexes is on."""
        used = {n - len(self.columns) for index in indexes for n in index.positions}
        return tuple((one[0] if n in used else "", *one[1:]) for n, one in enumerate(self.expressions))

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The columns of the primary key; none if the table has none."""
        return next((c.columns for c in self.constraints if c.kind == PRIMARY_KEY), ())

    @property
    def known_by(self) -> tuple[int, ...]:
        """The positions of the columns that identify its rows: its primary key, or all if it has none."""
        if self.primary_key:
            return tuple(self.position(name) for name in self.primary_key)
        return tuple(n for n, column in enumerate(self.columns) if not column.type.is_lob)

    @property
    def numbers(self) -> tuple[int, ...]:
        """By which its columns are known for good."""
        return numbers_of(self.columns)

    @property
    def shape(self) -> tuple[Any, ...]:
        """The part of its definition that is about its rows, wherever they lie."""
        indexes = [replace(index, obj_id=0, table_id=0, entry_page=0, since=0) for index in self.indexes]
        return self.stored, self.constraints, indexes, self.feed, self.referenced

    @property
    def row_shape(self) -> tuple[list[tuple[str, ColumnType]], tuple[int, ...]]:
        """What readers of its rows in the log need of its definition."""
        return [(column.name, column.type) for column in self.columns], self.known_by

    def with_new_column(self, column: Column) -> TableDefinition:
        """The table with one more column, whose number no other has had."""
        return self.with_columns([*enumerate(self.columns), (None, column)])

    def with_columns(self, columns: Sequence[tuple[int | None, Column]]) -> TableDefinition:
        """The table with these columns only, each given with the position that it has now, or None if it is new."""
        numbered, ever = [], max(self.columns_ever, len(self.columns))
        for n, (origin, column) in enumerate(columns):
            number = ever if origin is None else self.numbers[origin]
            ever += origin is None
            numbered.append(replace(column, number=None if number == n else number))
        return replace(self, columns=tuple(numbered), columns_ever=ever if ever > len(numbered) else 0)

    def constraint(self, name: str) -> Constraint:
        for constraint in self.constraints:
            if constraint.name == name:
                return constraint
        known = ", ".join(c.name for c in self.constraints) or "none yet"
        raise NoSuchConstraint(f"table {self.name} has no constraint {name}; its constraints are: {known}")

    def column(self, name: str) -> Column:
        return self.columns[self.position(name)]

    def position(self, name: str) -> int:
        """A column's number; its name as it was given, or in small letters."""
        if name.startswith(HIDDEN):
            return [column.name for column in self.stored].index(name)
        names = [column.name for column in self.columns]
        for spelling in (name, name.lower()):
            if spelling in names:
                return names.index(spelling)
        raise NoSuchColumn(f"table {self.name} has no column {name}; its columns are {', '.join(names)}")

    def positions(self, names: Sequence[str] | None) -> list[int]:
        """The numbers of some columns, each named once; None stands for all."""
        if names is None:
            return list(range(len(self.columns)))
        positions = [self.position(name) for name in names]
        if len(set(positions)) < len(positions):
            raise SchemaError(f"table {self.name}: a column is named twice in {', '.join(names)}")
        return positions

    def index(self, name: str) -> IndexDefinition:
        for index in self.indexes:
            if index.name == name:
                return index
        raise no_such_index(self.name, name, self.indexes)


class NumberSequence(NamedTuple):
    """What a sequence is beyond its name."""

    counter: int
    type: str = "BIGINT"
    owner: str = ""  # the table with which it goes
    column: str = ""
    numbers: tuple[Any, ...] = ()  # of its Counting

    @property
    def plain(self) -> tuple[Any, ...]:
        """As the definition keeps it."""
        return self.counter, self.type, self.owner, self.column, *self.numbers


SEQUENCE_COLUMN = ("last_value", "BIGINT")  # that a sequence has as a table


@dataclass(frozen=True)
class SchemaDefinition:
    """A schema: a name that stands before those of tables and views."""

    name: str
    number: int
    comment: str | None = option(None)


def table_of_row(row: Sequence[Any], columns: tuple[Column, ...]) -> TableDefinition:
    """The table that a row of ``sys_tables`` lists."""
    obj_id, name, space_id, entry_page, *more = row
    place = TableDefinition(name, obj_id, space_id, entry_page, columns, lobs=lob_segment(*more[:2]))
    table = with_options(replace(place, feed=feed_of(*more[2:4])), more[4])
    if not isinstance(table.schema, str):
        raise SchemaError(f"table {name} is in a schema without a name")
    return table.called(name)


def lob_segment(lob_id: int | None, lob_page: int | None) -> LobSegment | None:
    """Where a table's large objects are, as its row in sys_tables has it."""
    return None if lob_id is None or lob_page is None else LobSegment(lob_id, lob_page)


def feed_of(feed_id: int | None, feed_version: int | None) -> Feed | None:
    """A table's change feed, as its row in sys_tables has it."""
    return None if feed_id is None or feed_version is None else Feed(feed_id, feed_version)


ColumnsGiven = Mapping[str, str] | Sequence[tuple[str, str] | Column]


def make_columns(table: str, columns: ColumnsGiven) -> tuple[Column, ...]:
    """Columns as users write them, ``{"i": "INT", "s": "VARCHAR(10) NOT NULL"}``, or whole ones, checked."""
    pairs = list(columns.items()) if isinstance(columns, Mapping) else list(columns)
    checked = tuple(one if isinstance(one, Column) else parse_column(*one) for one in pairs)
    if not 1 <= len(checked) <= MAX_COLUMNS:
        raise SchemaError(f"table {table} has {len(checked)} columns; it must have 1 to {MAX_COLUMNS}")
    seen: set[str] = set()
    for column in checked:
        if column.name.lower() in seen:
            raise SchemaError(f"table {table} has two columns called {column.name}")
        seen.add(column.name.lower())
        check_column(table, column)
    return checked


def require_expressions(table: TableDefinition) -> None:
    """Refuse expressions of indexes that are none."""
    for one in table.expressions:
        text, name, length, scale = one
        type_ = ColumnType(name, length, scale)
        if not isinstance(text, str) or parse_column("c", str(type_)).type != type_ or type_.may_be_apart:
            raise SchemaError(f"table {table.name}: {str(one)[:100]} is no expression that an index can be on")
        require_expression(f"table {table.name}", text or None)
    if len(table.stored) > MAX_COLUMNS:
        raise SchemaError(f"table {table.name}: columns and expressions of indexes are more than {MAX_COLUMNS}")


def check_column(table: str, column: Column) -> None:
    """Refuse what a column may not have."""
    where = f"table {table}, column {column.name}"
    known = parse_column(column.name, str(column.type)).type
    if known != column.type:
        raise SchemaError(f"{where}: {column.type} is not a type's name as gmdb has it; {known} is")
    require_expression(where, column.default)
    require_expression(where, column.generated)
    if column.generated is not None:
        if column.default is not None or column.identity is not None:
            raise SchemaError(f"{where}: a generated column has no default, and is no identity")
        if column.type.is_lob:
            raise SchemaError(f"{where}: a {column.type} is not generated; use TEXT or BYTEA")
    if column.sequence and (column.identity is not None or column.type.name not in INTEGERS):
        raise SchemaError(f"{where}: a column with the numbers of a sequence is an integer, and no identity")
    if column.identity is None:
        return
    if column.identity not in IDENTITIES:
        raise SchemaError(f"{where}: identity {column.identity!r} is not one of {', '.join(IDENTITIES)}")
    if column.type.name not in INTEGERS or column.default is not None or column.nullable:
        raise SchemaError(f"{where}: an identity column is SMALLINT, INT or BIGINT, NOT NULL and has no default")


def require_room(table: str, columns: Sequence[Column], page_size: int) -> None:
    """Refuse columns whose values have no room in any row: CHAR and BINARY values always have their whole length."""

    def filled(column: Column) -> int:
        return 2 + column.type.length if column.type.name in ("CHAR", "BINARY") else 0

    rest = header_size(len(columns)) + sum(filled(column) for column in columns if not column.nullable)
    for column in columns:
        size = rest + (filled(column) if column.nullable else 0)
        if size > row_size_max(page_size):
            larger = [str(n) for n in PAGE_SIZES if size <= row_size_max(n)]
            advice = f"use a tablespace of {' or '.join(larger)}-byte pages, or " if larger else ""
            raise SchemaError(
                f"table {table}: a row with a value of column {column.name} {column.type} has at least {size} bytes, "
                f"and a page of {page_size} takes {row_size_max(page_size)}; {advice}shorter columns, or a BLOB"
            )


def require_expression(where: str, text: str | None) -> None:
    if text is not None and not 1 <= len(text.encode()) <= EXPRESSION_MAX:
        raise SchemaError(f"{where}: an expression has 1 to {EXPRESSION_MAX} bytes, not {len(text.encode())}")


def require_name(what: str, name: str) -> None:
    if not 1 <= len(name.encode()) <= 63 or "\0" in name:
        raise SchemaError(f"{name!r} is not a valid {what} name: it must have 1 to 63 bytes")


SYS_TABLES_COLUMNS = make_columns(
    "sys_tables",
    {
        "obj_id": "INT NOT NULL",
        "name": "VARCHAR(63) NOT NULL",
        "space_id": "INT NOT NULL",
        "entry_page": "BIGINT NOT NULL",
        "lob_id": "INT",  # this and what follows is not in rows of older databases
        "lob_page": "BIGINT",
        "feed_id": "INT",
        "feed_version": "INT",
        "options": f"VARCHAR({OPTIONS_MAX})",
    },
)

SYS_INDEXES_COLUMNS = make_columns(
    "sys_indexes",
    {
        "obj_id": "INT NOT NULL",
        "table_id": "INT NOT NULL",
        "name": "VARCHAR(63) NOT NULL",
        "entry_page": "BIGINT NOT NULL",
        "is_unique": "BOOLEAN NOT NULL",
        "positions": "VARCHAR(100) NOT NULL",
        "kind": "VARCHAR(10)",  # NULL in rows from before there were hash indexes: a B-tree
        "options": f"VARCHAR({OPTIONS_MAX})",
    },
)

SYS_COLUMNS_COLUMNS = make_columns(
    "sys_columns",
    {
        "obj_id": "INT NOT NULL",
        "position": "INT NOT NULL",
        "name": "VARCHAR(63) NOT NULL",
        "type": "VARCHAR(20) NOT NULL",
        "length": "INT NOT NULL",
        "scale": "INT NOT NULL",
        "nullable": "BOOLEAN NOT NULL",
        "default_text": f"VARCHAR({EXPRESSION_MAX})",  # this and what follows is not in rows of older databases
        "identity": "VARCHAR(10)",
        "identity_id": "INT",
        "options": f"VARCHAR({OPTIONS_MAX})",
    },
)

SYS_CONSTRAINTS_COLUMNS = make_columns(
    "sys_constraints",
    {
        "table_id": "INT NOT NULL",
        "name": "VARCHAR(63) NOT NULL",
        "kind": "VARCHAR(20) NOT NULL",
        "positions": "VARCHAR(100) NOT NULL",
        "text": f"VARCHAR({EXPRESSION_MAX})",
        "options": f"VARCHAR({OPTIONS_MAX})",
    },
)

SYS_IDENTITIES_COLUMNS = make_columns(
    "sys_identities", {"identity_id": "INT NOT NULL", "next_value": "BIGINT NOT NULL"}
)

SYS_STATISTICS_COLUMNS = make_columns(
    "sys_statistics",
    {
        "table_id": "INT NOT NULL",
        "positions": "VARCHAR(100) NOT NULL",  # of columns; none: the table as a whole
        "row_count": "BIGINT NOT NULL",
        "distinct_count": "BIGINT NOT NULL",
        "bounds": "VARCHAR(4000)",
    },
)

SYS_STREAMS_COLUMNS = make_columns(
    "sys_streams",
    {
        "name": "VARCHAR(200) NOT NULL",
        "query_id": "VARCHAR(100)",  # of the query that writes the stream, if it has said so
        "table_name": "VARCHAR(127)",  # where its last batch went
        "batch_id": "BIGINT",  # of its last batch; NULL: none was taken in yet
        "row_count": "BIGINT NOT NULL",  # of all its batches
        "batch_time": "TIMESTAMP",  # when its last batch was taken in, in UTC
    },
)

SYS_VIEWS_COLUMNS = make_columns(
    "sys_views",
    {
        "obj_id": "INT NOT NULL",
        "name": "VARCHAR(63) NOT NULL",
        "part": "INT NOT NULL",  # of a document that does not fit into one row
        "text": "VARCHAR(4000) NOT NULL",
    },
)

SYS_SCHEMAS_COLUMNS = make_columns(
    "sys_schemas",
    {"obj_id": "INT NOT NULL", "name": "VARCHAR(63) NOT NULL", "options": f"VARCHAR({OPTIONS_MAX})"},
)

SYSTEM_TABLES = {
    "sys_tables": (SYS_TABLES_ID, SYS_TABLES_COLUMNS),
    "sys_columns": (SYS_COLUMNS_ID, SYS_COLUMNS_COLUMNS),
    "sys_indexes": (SYS_INDEXES_ID, SYS_INDEXES_COLUMNS),
    "sys_constraints": (SYS_CONSTRAINTS_ID, SYS_CONSTRAINTS_COLUMNS),
    "sys_identities": (SYS_IDENTITIES_ID, SYS_IDENTITIES_COLUMNS),
    "sys_statistics": (SYS_STATISTICS_ID, SYS_STATISTICS_COLUMNS),
    "sys_streams": (SYS_STREAMS_ID, SYS_STREAMS_COLUMNS),
    "sys_views": (SYS_VIEWS_ID, SYS_VIEWS_COLUMNS),
    "sys_schemas": (SYS_SCHEMAS_ID, SYS_SCHEMAS_COLUMNS),
}


# ---- Constraints as they are given, checked, with the names that they get if they have none.

_ENDINGS = {PRIMARY_KEY: "pkey", UNIQUE: "key", CHECK: "check", FOREIGN_KEY: "fkey"}


def named(table: TableDefinition, constraint: Constraint, index_names: Iterable[str]) -> Constraint:
    """A constraint that the table can have, with its name; ``index_names`` are taken, in small letters."""
    kind = constraint.kind
    if kind not in _ENDINGS:
        raise SchemaError(f"table {table.name}: {kind!r} is not a kind of constraint, only {', '.join(_ENDINGS)} are")
    where = f"table {table.name}, {kind}"
    columns = tuple(table.column(name).name for name in constraint.columns)
    if kind == PRIMARY_KEY and table.primary_key:
        raise SchemaError(f"{where}: it has one already, on {', '.join(table.primary_key)}")
    if kind == CHECK:
        require_expression(where, constraint.text)
    elif not columns or constraint.text:
        raise SchemaError(f"{where}: it is about columns, and says nothing else")
    if len(set(columns)) < len(columns):
        raise SchemaError(f"{where}: a column is named twice in {', '.join(columns)}")
    name = constraint.name or _free_name(table, kind, columns, index_names)
    require_name("constraint", name)
    if any(other.name.lower() == name.lower() for other in table.constraints):
        raise SchemaError(f"table {table.name} has a constraint {name} already")
    if kind == FOREIGN_KEY:
        require_foreign_key(f"{where} {name}", constraint)
        _require_changeable(f"{where} {name}", table, constraint)
    elif not constraint.nulls_distinct and kind != UNIQUE:
        raise SchemaError(f"{where} {name}: only a unique constraint has NULLs that are not distinct")
    elif options_of(constraint).keys() - {"valid", "comment", "nulls_distinct"} or (
        kind != CHECK and not constraint.valid
    ):
        what = "only a foreign key refers to a table, and only it and a check can be not valid"
        raise SchemaError(f"{where} {name}: {what}")
    return replace(constraint, columns=columns, name=name)


def require_foreign_key(where: str, constraint: Constraint) -> None:
    """Refuse what a foreign key may not be, whatever it refers to."""
    if not constraint.references:
        raise SchemaError(f"{where}: to which table does it refer?")
    for action in (constraint.on_delete, constraint.on_update):
        if action not in ACTIONS:
            raise SchemaError(f"{where}: {action!r} is not one of {', '.join(ACTIONS)}")
    if constraint.deferred and not constraint.deferrable:
        raise SchemaError(f"{where}: what is initially deferred must be deferrable")
    if constraint.sets and constraint.on_delete not in (SET_NULL, SET_DEFAULT):
        raise SchemaError(f"{where}: columns are set on delete by set null and set default only")
    if not set(constraint.sets) <= set(constraint.columns):
        raise SchemaError(f"{where}: on delete, only columns of the foreign key can be set")


def _require_changeable(where: str, table: TableDefinition, constraint: Constraint) -> None:
    """Refuse a foreign key whose actions would change a generated column."""
    generated = {column.name for column in table.columns if column.generated is not None}
    on_delete = constraint.sets or constraint.columns if constraint.on_delete in (SET_NULL, SET_DEFAULT) else ()
    on_update = constraint.columns if constraint.on_update in (CASCADE, SET_NULL, SET_DEFAULT) else ()
    actions = ((f"on delete {constraint.on_delete}", on_delete), (f"on update {constraint.on_update}", on_update))
    for what, columns in actions:
        if not generated.isdisjoint(columns):
            raise SchemaError(f"{where}: {what} would change a generated column")


def key_constraint(parent: TableDefinition, columns: Iterable[str]) -> Constraint:
    """The constraint that makes some columns a key."""
    wanted = set(columns)
    for constraint in parent.constraints:
        if constraint.kind in (PRIMARY_KEY, UNIQUE) and set(constraint.columns) == wanted:
            return constraint
    names = ", ".join(columns)
    raise SchemaError(f"table {parent.name} has no primary key or unique constraint on ({names}), to refer to")


def _free_name(table: TableDefinition, kind: str, columns: tuple[str, ...], taken: Iterable[str]) -> str:
    """``t_pkey``, ``t_a_b_key``, ``t_a_check``; with a number behind it if that is something else's name."""
    own = {constraint.name.lower() for constraint in table.constraints}
    parts = (table.own_name, *(() if kind == PRIMARY_KEY else columns), _ENDINGS[kind])
    return free_name(parts, {*own, *taken})


def free_name(parts: Sequence[str], taken: Container[str]) -> str:
    """A name of these parts, with a number behind it if it is taken; ``taken`` are in small letters."""
    stem = "_".join(parts).encode()[:59].decode(errors="ignore")
    name, number = stem, 0
    while name.lower() in taken:
        number += 1
        name = f"{stem}{number}"
    return name
