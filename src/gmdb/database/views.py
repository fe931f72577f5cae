"""System views: definitions, and what is going on, as Arrow tables made when they are asked for.

``sys_tables`` and its like are tables, too, with committed rows and those of the session; as views they show what the
session sees.  ``sys_transactions`` and its like are nowhere but in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from gmdb.errors import NoSuchTable
from gmdb.format.address import RowId, page_name
from gmdb.format.page import SegmentType
from gmdb.kernel.locks import LockAction
from gmdb.process.late_imports import pyarrow as pa
from gmdb.storage.feeds import LogPosition, read_readers
from gmdb.storage.pins import Pin
from gmdb.storage.store import Segment
from gmdb.tables.access.indexes import written_columns
from gmdb.tables.arrow.arrow_types import arrow_schema
from gmdb.tables.catalog.counters import Counting
from gmdb.tables.catalog.schema import CHECK, FIRST_USER_ID, SYSTEM_TABLES, TableDefinition
from gmdb.tables.catalog.system import column_row, constraint_row, index_row, schema_row, table_row
from gmdb.tables.catalog.tables import Catalog
from gmdb.transaction.hub import Transactions
from gmdb.transaction.session import Session


def _schemas_of_views() -> dict[str, pa.Schema]:
    """Those that are about views that users make, and about keys, for information_schema."""
    return {
        "views": pa.schema(
            [
                ("obj_id", pa.int32()),
                ("name", pa.string()),
                ("definition", pa.string()),
                ("check_option", pa.string()),
            ]
        ),
        "relations": pa.schema(
            [
                ("obj_id", pa.int32()),
                ("schema", pa.string()),
                ("name", pa.string()),
                ("full_name", pa.string()),
                ("kind", pa.string()),
                ("comment", pa.string()),
            ]
        ),
        "view_columns": pa.schema(
            [
                ("obj_id", pa.int32()),
                ("position", pa.int32()),
                ("name", pa.string()),
                ("type", pa.string()),
                ("length", pa.int32()),
                ("scale", pa.int32()),
            ]
        ),
        "key_columns": pa.schema(
            [
                ("table_id", pa.int32()),
                ("name", pa.string()),
                ("kind", pa.string()),
                ("position", pa.int32()),
                ("column_name", pa.string()),
            ]
        ),
        "index_definitions": pa.schema([("obj_id", pa.int32()), ("name", pa.string()), ("columns", pa.string())]),
        "generated_columns": pa.schema([("obj_id", pa.int32()), ("position", pa.int32()), ("expression", pa.string())]),
    }


@cache
def _schemas() -> dict[str, pa.Schema]:
    return {
        "segments": pa.schema(
            [
                ("obj_id", pa.int32()),
                ("table_id", pa.int32()),
                ("name", pa.string()),
                ("kind", pa.string()),
                ("space_id", pa.int32()),
                ("entry_page", pa.int64()),
                ("entry", pa.string()),
                ("page_count", pa.int64()),
                ("pct_free", pa.int32()),
            ]
        ),
        **_schemas_of_views(),
        "locks": pa.schema(
            [
                ("lock_id", pa.uint32()),
                ("transaction", pa.int64()),
                ("action", pa.string()),
                ("page_id", pa.uint32()),
                ("slot_id", pa.uint32()),
                ("previous", pa.uint32()),
                ("undo_page", pa.uint32()),
                ("undo_slot", pa.uint32()),
            ]
        ),
        "transactions": pa.schema(
            [("transaction", pa.int64()), ("state", pa.string()), ("scn", pa.int64()), ("locks", pa.int64())]
        ),
        "sequences": pa.schema(
            [
                ("name", pa.string()),
                ("type", pa.string()),
                ("start", pa.int64()),
                ("increment", pa.int64()),
                ("minimum", pa.int64()),
                ("maximum", pa.int64()),
                ("cycle", pa.bool_()),
                ("cache", pa.int64()),
                ("next_value", pa.int64()),
                ("table_name", pa.string()),
                ("column_name", pa.string()),
            ]
        ),
        "waits": pa.schema([("transaction", pa.int64()), ("waits_for", pa.string()), ("kind", pa.string())]),
        "snapshots": pa.schema(
            [
                ("scn", pa.int64()),
                ("behind", pa.int64()),
                ("pinned", pa.string()),
                ("taken", pa.timestamp("us")),
                ("expires", pa.timestamp("us")),
                ("held_by", pa.string()),
            ]
        ),
        "feed_readers": pa.schema(
            [
                ("name", pa.string()),
                ("scn", pa.int64()),
                ("position", pa.string()),
                ("seen", pa.timestamp("us")),
                ("keep", pa.int64()),
            ]
        ),
        "table_locks": pa.schema([("transaction", pa.int64()), ("held", pa.string()), ("mode", pa.string())]),
    }


class SystemViews:
    def __init__(
        self, catalog: Catalog, transactions: Transactions, pinned: Callable[[], list[tuple[Pin, float]]]
    ) -> None:
        self._catalog = catalog
        self._hub = transactions
        self._pinned = pinned
        self._store = catalog.store
        self._views: Mapping[str, Callable[[Session | None], pa.Table]] = {
            "sys_tables": lambda session: _listed("sys_tables", map(table_row, self._tables(session))),
            "sys_columns": self._columns,
            "sys_indexes": self._indexes,
            "sys_constraints": self._constraints,
            "sys_identities": self._identities,
            "sys_sequences": self._sequences,
            "sys_statistics": lambda _: _listed("sys_statistics", catalog.statistics.listed()),
            "sys_key_columns": self._key_columns,
            "sys_generated_columns": self._generated_columns,
            "sys_index_definitions": self._index_definitions,
            "sys_views": self._stored_views,
            "sys_schemas": self._schemas,
            "sys_relations": self._relations,
            "sys_view_columns": self._view_columns,
            "sys_streams": lambda _: _listed("sys_streams", catalog.streams.listed()),
            "sys_segments": self._segments,
            "sys_locks": lambda _: self.locks(),
            "sys_table_locks": lambda _: self._table_locks(),
            "sys_transactions": lambda _: self.transactions(),
            "sys_waits": lambda _: self._waits(),
            "sys_snapshots": lambda _: self._snapshots(),
            "sys_feed_readers": lambda _: self._feed_readers(),
        }

    def names(self) -> list[str]:
        return list(self._views)

    def view(self, name: str, session: Session | None) -> pa.Table:
        table_of = self._views.get(name.lower())
        if table_of is None:
            raise NoSuchTable(f"there is no system view {name}; there are {', '.join(self._views)}")
        return table_of(session)

    # ---- definitions

    def _tables(self, session: Session | None) -> list[TableDefinition]:
        return sorted(self._catalog.tables_of(session).values(), key=lambda table: table.obj_id)

    def _columns(self, session: Session | None) -> pa.Table:
        tables = self._tables(session)
        rows = (column_row(t.obj_id, n, column) for t in tables for n, column in enumerate(t.columns))
        return _listed("sys_columns", rows)

    def _indexes(self, session: Session | None) -> pa.Table:
        indexes = (index for table in self._tables(session) for index in table.indexes if not index.building)
        return _listed("sys_indexes", map(index_row, indexes))

    def _constraints(self, session: Session | None) -> pa.Table:
        rows = (constraint_row(table, one) for table in self._tables(session) for one in table.constraints)
        return _listed("sys_constraints", rows)

    def _stored_views(self, session: Session | None) -> pa.Table:
        views = sorted(self._catalog.views_of(session).values(), key=lambda view: view.number)
        rows = [(view.number, view.name, view.query, view.check_option or None) for view in views]
        return _table_from(_schemas()["views"], rows)

    def _schemas(self, session: Session | None) -> pa.Table:
        return _listed("sys_schemas", map(schema_row, self._catalog.schemas_of(session).values()))

    def _relations(self, session: Session | None) -> pa.Table:
        """Tables, sequences and views, with the schemas that they are in."""
        tables = [one for one in self._tables(session) if one.obj_id >= FIRST_USER_ID]
        rows: list[tuple[Any, ...]] = [
            (one.obj_id, one.schema, one.own_name, one.name, "sequence" if one.sequence else "table", one.comment)
            for one in tables
        ]
        views = self._catalog.views_of(session).values()
        rows += [(one.number, one.schema, one.own_name, one.name, "view", None) for one in views]
        return _table_from(_schemas()["relations"], sorted(rows))

    def _view_columns(self, session: Session | None) -> pa.Table:
        views = sorted(self._catalog.views_of(session).values(), key=lambda view: view.number)
        columns = ((view.number, n, one) for view in views for n, one in enumerate(view.columns))
        rows = [(number, n, c.name, c.type.name, c.type.length, c.type.scale) for number, n, c in columns]
        return _table_from(_schemas()["view_columns"], rows)

    def _key_columns(self, session: Session | None) -> pa.Table:
        rows = [
            (table.obj_id, one.name, one.kind, n, name)
            for table in self._tables(session)
            for one in table.constraints
            if one.kind != CHECK
            for n, name in enumerate(one.columns)
        ]
        return _table_from(_schemas()["key_columns"], rows)

    def _generated_columns(self, session: Session | None) -> pa.Table:
        columns = ((t.obj_id, n, one.generated) for t in self._tables(session) for n, one in enumerate(t.columns))
        rows = [(number, n, text) for number, n, text in columns if text is not None]
        return _table_from(_schemas()["generated_columns"], rows)

    def _index_definitions(self, session: Session | None) -> pa.Table:
        indexes = ((table, index) for table in self._tables(session) for index in table.indexes)
        rows = [
            (one.obj_id, one.name, written_columns(one, table.stored)) for table, one in indexes if not one.building
        ]
        return _table_from(_schemas()["index_definitions"], rows)

    def _identities(self, _: Session | None) -> pa.Table:
        return _listed("sys_identities", self._catalog.counters.listed())

    def _sequences(self, session: Session | None) -> pa.Table:
        rows = []
        for name in self._catalog.sequences(session):
            sequence = self._catalog.sequence(name, session).counts
            counting, following = Counting(*sequence.numbers), self._catalog.counters.following(sequence.counter)
            owner = (sequence.owner or None, sequence.column or None)
            rows.append((name, sequence.type, *counting.plain, following, *owner))
        return _table_from(_schemas()["sequences"], rows)

    def _segments(self, session: Session | None) -> pa.Table:
        rows = []
        with self._store.guard:
            for table in self._tables(session):
                rows.append(self._segment(table.obj_id, table.obj_id, table.name, table.entry_page))
                if table.lobs is not None:
                    rows.append(self._segment(table.lobs.obj_id, table.obj_id, table.name, table.lobs.entry_page))
                for index in table.indexes:
                    rows.append(self._segment(index.obj_id, table.obj_id, index.name, index.entry_page))
        return _table_from(_schemas()["segments"], rows)

    def _segment(self, obj_id: int, table_id: int, name: str, entry_page: int) -> tuple[Any, ...]:
        segment = Segment(self._store, self._store.space_of(entry_page), entry_page)
        head = segment.head
        place = (segment.space.space_id, entry_page, page_name(entry_page))
        kind = SegmentType(int(head.type)).name.lower()
        return obj_id, table_id, name, kind, *place, int(head.page_count), int(head.pct_free)

    # ---- what is going on

    def locks(self) -> pa.Table:
        """Every lock in use: its transaction, action and row, and the lock beneath it."""
        with self._store.guard:
            memory = self._hub.memory
            used = memory.locks[: memory.get("lock_high")]
            ids = (used["action"] != 0).nonzero()[0]
            rows = used[ids]
            transactions = memory.transactions[rows["transaction"]]
            return pa.table(
                [
                    pa.array(ids, pa.uint32()),
                    pa.array(transactions["number"], pa.int64()),
                    pa.array([LockAction(int(action)).name for action in rows["action"]], pa.string()),
                    pa.array(rows["row_page"], pa.uint32()),
                    pa.array(rows["row_slot"].astype("uint32"), pa.uint32()),
                    pa.array(rows["previous"], pa.uint32()),
                    pa.array(rows["undo_page"], pa.uint32()),
                    pa.array(rows["undo_slot"], pa.uint32()),
                ],
                schema=_schemas()["locks"],
            )

    def transactions(self) -> pa.Table:
        """Every transaction that is open, or has ended and is not yet purged."""
        with self._store.guard:
            memory = self._hub.memory
            ended = {e.slot: "rolled back" if e.scn == 0 else "committed" for e in self._hub.collector.history}
            states = {**dict.fromkeys(self._hub.active, "active"), **ended}
            slots = sorted(states)
            rows = memory.transactions[slots]
            transactions = zip(slots, rows, strict=True)
            return _table_from(
                _schemas()["transactions"],
                [
                    (int(row["number"]), states[slot], int(row["scn"]) if row["scn"] > 0 else None, int(row["locks"]))
                    for slot, row in transactions
                ],
            )

    def _table_locks(self) -> pa.Table:
        names: dict[Any, str] = {table.number: table.name for table in self._catalog.tables.values()}
        with self._store.guard:
            rows = [
                (self._number(session), names.get(key, str(key)), "alone" if alone else "shared")
                for key, session, alone in self._hub.tables.holders()
            ]
        return _table_from(_schemas()["table_locks"], rows)

    def _waits(self) -> pa.Table:
        with self._store.guard:
            rows = []
            for session, key in self._hub.waits.waiting():
                kind = "row" if key is None or isinstance(key, RowId) else "table"
                awaited = key if kind == "row" or not isinstance(key, tuple) else key[1]
                rows.append((self._number(session), None if awaited is None else str(awaited), kind))
        return _table_from(_schemas()["waits"], rows)

    def _snapshots(self) -> pa.Table:
        with self._store.guard:
            newest = self._hub.memory.scn
            scns = sorted(snapshot.scn for snapshot in self._hub.snapshots.held())
        rows: list[tuple[Any, ...]] = [(scn, newest - scn, None, None, None, None) for scn in scns]
        for pin, expires in self._pinned():
            times = (_microseconds(pin.created), _microseconds(expires))
            rows.append((pin.scn, newest - pin.scn, pin.name, *times, str(pin.holder)))
        return _table_from(_schemas()["snapshots"], rows)

    def _feed_readers(self) -> pa.Table:
        directory, mine = self._store.directory, self._store.control["database_id"]
        rows = [
            (one.name, LogPosition.from_text(one.position, mine).scn, one.position, _microseconds(one.seen), one.keep)
            for one in read_readers(directory)
            if one.database_id == mine
        ]
        return _table_from(_schemas()["feed_readers"], rows)

    def _number(self, session: Session) -> int | None:
        """The number of a session's transaction; none if it has changed nothing yet."""
        return self._hub.memory.number(session.slot) if session.slot >= 0 else None


def _microseconds(seconds: float) -> int:
    return int(seconds * 1_000_000)


def _listed(name: str, rows: Iterable[tuple[Any, ...]]) -> pa.Table:
    """Rows of a system table."""
    _, columns = SYSTEM_TABLES[name]
    return _table_from(arrow_schema(columns), list(rows))


def _table_from(schema: pa.Schema, rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.table(arrays, schema=schema)
