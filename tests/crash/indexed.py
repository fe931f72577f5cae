"""Tables with indexes for crash tests: key columns that follow from a row's other columns, and the check of both.

Keys are long and alike, so that pages split and merge with a few hundred rows.
"""

from __future__ import annotations

import pyarrow as pa

from gmdb.database.connection import Connection
from tests.model.checks import check_indexes as check_quiet_indexes
from tests.model.checks import rows_of

COLUMNS = {"k": "INT NOT NULL", "s": "VARCHAR(3000)", "n": "INT", "tag": "VARCHAR(300)", "lob": "BLOB"}
_SCHEMA = pa.schema(
    [
        pa.field("k", pa.int32(), nullable=False),
        ("s", pa.string()),
        ("n", pa.int32()),
        ("tag", pa.string()),
        ("lob", pa.large_binary()),
    ]
)
LOB_SIZES = (0, 10, 400, 600, 600, 3000, 9000)  # times two: in the row, on a page, on several
INDEXES = {
    "unique": (["k"], True, "btree", ""),
    "tags": (["tag"], False, "btree", ""),
    "both": (["n", "tag"], False, "btree", ""),
    "all": (["tag", "n", "k"], True, "btree", ""),
    "key": (["k"], True, "hash", ""),
    "numbers": (["n"], False, "hash", ""),
    "hashed": (["tag", "n"], False, "hash", ""),
    "some": (["n", "tag"], False, "btree", "n > 3 or tag < '3' and n is not null"),
    "someunique": (["k"], True, "btree", "n in (1, 2, 5)"),
    "somehashed": (["n"], False, "hash", "tag is not null and n <> 0"),
}
UNIQUE = [kind for kind, (columns, unique, _, where) in INDEXES.items() if unique and columns == ["k"] and not where]


def index_name(table: str, kind: str) -> str:
    return f"{table}_{kind}"


def key_columns(key: int, text: str | None) -> tuple[int | None, str | None, bytes | None]:
    """What a row with that key and text has in ``n``, ``tag`` and ``lob``: few different values, some of them none."""
    size = len(text or "")
    number = None if size % 5 == 0 else size % 7
    lob = None if size % 3 == 0 else bytes([key % 251, size % 241]) * LOB_SIZES[(key + size) % len(LOB_SIZES)]
    return number, None if text is None else f"{size * 31 % 97:02d}" * (20 + key * 13 % 100), lob


def to_arrow(rows: list[tuple[int, str | None]]) -> pa.Table:
    full = [(*row, *key_columns(*row)) for row in rows]
    columns = [list(column) for column in zip(*full, strict=True)] or [[], [], [], [], []]
    return pa.table(columns, schema=_SCHEMA)


def check_indexes(db: Connection, table: str, quiet: bool = True) -> None:
    """Every row is found by its keys, and in their order; with nobody at work, an index has nothing else."""
    heap = db.heap(table)
    all_rows = list(heap.rows())
    for row_id, values in all_rows:
        assert len(values) == 2 or tuple(values[2:]) == key_columns(values[0], values[1]), (table, row_id)
    for index in heap.indexes:
        keyed, rows = heap.by(index.name), rows_of(db, table, index, all_rows)
        keys = {row_id: tuple(values[n] for n in index.positions) for row_id, values in rows}
        if index.using == "hash":
            by_key = [row for key in set(keys.values()) for row in keyed.find(key)]
        else:
            by_key = list(keyed.range())
            order = [tuple((values[n] is None, values[n]) for n in index.positions) for _, values in by_key]
            assert order == sorted(order), f"{index.name} is out of order"
        assert sorted(map(repr, by_key)) == sorted(map(repr, rows)), f"{index.name}: rows and entries differ"
        for row_id, values in rows if index.unique else rows[:20]:
            assert (row_id, values) in keyed.find(keys[row_id]), f"{index.name} does not find {keys[row_id]}"
    db.commit()
    if quiet:
        check_quiet_indexes(db, table)
