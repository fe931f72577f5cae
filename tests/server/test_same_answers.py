"""A connection through an owner answers as one of the owner's own does: results, errors and their messages."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.database.operations import declarations_of, declared_in, members_of
from gmdb.format.address import RowId
from gmdb.server.entrance import Listening
from gmdb.server.operations import OPERATIONS
from gmdb.server.remote import RemoteConnection
from gmdb.server.remote_rows import RemoteHeap
from gmdb.tables.access.heap import Heap
from tests.server.peer import Peer
from tests.server.serving import TOKEN, Certificates

TYPES = {
    "a": "INT",
    "b": "BIGINT",
    "c": "DOUBLE",
    "d": "BOOLEAN",
    "e": "DATE",
    "f": "TIMESTAMP",
    "g": "DECIMAL(20,4)",
    "h": "CHAR(5)",
    "i": "VARCHAR(20)",
    "j": "BINARY(3)",
    "k": "VARBINARY(9)",
}
FULL = (
    -1,
    1 << 60,
    0.5,
    True,
    date(2024, 2, 29),
    datetime(2024, 2, 29, 1, 2, 3, 4),
    Decimal("12345678901.2345"),
    "ab",
    "grüß",
    b"123",
    b"",
)


def outcome(action: Callable[[], Any]) -> Any:
    """What comes of it, in a form that can be compared."""
    try:
        made = action()
        return made.read_all().to_pydict() if isinstance(made, pa.RecordBatchReader) else made
    except Exception as error:
        return type(error), str(error)


def every_type(db: Connection) -> Iterator[Any]:
    db.create_table("all", TYPES)
    db.commit()
    heap = db.heap("all")
    ids = [heap.insert(FULL), heap.insert((None,) * len(TYPES)), db.insert("all", FULL)]
    yield ids
    for row_id in ids:
        yield heap.fetch(row_id)
    heap.update(ids[0], {"h": None, "a": 7, "g": Decimal("-0.5")})
    heap.update(ids[1], FULL)
    yield list(heap.rows())
    yield db.arrow("all")
    yield db.arrow("all", ["i", "a"])
    yield db.append("all", db.arrow("all"))
    yield db.arrow("all", ["g"])
    yield db.table("all"), db.tables()


def wrong_values(db: Connection) -> Iterator[Any]:
    db.create_table("w", {"i": "INT NOT NULL", "s": "VARCHAR(3)", "v": "VARBINARY(9000)"})
    db.commit()
    heap = db.heap("w")
    row_id = heap.insert((1, "a", b""))
    batch = pa.table({"i": [1, 2], "s": ["a", "long"], "v": [b"", b""]})
    for action in (
        lambda: heap.insert((None, "a", None)),
        lambda: heap.insert((1 << 40, "a", None)),
        lambda: heap.insert(("x", "a", None)),
        lambda: heap.insert((1, "abcd", None)),
        lambda: heap.insert((1,)),
        lambda: heap.insert((1, "a", b"x" * 9000)),
        lambda: heap.update(row_id, {"nope": 1}),
        lambda: heap.update(row_id, (1,)),
        lambda: heap.update(row_id, {"v": b"x" * 9000}),
        lambda: heap.fetch(RowId(row_id.page_id, 77)),
        lambda: heap.update(RowId(row_id.page_id, 77), {"i": 1}),
        lambda: heap.delete(RowId(9, 9)),
        lambda: heap.lock(RowId(row_id.page_id, 3)),
        lambda: db.append("w", batch),
        lambda: db.append("w", batch.rename_columns(["i", "s", "x"])),
        lambda: db.append("w", pa.table({"i": [1, None], "s": ["", ""], "v": [b"", b""]})),
        lambda: db.append("w", [batch.slice(0, 1), 5]),
        lambda: db.append("w", 5),
        lambda: db.append("nowhere", batch),
        lambda: db.arrow("w", ["i", "i"]),
        lambda: db.arrow("w", ["z"]),
        lambda: db.arrow("nowhere"),
        lambda: db.heap("nowhere"),
        lambda: db.table("nowhere"),
        lambda: db.update("w", {"z": 1}),
        lambda: db.update("w", {"s": "abcd"}),
        lambda: db.update("w", lambda row: {"i": row["nope"]}),
        lambda: db.delete("w", lambda row: row["i"] / 0 > 1),
        lambda: db.arrow("w"),
    ):
        yield outcome(action)


def changed_definitions(db: Connection) -> Iterator[Any]:
    unique = gmdb.Constraint("unique", ("s",))
    identity = gmdb.Column("id", gmdb.ColumnType("BIGINT"), False, identity="always")
    db.create_table("d", [("s", "VARCHAR(5)"), identity], constraints=[unique, gmdb.Constraint("check", (), "s > 'a'")])
    heap = db.heap("d")
    for action in (
        lambda: heap.insert(("x", db.next_identity("d", "id"))),
        lambda: db.next_identity("d", "id", 5),
        lambda: db.next_identity("d", "s"),
        lambda: db.savepoint("here"),
        lambda: db.add_column("d", ("c", "DECIMAL(9,2) NOT NULL"), Decimal("1.50")),
        lambda: db.add_column("d", ("n", "INT NOT NULL")),
        lambda: db.rename_column("d", "s", "t", checks={"d_check": "t > 'a'"}),
        lambda: db.alter_column("d", "t", default="'z'"),
        lambda: db.alter_column("d", "t", color="red"),
        lambda: db.rename_table("d", "e"),
        lambda: db.table("e"),
        lambda: db.arrow("e"),
        lambda: db.drop_constraint("e", "d_s_key"),
        lambda: db.drop_constraint("e", "d_s_key"),
        lambda: db.add_constraint("e", gmdb.Constraint("primary key", ("id",))),
        lambda: db.truncate_table("e"),
        lambda: db.system_view("sys_constraints").to_pylist(),
        lambda: db.system_view("sys_nothing"),
        lambda: list(db.heap("e").rows()),
        lambda: db.rollback_to("here"),
        lambda: db.table("d"),
        lambda: list(heap.rows()),
        db.rollback,
        db.tables,
    ):
        yield outcome(action)


def definitions(db: Connection) -> Iterator[Any]:
    for action in (
        lambda: db.create_table("u", {"i": "INT", "s": "CHAR(2)"}),
        lambda: db.create_table("U", {"i": "INT"}),
        lambda: db.create_table("x", {"i": "INTEGERISH"}),
        lambda: db.create_table("x", [("i", "INT"), ("I", "INT")]),
        lambda: db.create_table("x", {}),
        lambda: db.create_table("x", {"i": "INT"}, tablespace="nowhere"),
        lambda: db.create_table("x", {"i": "INT"}, tablespace="undo"),
        lambda: db.create_table("x", {"i": "INT"}, pct_free=95),
        lambda: db.create_tablespace("wide", page_size=32768, devices=2),
        lambda: db.create_tablespace("wide"),
        lambda: db.create_tablespace("odd", page_size=1000),
        lambda: db.create_table("x", {"v": "VARBINARY(20000)"}, tablespace="wide", pct_free=5),
        lambda: db.insert("x", (b"x" * 20000,)),
        lambda: db.drop_table("u"),
        lambda: db.drop_table("u"),
        lambda: db.drop_table("sys_tables"),
        db.tables,
        lambda: db.table("X").columns,
    ):
        yield outcome(action)


def transactions(db: Connection) -> Iterator[Any]:
    db.create_table("n", {"i": "INT"})
    db.commit()
    for action in (
        lambda: db.in_transaction,
        db.begin,
        lambda: db.insert("n", (1,)),
        lambda: db.in_transaction,
        db.begin,
        lambda: db.savepoint("a"),
        lambda: db.insert("n", (2,)),
        lambda: db.savepoint("b"),
        lambda: db.delete("n"),
        lambda: db.arrow("n"),
        lambda: db.rollback_to("b"),
        lambda: db.arrow("n"),
        lambda: db.rollback_to("a"),
        lambda: db.rollback_to("b"),
        lambda: db.release_savepoint("a"),
        lambda: db.release_savepoint("a"),
        lambda: db.arrow("n"),
        db.rollback,
        lambda: db.gc() >= 0,  # else it is chance which slots are free when the next row comes
        lambda: db.arrow("n"),
        lambda: db.autocommit,
        lambda: setattr(db, "autocommit", True),
        lambda: db.insert("n", (3,)),
        lambda: db.in_transaction,
        lambda: db.update("n", lambda row: {"i": row["i"] + 1}),
        lambda: db.append("n", pa.table({"i": [8, 9]})),
        db.rollback,
        lambda: db.arrow("n"),
        lambda: list(db.heap("n").rows()),
        lambda: db.autocommit,
        lambda: setattr(db, "autocommit", False),
        lambda: len(db.locks()) > 0,
        lambda: db.gc() >= 0,
        lambda: db.locks().schema,
        lambda: db.transactions().schema,
        lambda: db.locks().num_rows,
        lambda: db.insert("n", (5,)),
        lambda: type(db.checkpoint()),
        lambda: [row["state"] for row in db.transactions().to_pylist()],
        lambda: [(row["action"], row["slot_id"]) for row in db.locks().to_pylist()],
        db.commit,
        lambda: type(db.checkpoint()),
        db.commit,
    ):
        yield outcome(action)


def statements(db: Connection) -> Iterator[Any]:
    db.create_table("s", {"i": "INT", "s": "VARCHAR(30)"})
    db.commit()
    db.append("s", pa.table({"i": range(3000), "s": [f"row {i}" for i in range(3000)]}))
    yield db.update("s", lambda row: {"s": "grown to " + row["s"]}, lambda row: row["i"] % 2 == 0)
    yield db.delete("s", lambda row: row["i"] % 3 == 0)
    yield db.select_for_update("s", lambda row: row["i"] < 20)
    yield db.update("s", {"i": -1}, lambda row: row["i"] > 2000)
    yield db.update("s", {}, lambda row: row["i"] == 1)
    yield sorted(db.arrow("s").read_all().to_pylist(), key=str)
    yield [values for _, values in db.heap("s").rows()]


def keys(db: Connection) -> Iterator[Any]:
    db.create_table("k", {"i": "INT", "s": "VARCHAR(30)"})
    db.commit()
    db.append("k", pa.table({"i": range(3000), "s": [f"{i % 5}" for i in range(3000)]}))
    for action in (
        lambda: db.create_index("k_i", "k", ["i"], unique=True, using="hash"),
        lambda: db.create_index("k_both", "k", ["s", "i"], using="hash"),
        lambda: db.create_index("k_s", "k", ["s"], using="hash"),
        lambda: db.create_index("k_tree", "k", ["s", "i"]),
        lambda: db.create_index("k_x", "k", ["s"], using="heap"),
        lambda: [(index.name, index.using, index.unique) for index in db.table("k").indexes],
        lambda: db.heap("k").by("k_i").find((77,)),
        lambda: db.heap("k").by("k_i").find((7777,)),
        lambda: sorted(db.heap("k").by("k_s").find(("3",))),
        lambda: db.heap("k").by("k_both").find(("3", 8)),
        lambda: db.heap("k").by("k_both").find(("3",)),
        lambda: db.heap("k").by("k_both").range(("3",), ("4",)),
        lambda: db.heap("k").by("k_tree").find(("3",)),
        lambda: list(db.heap("k").by("k_tree").range(("3", 2900), ("4", 100))),
        lambda: db.insert("k", (77, "again")),
        lambda: db.execute("create unique index k_part on k (i desc) include (s) where s = '3' and i > 7").rowcount,
        lambda: list(db.heap("k").by("k_part").range((18,), (3,))),
        lambda: db.heap("k").by("k_part").find((13,)),
        lambda: db.execute("select i from k where s = '3' and i > 2990 order by i desc").fetchall(),
        lambda: [(index.name, index.directions, index.condition) for index in db.table("k").indexes],
        lambda: db.heap("k").insert((13, "3")),
        lambda: (
            db.execute("insert into k values (13, '3') on conflict (i) where s = '3' and i > 10 do nothing").rowcount
        ),
        lambda: db.drop_index("k_i"),
        lambda: db.heap("k").by("k_i"),
    ):
        yield outcome(action)


def nested_use(db: Connection) -> Iterator[Any]:
    """The program's own functions use the connection while a statement of it runs."""
    db.create_table("o", {"i": "INT"})
    db.create_table("p", {"i": "INT"})
    db.commit()
    db.append("o", pa.table({"i": range(10)}))
    yield db.append("p", (batch for batch in db.arrow("o")))
    yield db.update("o", {"i": 50}, lambda row: any(values == (row["i"],) for _, values in db.heap("p").rows()))
    yield outcome(lambda: db.update("o", lambda row: db.delete("p") and {"i": row["i"] + 1}))
    yield outcome(lambda: db.update("o", lambda _: db.delete("o") and {"i": 1}))
    yield db.arrow("o")
    yield db.arrow("p")
    reader = db.arrow("o")
    yield db.delete("o")
    yield reader
    own = db.arrow("p")
    db.rollback()
    yield outcome(lambda: own)
    yield db.arrow("o")
    yield db.arrow("p")

    def broken() -> Iterator[pa.Table]:
        yield pa.table({"i": [1, 2, 3]})
        raise KeyError("the source broke")

    yield outcome(lambda: db.append("o", broken()))
    yield db.arrow("o")
    rows = db.heap("o").rows()
    yield next(rows, None)
    del rows
    yield db.append("o", [])


def after_close(db: Connection) -> Iterator[Any]:
    db.create_table("q", {"i": "INT"})
    db.commit()
    heap = db.heap("q")
    row_id = heap.insert((1,))
    db.commit()
    reader = db.arrow("q")
    started = db.arrow("q")
    with db:
        heap.insert((2,))
    yield db.in_transaction
    for action in (
        db.commit,
        db.rollback,
        lambda: db.heap("q"),
        lambda: heap.insert((1,)),
        lambda: heap.fetch(row_id),
        lambda: db.create_table("r", {"i": "INT"}),
        lambda: type(db.checkpoint()),
        db.close,
        lambda: reader,
        lambda: started,
    ):
        yield outcome(action)


def scopes(db: Connection) -> Iterator[Any]:
    db.create_table("n", {"i": "INT"})
    db.commit()
    db.insert("n", (1,))
    with db.all_or_nothing():
        db.insert("n", (2,))

    def fail() -> None:
        with db.all_or_nothing():
            db.insert("n", (3,))
            raise ZeroDivisionError

    yield outcome(fail)
    yield db.arrow("n")
    with db.one_snapshot() as reading:
        db.insert("n", (4,))
        yield db.select("n").read_by(reading)
        yield db.select("n", ["i"]).read_by(reading, places=True)
    yield db.arrow("n")
    db.execute("analyze n")
    yield db.statistics("n")
    yield outcome(lambda: db.statistics("nowhere"))


@pytest.mark.parametrize(
    "scenario",
    [
        every_type,
        wrong_values,
        definitions,
        changed_definitions,
        transactions,
        statements,
        keys,
        nested_use,
        after_close,
        scopes,
    ],
)
@pytest.mark.parametrize("way", ["by path", "over TCP"])
def test_a_client_gets_the_answers_that_a_local_connection_gives(
    scenario: Callable[[Connection], Iterator[Any]],
    way: str,
    owner_process: Peer,
    certificates: Certificates,
    tmp_path: Path,
) -> None:
    local, also = gmdb.connect(tmp_path / "local.gmdb"), gmdb.connect(tmp_path / "local.gmdb")
    expected = [outcome(lambda made=made: made) for made in scenario(local)]
    owner_process("db = gmdb.connect(path)", path=str(tmp_path / "remote.gmdb"))
    if way == "over TCP":
        wanted = Listening("127.0.0.1", 0, TOKEN, tls_cert=certificates.cert, tls_key=certificates.key)
        url = owner_process(
            "__import__('gmdb.server.endpoint').server.endpoint.serve_network(db._database, wanted).url", wanted=wanted
        )
        remote = gmdb.connect(url, token=TOKEN, tls_ca=certificates.ca)
    else:
        remote = gmdb.connect(tmp_path / "remote.gmdb")
    assert isinstance(remote, RemoteConnection)
    assert remote._link.route.is_network == (way == "over TCP")
    answers = [outcome(lambda made=made: made) for made in scenario(remote)]
    for number, (answer, right) in enumerate(zip(answers, expected, strict=True)):
        assert answer == right, f"answer {number}"
    for connection in (remote, local, also):
        connection.close()
    owner_process("db.close()")


def test_a_client_has_every_row_method_with_the_same_parameters() -> None:
    inner = {"session", "segment", "encoded_rows", "encoded_rows_of_page", "refuse_if_failed", "refuse_key"}
    inner |= {"try_update", "try_delete", "try_lock", "target", "encoded_row", "rows_by", "rows_at"}
    inner |= {"decoder", "try_at_once", "patch_encoder", "pieces", "by_seen", "look", "see", "page_ids"}
    inner |= {"insert_encoded", "changer_as_read", "note_seen", "try_change", "try_change_at_once"}
    inner |= {"try_changes_at_once", "change_some", "try_patch", "insert_row", "patch_keeper", "finisher"}
    inner |= {"tracked", "row_keys", "fetched", "encode_patch"}
    for name in {name for name in vars(Heap) if not name.startswith("_")} - inner:
        mine, theirs = inspect.getattr_static(Heap, name), inspect.getattr_static(RemoteHeap, name)
        if inspect.isfunction(mine):
            assert inspect.signature(mine).parameters == inspect.signature(theirs).parameters, name


def test_an_operation_that_is_declared_is_the_clients_and_the_servers() -> None:
    """Signature and documentation are the declaration's; whether it writes, the server knows from there."""
    for member, value in members_of(Connection).items():
        theirs = vars(RemoteConnection).get(member)
        asked = (theirs.fget, theirs.fset) if isinstance(theirs, property) else (theirs,)
        for declared, function in zip(declarations_of(value), asked, strict=False):
            assert OPERATIONS[declared.name].writes == declared.writes
            assert function is not None, member
            assert function is not declared.run
            assert inspect.signature(function) == inspect.signature(declared.run)
            assert function.__doc__ == declared.run.__doc__
    assert set(declared_in(Connection)) <= set(OPERATIONS)


def test_what_is_public_is_documented_and_either_declared_or_inherited() -> None:
    local = {"closed", "close", "interrupt", "heap", "select", "append", "arrow", "cursor", "execute", "executemany"}
    local |= {"executescript", "insert", "in_transaction"}
    for name, member in members_of(Connection).items():
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
            assert member.__doc__ or name == "closed", name
            is_composed = hasattr(member, "__wrapped__")
            assert declarations_of(member) or is_composed or name in local, name


def test_an_operation_that_writes_is_refused_to_whoever_only_reads(owner: Peer, path: Path) -> None:
    """Before its arguments are looked at: none are given."""
    del owner
    writes = [name for name, served in OPERATIONS.items() if served.writes]
    assert {"create_table", "insert", "statement_update", "_take_batch", "next_identity"} <= set(writes)
    with gmdb.connect(path, read_only=True) as reader:
        for name in writes:
            with pytest.raises(gmdb.errors.ReadOnly):
                reader.session.ask(name)  # type: ignore[attr-defined]


def test_a_dump_through_the_owner_is_where_the_client_asked_for_it(db: Connection, tmp_path: Path) -> None:
    db.dump(tmp_path / "made.dump")
    assert (tmp_path / "made.dump" / "gmdb.control").exists()


def test_a_client_loads_no_compiled_code(owner: Peer, path: Path) -> None:
    del owner
    client = Peer()
    client("db = gmdb.connect(path)", path=str(path))
    assert client("db.update('t', {'s': 'x'}), db.arrow('t').read_all().num_rows") == (2, 2)
    assert client("'numba' in __import__('sys').modules") is False
    client.end()


def test_many_rows_and_long_ones_go_through(db: Connection) -> None:
    db.create_table("big", {"i": "INT", "v": "VARBINARY(7000)"})
    db.commit()
    db.append("big", pa.table({"i": range(200), "v": [bytes([i]) * 3000 for i in range(200)]}))
    assert db.update("big", lambda row: {"v": row["v"] * 2}, lambda row: row["i"] % 2 == 0) == 100
    lengths = [len(values[1]) for _, values in db.heap("big").rows()]
    assert sorted(lengths) == [3000] * 100 + [6000] * 100
    assert db.arrow("big").read_all()["i"].to_pylist() == list(range(200))
