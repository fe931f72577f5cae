"""Indexes that Spark builds: the same as those of CREATE INDEX, beside writers; and nothing is left of failures."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import gmdb
import gmdb.spark
from gmdb.cli.program import main
from gmdb.database.connection import Connection
from gmdb.errors import (
    Corruption,
    InterfaceError,
    NoSuchColumn,
    NoSuchTable,
    NotADatabase,
    NotSupportedError,
    SchemaError,
    SnapshotExpired,
    UniqueViolation,
    ValueTooLong,
)
from gmdb.spark import distributed_index
from gmdb.spark.distributed_index import make_leaves, sort_pages
from gmdb.spark.table_reader import divide, table_pages
from gmdb.storage.documents import Holder
from gmdb.storage.loads import LOADS_NAME, new_load, staged_path
from gmdb.storage.pins import read_pins
from gmdb.tables.access.indexes import NewIndex
from tests.integrity import assert_sound
from tests.server.peer import Peer
from tests.sessions import until

pytestmark = pytest.mark.spark
ROWS = 20_000
COLUMNS = {
    "n": "INT NOT NULL",
    "i": "INT",
    "b": "BIGINT",
    "x": "DOUBLE",
    "d": "DECIMAL(30,4)",
    "s": "VARCHAR(60)",
    "r": "VARBINARY(20)",
}
INDEXES: dict[str, tuple[list[str], bool]] = {
    "by_i": (["i"], False),
    "by_s": (["s"], False),
    "by_dx": (["d", "x"], False),
    "by_rib": (["r", "i", "b"], False),
    "by_n": (["n"], True),
    "by_bn": (["b", "n"], True),  # with NULLs, of which there may be many
}


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide also what is small: several runs, several ranges of keys."""
    monkeypatch.setattr(distributed_index, "SORT_BYTES", 256 << 10)
    monkeypatch.setattr(distributed_index, "MERGE_BYTES", 128 << 10)


def rows(count: int, seed: int = 1) -> pa.Table:
    chance = random.Random(seed)

    def column(make: Any, type_: pa.DataType) -> pa.Array:
        return pa.array([None if chance.random() < 0.1 else make() for _ in range(count)], type_)

    return pa.table(
        {
            "n": pa.array(chance.sample(range(-count, count), count), pa.int32()),
            "i": column(lambda: chance.randrange(-50, 50), pa.int32()),
            "b": column(lambda: chance.randrange(-(1 << 62), 1 << 62), pa.int64()),
            "x": column(lambda: chance.choice((float("nan"), -0.0, 0.0, chance.gauss(0, 1e9))), pa.float64()),
            "d": column(lambda: Decimal(chance.randrange(-(10**12), 10**12)).scaleb(-4), pa.decimal128(30, 4)),
            "s": column(lambda: "same beginning " * chance.randrange(3) + str(chance.random())[:4], pa.string()),
            "r": column(lambda: chance.randbytes(chance.randrange(3)), pa.binary()),
        }
    )


def fill(db: Connection, data: pa.Table) -> None:
    db.create_table("t", COLUMNS)
    db.append("t", data)
    db.commit()


def entries(db: Connection, index: str) -> list[str]:
    """The keys and row ids of an index, in its order; as texts, so that NaN is NaN."""
    db.commit()
    found = [repr(entry) for entry in db.heap("t").by(index).tree.walk()]
    db.commit()
    return found


def require_nothing_left(db: Connection, name: str) -> None:
    """The table has no such index, nothing is pinned, and there are no files."""
    db.commit()
    assert name not in [index.name for index in db.table("t").indexes]
    assert read_pins(db.path) == []
    assert not (db.path / LOADS_NAME).exists()
    db.execute("insert into t (n) values (1000000)")
    db.execute("delete from t where n = 1000000")
    db.commit()
    db.create_index(name, "t", ["x"])  # the name is free
    db.drop_index(name)
    db.commit()


@pytest.fixture
def table(db: Connection) -> Connection:
    fill(db, rows(ROWS))
    return db


@pytest.fixture
def closed(path: Path) -> Iterator[Path]:
    """The same table, in a database that the test opens and closes."""
    with gmdb.connect(path) as db:
        fill(db, rows(ROWS))
    yield path
    assert_sound(path)


@pytest.mark.parametrize("name", INDEXES)
def test_it_is_what_create_index_makes(spark: SparkSession, table: Connection, name: str) -> None:
    columns, unique = INDEXES[name]
    made = gmdb.spark.create_index(spark, table.path, name, "t", columns, unique)
    assert made.entries == ROWS
    table.create_index("other", "t", columns, unique=unique)
    assert entries(table, name) == entries(table, "other")
    (definition,) = (index for index in table.table("t").indexes if index.name == name)
    assert (definition.unique, definition.using, definition.building) == (unique, "btree", False)


def test_rows_are_found_by_it(spark: SparkSession, table: Connection) -> None:
    queries = ["i = 7", "i between -3 and 12", "i > 45", "i is null", "i < -48"]
    said = [table.execute(f"select n from t where {where} order by n").fetchall() for where in queries]
    table.commit()
    gmdb.spark.create_index(spark, table.path, "by_i", "t", ["i"])
    plan = str(table.execute("explain select n from t where i = 7").fetchall())
    assert "by_i" in plan
    assert [table.execute(f"select n from t where {where} order by n").fetchall() for where in queries] == said


@pytest.mark.parametrize("count", [0, 1, 40])
def test_tables_of_a_page_or_none(spark: SparkSession, db: Connection, count: int) -> None:
    fill(db, rows(count))
    assert gmdb.spark.create_index(spark, db.path, "by_n", "t", ["n"], unique=True).entries == count
    assert len(entries(db, "by_n")) == count
    db.execute("insert into t (n) values (77777)")
    with pytest.raises(UniqueViolation):
        db.execute("insert into t (n) values (77777)")
    db.rollback()


@pytest.mark.parametrize("unique", [False, True])
def test_keys_that_are_all_the_same(spark: SparkSession, db: Connection, unique: bool) -> None:
    """Also they are divided among tasks: a unique index may have any number of NULLs."""
    data = rows(ROWS).set_column(1, "i", pa.array([None if unique else 5] * ROWS, pa.int32()))
    fill(db, data)
    gmdb.spark.create_index(spark, db.path, "by_i", "t", ["i"], unique)
    db.create_index("other", "t", ["i"], unique=unique)
    assert entries(db, "by_i") == entries(db, "other")


def test_pages_of_another_size_and_long_keys(spark: SparkSession, db: Connection) -> None:
    """Keys of up to 2000 bytes, so that the tree has several levels."""
    db.create_tablespace("large", page_size=32768)
    db.create_table("t", {"s": "VARCHAR(1990)"}, tablespace="large")
    chance = random.Random(3)
    db.append("t", pa.table({"s": [chance.choice("abc") * chance.randrange(1990) for _ in range(3000)]}))
    db.commit()
    gmdb.spark.create_index(spark, db.path, "by_s", "t", ["s"])
    db.create_index("other", "t", ["s"])
    assert entries(db, "by_s") == entries(db, "other")


def test_beside_writers(spark: SparkSession, table: Connection) -> None:
    """What others insert, update, delete and roll back meanwhile; notes grow, so that rows leave their pages."""
    stop, done = threading.Event(), [0, 0]
    table.create_index("numbers", "t", ["n"])
    table.commit()

    def work(number: int) -> None:
        chance = random.Random(number)
        with gmdb.connect(table.path, lock_timeout=60) as db:
            for step in range(1 << 30):
                if stop.is_set():
                    return
                key = 2 * chance.randrange(ROWS) - ROWS + number % 2
                fresh = 10 * ROWS + 2 * step + number
                db.execute(
                    "update t set i = ?, s = ? where n = ?", (chance.randrange(99), "w" * chance.randrange(60), key)
                )
                db.execute("insert into t (n, i) values (?, ?)", (fresh, chance.randrange(99)))
                if step % 3 == 0:
                    db.execute("delete from t where n = ?", (fresh - 2,))
                db.rollback() if step % 7 == 0 else db.commit()
                done[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    try:
        for name, columns in (("by_i", ["i"]), ("by_sn", ["s", "n"])):
            before = sum(done)
            gmdb.spark.create_index(spark, table.path, name, "t", columns, name == "by_sn")
            assert sum(done) > before
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    table.gc()
    table.create_index("other", "t", ["i"])
    table.create_index("another", "t", ["s", "n"])
    assert entries(table, "by_i") == entries(table, "other")
    assert entries(table, "by_sn") == entries(table, "another")


def test_rows_in_flight_when_it_begins_and_long_after(spark: SparkSession, table: Connection) -> None:
    """A transaction that began before waits for nobody afterwards, and what it does is in the index once."""
    table.checkpoint()
    with gmdb.connect(table.path) as other:
        made: list[Any] = []
        building = threading.Thread(
            target=lambda: made.append(gmdb.spark.create_index(spark, table.path, "by_i", "t", ["i"]))
        )
        other.execute("update t set i = 4711 where n > 0")
        building.start()
        time.sleep(0.5)
        other.execute("update t set i = 4712 where n > 100")
        other.commit()
        building.join()
    assert made
    table.create_index("other", "t", ["i"])
    table.gc()
    assert entries(table, "by_i") == entries(table, "other")


# ---- what is refused


def test_a_key_that_is_there_twice_is_named(spark: SparkSession, table: Connection) -> None:
    n, i = table.execute("select n, i from t where i is not null limit 1").fetchone()
    table.execute("insert into t (n, i) values (?, ?)", (n, i))
    table.commit()
    with pytest.raises(UniqueViolation, match=rf"^table t, index by_ni: .*\(n, i\): {n}, {i}$"):
        gmdb.spark.create_index(spark, table.path, "by_ni", "t", ["n", "i"], unique=True)
    require_nothing_left(table, "by_ni")


def test_a_key_that_comes_twice_meanwhile(
    spark: SparkSession, table: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    divided = distributed_index._bounds

    def bounds(*arguments: Any) -> list[bytes]:
        with gmdb.connect(table.path) as other:
            other.execute("insert into t (n) select n from t limit 1")
        return divided(*arguments)

    monkeypatch.setattr(distributed_index, "_bounds", bounds)
    with pytest.raises(UniqueViolation, match="index by_n: two rows have the same key"):
        gmdb.spark.create_index(spark, table.path, "by_n", "t", ["n"], unique=True)
    require_nothing_left(table, "by_n")


def test_a_snapshot_that_was_dropped(spark: SparkSession, table: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    divided = distributed_index._bounds

    def bounds(*arguments: Any) -> list[bytes]:
        found = divided(*arguments)
        for pin in read_pins(table.path):
            table.drop_snapshot(pin.name)
        return found

    monkeypatch.setattr(distributed_index, "_bounds", bounds)
    with pytest.raises(SnapshotExpired):
        gmdb.spark.create_index(spark, table.path, "by_n", "t", ["n"])
    require_nothing_left(table, "by_n")


def test_bad_input(spark: SparkSession, table: Connection, tmp_path: Path) -> None:
    table.create_table("wide", {"s": "VARCHAR(3000)"})
    table.insert("wide", ["x" * 2500])
    table.commit()

    def build(table_: str = "t", columns: Sequence[str] = ("n",), **more: Any) -> None:
        distributed_index.create_index(spark, more.pop("path", table.path), "bad", table_, columns, **more)

    with pytest.raises(NotSupportedError, match="B-trees only; CREATE INDEX bad ON t USING hash"):
        build(using="hash")
    with pytest.raises(NoSuchTable):
        build("nowhere")
    with pytest.raises(NoSuchColumn):
        build(columns=["n", "q"])
    with pytest.raises(SchemaError, match="twice"):
        build(columns=["n", "n"])
    with pytest.raises(ValueTooLong, match="table wide, index bad: a row has a key of over 2000 bytes"):
        build("wide", ["s"])
    with pytest.raises(NotADatabase):
        build(path=tmp_path / "none.gmdb")
    require_nothing_left(table, "bad")


# ---- builds that end early, step by step


class Build:
    """What the driver does, one step at a time."""

    def __init__(self, db: Connection, name: str = "by_s", columns: Sequence[str] = ("s",)) -> None:
        self.db, self.load_id = db, new_load(db.path, Holder.this_process())
        new = NewIndex(name, tuple(columns))
        self.index, pin = db._begin_index("t", new, load_id=self.load_id, holder=Holder.this_process())
        self.plan = distributed_index._plan(db.path, pin, "t", self.index, self.load_id)

    def leaves(self) -> list[str]:
        pages = table_pages(self.plan.path, self.plan.pin, self.plan.table.entry_page)
        bounds = distributed_index._bounds(self.plan, pages, 2)
        pieces = [piece for n, part in enumerate(divide(pages, 50)) for piece in sort_pages(self.plan, n, part, bounds)]
        ranges = [[piece for at, piece in pieces if at == n] for n in range(len(bounds) + 1)]
        assert len(bounds) > 2
        return [make_leaves(self.plan, n, parts).name for n, parts in enumerate(ranges)]

    def path(self, name: str) -> Path:
        return staged_path(self.db.path, self.load_id, name)


def test_step_by_step(table: Connection) -> None:
    build = Build(table)
    with pytest.raises(InterfaceError, match="already"):
        table._begin_index("t", NewIndex("another", ("i",)), load_id=build.load_id, holder=Holder.nobody())
    assert table._finish_index(build.leaves()) == ROWS
    table.create_index("other", "t", ["s"])
    assert entries(table, "by_s") == entries(table, "other")
    assert read_pins(table.path) == []
    assert not (table.path / LOADS_NAME).exists()
    with pytest.raises(InterfaceError, match="builds no index"):
        table._finish_index([])


@pytest.mark.parametrize("damage", ["byte", "order", "short", "missing", "other"])
def test_leaves_that_are_not_whole_or_not_in_order(table: Connection, damage: str) -> None:
    build = Build(table)
    names = build.leaves()
    path = build.path(names[1])
    raw = bytearray(path.read_bytes())
    if damage == "byte":
        raw[5000] ^= 1
    elif damage == "order":
        names[0], names[1] = names[1], names[0]
    elif damage == "short":
        del raw[8192:16384]
    elif damage == "other":
        raw[-20] ^= 1
    path.write_bytes(raw)
    if damage == "missing":
        path.unlink()
    with pytest.raises((Corruption, gmdb.errors.StorageError), match=build.load_id):
        table._finish_index(names)
    require_nothing_left(table, "by_s")


def test_a_connection_that_is_closed_abandons_its_build(table: Connection) -> None:
    with gmdb.connect(table.path) as other:
        Build(other)
        assert len(read_pins(table.path)) == 1
    require_nothing_left(table, "by_s")


def test_a_writer_that_goes_on_when_a_build_is_abandoned(table: Connection) -> None:
    build = Build(table)
    with gmdb.connect(table.path) as writer:
        writer.execute("update t set s = 'mine' where n > 0")
        table.session.lock_timeout = 0.3
        table._abandon_index()  # does not wait for the writer, which would be for ever
        writer.execute("update t set s = 'mine again' where n > 10")
        writer.commit()
    table.session.lock_timeout = 30
    require_nothing_left(table, "by_s")
    assert build.index.name == "by_s"


@pytest.fixture
def client() -> Iterator[Peer]:
    made = Peer("from gmdb.storage.documents import Holder\nfrom gmdb.storage.loads import new_load")
    yield made
    made.end()


def begin(client: Peer, path: Path) -> None:
    """Have another process begin to build an index."""
    client("db = gmdb.connect(path)", path=path)
    client("load_id = new_load(path, Holder.this_process())")
    client("from gmdb.tables.access.indexes import NewIndex")
    client("made = db._begin_index('t', NewIndex('by_s', ('s',)), load_id=load_id, holder=Holder.this_process())")
    assert len(read_pins(path)) == 1


def test_a_client_that_is_killed(table: Connection, client: Peer) -> None:
    begin(client, table.path)
    client.process.kill()
    until(lambda: not read_pins(table.path) and not (table.path / LOADS_NAME).exists())
    table.session.lock_timeout = 30
    require_nothing_left(table, "by_s")


def test_an_owner_that_closes_while_a_client_builds(closed: Path, client: Peer) -> None:
    with gmdb.connect(closed):
        begin(client, closed)
    with pytest.raises(gmdb.errors.OwnerGone):
        client("db._finish_index([])")
    with gmdb.connect(closed) as again:
        again.session.lock_timeout = 30
        require_nothing_left(again, "by_s")


def test_a_database_that_another_process_has_open(spark: SparkSession, closed: Path, peer: Peer) -> None:
    peer("db = gmdb.connect(path)", path=closed)
    try:
        assert gmdb.spark.create_index(spark, closed, "by_i", "t", ["i"]).entries == ROWS
        with pytest.raises(UniqueViolation):
            gmdb.spark.create_index(spark, closed, "unique_i", "t", ["i"], unique=True)
        assert peer("[index.name for index in db.table('t').indexes]") == ["by_i"]
    finally:
        peer("db.close()")


# ---- the command


@pytest.mark.usefixtures("spark")
def test_the_command(table: Connection, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(table.path)
    assert main(["spark", "index", path, "by_is", "t", "i,s", "--json", "--quiet"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["index"], told["rows"]) == ("by_is", ROWS)
    assert main(["spark", "index", path, "by_n", "t", "n", "--unique", "--quiet"]) == 0
    assert f"index by_n: {ROWS:,} rows" in capsys.readouterr().out
    assert main(["spark", "index", path, "twice", "t", "i", "--unique", "--quiet"]) == 2
    assert "two rows have the same key (i)" in capsys.readouterr().err
    assert main(["spark", "index", path, "h", "t", "i", "--using", "hash"]) == 2
    assert "B-trees only" in capsys.readouterr().err
    require_nothing_left(table, "twice")
