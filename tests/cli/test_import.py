"""``gmdb import``: SQLite databases, CSV and Parquet files; nothing is lost without a word, or half done."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv, parquet

import gmdb
from gmdb.cli import main
from gmdb.errors import CheckViolation, ForeignKeyViolation, NullNotAllowed, UniqueViolation
from tests.integrity import assert_sound

Output = pytest.CaptureFixture[str]
DAY, ANN_HAS = date(2024, 2, 29), (Decimal("12.34"), 0.1, b"\x00\xff", "a", None)
SHOP = """
    create table Customers (
        Id INTEGER PRIMARY KEY AUTOINCREMENT, Name TEXT NOT NULL, email varchar(50) unique, active boolean default 1,
        born date, seen datetime, balance decimal(10,2) default 0, score real, photo blob, untyped,
        made timestamp default current_timestamp, check (length(name) > 0));
    create table orders (id integer primary key, customer int references customers(id), amount int check (amount >= 0));
    create table words (word text, lang text, n int, primary key (word, lang)) without rowid;
    create index orders_customer on orders (customer, amount);
    create unique index orders_both on orders (customer, id);
"""


def make(path: Path, script: str, **rows: list[tuple[Any, ...]]) -> Path:
    connection = sqlite3.connect(path)
    connection.executescript(script)
    for table, values in rows.items():
        connection.executemany(f"insert into {table} values ({', '.join('?' * len(values[0]))})", values)
    connection.commit()
    connection.close()
    return path


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    day, time = "2024-02-29", "2024-02-29 12:30:00.25"
    customers = [
        (1, "Ann", "ann@x", 1, day, time, 12.34, 0.1, b"\x00\xff", "a", None),
        (2, "Bob", None, 0, None, "2024-02-29T12:30:00", 100, None, None, None, None),
        (9, "日本", "j@x", None, day, None, -0.5, 1e300, b"", "", None),
    ]
    path = make(
        tmp_path / "shop.sqlite",
        SHOP,
        customers=customers,
        orders=[(n, n % 2 + 1, n) for n in range(1, 1001)],
        words=[("b", "en", 1), ("a", "en", 2)],
    )
    with sqlite3.connect(path) as connection:
        connection.execute("delete from customers where id = 9")
    connection.close()
    return path


def imported(path: Path, *arguments: str) -> Path:
    assert main(["import", str(path), *arguments]) == 0
    target = path.with_suffix(".gmdb")
    assert_sound(target)
    return target


def failing(path: Path, capsys: Output, *arguments: str) -> str:
    assert main(["import", str(path), *arguments]) == 2
    assert not path.with_suffix(".gmdb").exists()
    return capsys.readouterr().err


def types_of(path: Path, table: str) -> dict[str, str]:
    with gmdb.connect(path) as db:
        return {column.name: str(column.type) for column in db.table(table).columns}


# ---- SQLite


def test_schema_indexes_and_rows_come_over(shop: Path) -> None:
    with gmdb.connect(imported(shop)) as db:
        assert db.execute("select * from customers order by id").fetchall() == [
            (1, "Ann", "ann@x", True, DAY, datetime(2024, 2, 29, 12, 30, 0, 250000), *ANN_HAS),
            (2, "Bob", None, False, None, datetime(2024, 2, 29, 12, 30), Decimal(100), None, None, None, None),
        ]
        assert db.execute("select count(*), sum(amount) from orders").fetchone() == (1000, 500500)
        assert {index.name: index.unique for index in db.table("orders").indexes} == {
            "orders_pkey": True,
            "orders_customer": False,
            "orders_both": True,
        }
        plan = db.execute("explain select * from orders where customer = 1 and amount = 4").fetchall()
        assert "orders_customer" in str(plan)
        assert db.table("words").primary_key == ("word", "lang")


def test_constraints_hold_in_the_new_database(shop: Path) -> None:
    with gmdb.connect(imported(shop)) as db:
        for statement, error in (
            ("insert into customers (name, email) values ('Eve', 'ann@x')", UniqueViolation),
            ("insert into customers (name) values ('')", CheckViolation),
            ("insert into customers (name) values (null)", NullNotAllowed),
            ("insert into orders values (2000, 1, -1)", CheckViolation),
            ("insert into orders values (1000, 1, 1)", UniqueViolation),
            ("insert into words values ('a', 'en', 3)", UniqueViolation),
        ):
            with pytest.raises(error):
                db.execute(statement)


def test_numbering_and_defaults_go_on(shop: Path) -> None:
    """With AUTOINCREMENT no number comes twice: 9 was given away before."""
    with gmdb.connect(imported(shop)) as db:
        db.execute("insert into customers (name) values ('New')")
        row = db.execute("select id, active, balance, made from customers where name = 'New'").fetchone()
        assert row is not None
        assert row[:3] == (10, True, Decimal(0))
        assert abs((row[3] - datetime.now()).total_seconds()) < 60
        db.execute("insert into orders (customer, amount) values (1, 1)")
        assert db.execute("select max(id) from orders").fetchone() == (1001,)


def test_what_is_left_out_is_listed(tmp_path: Path, capsys: Output) -> None:
    path = make(
        tmp_path / "odd.sqlite",
        """
        create table a (i integer primary key, s text collate nocase unique, d text default (hex(randomblob(4))),
                        twice int generated always as (i * 2), half as (i / 2.0) stored, never as (printf('%d', i)),
                        check (s glob 'x*'));
        create table c (n text, d text as (lower(n)));
        create table b (k text primary key, a int references a(i));
        create index b_desc on b (a desc);
        create index b_some on b (a) where a > 10 and K is not null;
        create index b_odd on b (a) where length(k) > 1;
        create index b_upper on b (upper(k));
        create view v as select 1;
        create trigger t after insert on b begin select 1; end;
        create virtual table f using fts5(x);
        """,
        b=[(None, 1), (None, 2)],
        c=[("Ä",)],
    )
    imported(path)
    out = capsys.readouterr().out
    for line in (
        "left out: view v",
        "left out: trigger t",
        "left out: virtual table f",
        "left out: table b: index b_odd: the condition of an index compares columns",
        "left out: table a: a unique constraint: the collation NOCASE of column s",
        "left out: table a: column d: default hex(randomblob(4)):",
        "left out: table a: check (",
        "left out: table a: column never: how it is computed: ",
        "left out: table c: how columns are computed: row 0: table c, column d: it is generated as",
        "table b: primary key (k) has NULLs: it becomes a unique constraint",
    ):
        assert f"\n{line}" in out, out
    with gmdb.connect(tmp_path / "odd.gmdb") as db:
        indexes = {index.name: index for index in db.table("b").indexes}
        assert indexes["b_desc"].directions == ("desc",)
        assert indexes["b_some"].condition == "a > 10 AND NOT k IS NULL"
        assert "b_odd" not in indexes
        assert "b_upper" in "".join(line for (line,) in db.execute("explain select a from b where upper(k) = 'X'"))
        assert [column.generated for column in db.table("a").columns] == [
            None,
            None,
            None,
            "i * 2",
            "(i / NULLIF(2.0, 0))",
            None,
        ]
        assert db.execute("insert into a (i) values (5) returning twice, half").fetchone() == (10, "2.5000000000000000")
        assert db.execute("select * from c").fetchall() == [("Ä", "Ä")]


EVERYTHING = """
    create table country (code text primary key, name text not null default 'none') without rowid, strict;
    create table town (
        id integer primary key autoincrement, name text,
        country text references country on update cascade on delete set null,
        size int default 0 check (size >= 0), unique (name, country));
    create table person (
        id integer primary key, boss int references person (id) deferrable initially deferred, town int,
        name text collate nocase, shouted text as (upper(name)) stored, born date default current_date,
        foreign key (town) references town, foreign key (town, name) references nowhere (a, b),
        foreign key (name) references alias (word));
    create table alias (word text);
    create table stray (town int references town (id) on delete cascade);
    create table [Odd Names] (
        "a b" int unique, "select" text default (1 + 2), check ("a b" <> 3), check (typeof("a b") = 'x'));
    create unique index alias_word on alias (word);
    create index person_name on person (name desc, born);
    create index person_some on person (town) where boss is null;
    create index person_upper on person (upper(name));
    create index person_odd on person (town) where length(name) > 3;
    create view grown as select * from person;
    create trigger noted after insert on town begin select 1; end;
    create virtual table words using fts5(text);
    insert into country values ('de', 'Germany'), ('fr', 'France');
    insert into town (name, country) values ('Bonn', 'de'), ('Nice', 'fr'), ('Atlantis', null);
    insert into person (id, boss, town, name) values (1, 2, 1, 'Ann'), (2, 1, 2, 'Bob');
    insert into stray values (1), (77);
"""


def test_what_comes_over_and_what_does_not_adds_up(tmp_path: Path, capsys: Output) -> None:
    target = imported(make(tmp_path / "all.sqlite", EVERYTHING), "--json")
    document = json.loads(capsys.readouterr().out)
    account = {row.pop("what"): row for row in document["account"]}
    assert all(row["in_file"] == row["imported"] + row["left_out"] for row in account.values())
    assert sum(row["left_out"] for row in account.values()) == sum(
        remark.startswith("left out: ") for remark in document["remarks"]
    )
    with gmdb.connect(target) as db:
        tables = [db.table(name) for name in db.tables()]
        constraints = [constraint for table in tables for constraint in table.constraints]
        kinds = [constraint.kind for constraint in constraints]
        columns = [column for table in tables for column in table.columns]
        imported_ones = {
            "tables": len(tables),
            "columns": len(columns),
            "defaults": sum(column.default is not None for column in columns),
            "primary keys": kinds.count("primary key"),
            "unique constraints": kinds.count("unique"),
            "checks": kinds.count("check"),
            "foreign keys": kinds.count("foreign key"),
            "indexes": sum(len(table.indexes) for table in tables) - kinds.count("primary key") - kinds.count("unique"),
            "computed columns": sum(column.generated is not None for column in columns),
            **dict.fromkeys(("collations of keys", "views", "triggers", "virtual tables"), 0),
        }
        assert {what: row["imported"] for what, row in account.items()} == imported_ones
        assert account["foreign keys"] == {"in_file": 6, "imported": 4, "left_out": 2}
        stray, boss = (next(one for one in constraints if one.columns == (name,)) for name in ("town", "boss"))
        assert (boss.deferrable, boss.deferred, boss.valid) == (True, True, True)
        strays = [one for one in db.table("stray").constraints if one.kind == "foreign key"]
        assert [(one.valid, one.on_delete) for one in strays] == [(False, "cascade")]
        assert stray.references == "town"
        with pytest.raises(ForeignKeyViolation):
            db.execute("insert into stray values (78)")
        db.execute("update country set code = 'D' where code = 'de'")
        db.execute("delete from country where code = 'fr'")
        assert db.execute("select name, country from town order by id").fetchall() == [
            ("Bonn", "D"), ("Nice", None), ("Atlantis", None),
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("declared", "values", "type_", "found"),
    [
        ("integer", [1, -(2**63), 2**63 - 1], "BIGINT", [1, -(2**63), 2**63 - 1]),
        ("integer", [1, "one", 2.5], "TEXT", ["1", "one", "2.5"]),
        ("int", [1, 2.5], "DOUBLE", [1.0, 2.5]),
        ("", [2**60 + 1, 2.5], "TEXT", [str(2**60 + 1), "2.5"]),
        ("varchar(3)", ["abc", "日"], "VARCHAR(3)", ["abc", "日"]),
        ("varchar(3)", ["abcdef"], "TEXT", ["abcdef"]),
        ("date", ["2024-02-30"], "TEXT", ["2024-02-30"]),
        ("date", ["2024-02-28", None], "DATE", [date(2024, 2, 28), None]),
        ("datetime", ["2024-01-01 00:00:00+01:00"], "TEXT", ["2024-01-01 00:00:00+01:00"]),
        ("boolean", [0, 2], "BIGINT", [0, 2]),
        ("decimal(5,2)", [1.25, 999.99], "DECIMAL(5,2)", [Decimal("1.25"), Decimal("999.99")]),
        ("decimal(5,2)", [1.255], "DOUBLE", [1.255]),
        ("decimal(5,2)", [-(2**63), 1000], "BIGINT", [-(2**63), 1000]),
        ("real", [], "DOUBLE", []),
        ("blob", [], "BYTEA", []),
        ("numeric(8,3)", [], "DECIMAL(8,3)", []),
        ("", ["a\0b", "x" * 2001], "TEXT", ["a\0b", "x" * 2001]),
    ],
)
def test_types_go_by_declaration_and_values(
    tmp_path: Path, declared: str, values: list[Any], type_: str, found: list[Any]
) -> None:
    path = make(
        tmp_path / "types.sqlite", f"create table t (c {declared})", **({"t": [(v,) for v in values]} if values else {})
    )
    target = imported(path)
    assert types_of(target, "t") == {"c": type_}
    with gmdb.connect(target) as db:
        assert [row[0] for row in db.execute("select c from t").fetchall()] == found


def test_bytes_among_texts_are_refused_with_their_row(tmp_path: Path, capsys: Output) -> None:
    path = make(tmp_path / "mixed.sqlite", "create table t (c)", t=[("text",), (b"x",)])
    assert "table t, column c, row 2: bytes among other values" in failing(path, capsys)


def test_long_values_are_kept_whole(tmp_path: Path, capsys: Output) -> None:
    rows = [("x", b"y", "short"), ("x" * 40_000, b"y" * 500_000, "short"), (None, None, None)]
    path = make(tmp_path / "long.sqlite", "create table t (c text, b blob, s text)", t=rows)
    assert main(["import", str(path)]) == 0
    capsys.readouterr()
    with gmdb.connect(tmp_path / "long.gmdb") as db:
        assert [str(column.type) for column in db.table("t").columns] == ["TEXT", "BYTEA", "TEXT"]
        assert db.execute("select * from t order by length(c)").fetchall() == rows
    columns = {"c": [row[0] for row in rows], "b": [row[1] for row in rows]}
    parquet.write_table(pa.table(columns), tmp_path / "file.parquet")
    csv.write_csv(pa.table({"c": columns["c"][:2]}), tmp_path / "text.csv")
    for name in ("file.parquet", "text.csv"):
        assert main(["import", str(tmp_path / name), "--into", str(tmp_path / "files.gmdb")]) == 0
    with gmdb.connect(tmp_path / "files.gmdb") as db:
        assert db.execute("select * from file order by length(c)").fetchall() == [row[:2] for row in rows]
        assert db.execute("select c from text order by length(c)").fetchall() == [(row[0],) for row in rows[:2]]


def test_a_text_that_is_none_is_refused(tmp_path: Path, capsys: Output) -> None:
    path = make(tmp_path / "broken.sqlite", "create table t (c text); insert into t values (cast(x'ff' as text))")
    assert "table t: SQLite cannot hand out a value" in failing(path, capsys)


def test_a_failure_leaves_a_database_as_it_was(tmp_path: Path, capsys: Output) -> None:
    """The second table is there already: nothing of the first is imported either."""
    path = make(tmp_path / "two.sqlite", "create table a (i); create table b (i)", a=[(1,)], b=[(2,)])
    target = tmp_path / "have.gmdb"
    with gmdb.connect(target) as db:
        db.execute("create table b (x int primary key)")
    assert main(["import", str(path), "--into", str(target)]) == 2
    assert "b" in capsys.readouterr().err
    with gmdb.connect(target) as db:
        assert db.tables() == ["b"]


def test_one_table_is_imported_alone(shop: Path, capsys: Output) -> None:
    target = imported(shop, "--table", "Words", "--json")
    document = json.loads(capsys.readouterr().out)
    assert document["tables"] == [
        {"table": "words", "rows": 2, "columns": 3, "keys": 1, "indexes": 0, "checks": 0, "foreign_keys": 0}
    ]
    with gmdb.connect(target) as db:
        assert db.tables() == ["words"]
    assert main(["import", str(shop), "--table", "nothing", "--into", str(target)]) == 2
    assert "has no table nothing; its tables are: Customers" in capsys.readouterr().err


def test_import_goes_through_the_owner(shop: Path, tmp_path: Path) -> None:
    """Another process has the database open."""
    from tests.server.peer import Peer

    peer = Peer()
    try:
        peer("db = gmdb.connect(path)", path=str(tmp_path / "shared.gmdb"))
        assert main(["import", str(shop), "--into", str(tmp_path / "shared.gmdb")]) == 0
        assert peer("db.execute('select count(*) from orders').fetchall()") == [(1000,)]
        peer("db.close()")
    finally:
        peer.end()


# ---- CSV and Parquet


def test_csv_has_the_types_of_its_values(tmp_path: Path) -> None:
    path = tmp_path / "Things.csv"
    lines = ["ID,price,zip,day,at,flag,text,big,none"]
    lines += ['1,1.5,01234,2024-02-29,2024-02-29 10:00:00,true,"a,b",12345678901234567890,']
    lines += ['2,2,1234,2024-03-01,2024-03-01,false,"",1,', "3,,,,,,,,"]
    path.write_text("\n".join(lines) + "\n")
    target = imported(path)
    assert list(types_of(target, "things").values()) == [
        *("BIGINT", "DOUBLE", "TEXT", "DATE", "TIMESTAMP", "BOOLEAN", "TEXT", "TEXT"),
        "TEXT",
    ]
    with gmdb.connect(target) as db:
        assert db.execute("select * from things order by id").fetchall() == [
            (1, 1.5, "01234", date(2024, 2, 29), datetime(2024, 2, 29, 10), True, "a,b", "12345678901234567890", None),
            (2, 2.0, "1234", date(2024, 3, 1), datetime(2024, 3, 1), False, "", "1", None),
            (3, None, None, None, None, None, None, None, None),
        ]


def test_a_type_that_fits_only_the_first_rows_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "late.csv"
    path.write_text("n\n" + "\n".join(map(str, range(1_000_000))) + "\nmany\n")
    target = imported(path)
    assert types_of(target, "late") == {"n": "TEXT"}
    with gmdb.connect(target) as db:
        assert db.execute("select count(*), max(n) from late").fetchone() == (1_000_001, "many")


def test_rows_are_added_to_a_table_that_is_there(tmp_path: Path, capsys: Output) -> None:
    path = tmp_path / "more.csv"
    path.write_text("s;i\nx;1\ny;2\n")
    target = tmp_path / "have.gmdb"
    with gmdb.connect(target) as db:
        db.execute("create table t (i int primary key, s varchar(5))")
    arguments = ["import", str(path), "--into", str(target), "--table", "t", "--delimiter", ";"]
    assert main(arguments) == 0
    with gmdb.connect(target) as db:
        assert db.execute("select * from t order by i").fetchall() == [(1, "x"), (2, "y")]
    capsys.readouterr()
    assert main(arguments) == 2
    assert "t_pkey" in capsys.readouterr().err


MOMENT = datetime(2024, 2, 29, 12, 30, 15, 123456)
PARQUET: list[tuple[pa.Array, str, Any]] = [  # a column of one value and NULL, the type that it gets, and the value
    (pa.array([7, None], pa.int8()), "SMALLINT", 7),
    (pa.array([7, None], pa.uint16()), "INT", 7),
    (pa.array([2**32 - 1, None], pa.uint32()), "BIGINT", 2**32 - 1),
    (pa.array([2**64 - 1, None], pa.uint64()), "DECIMAL(20,0)", Decimal(2**64 - 1)),
    (pa.array([1.5, None], pa.float16()), "REAL", 1.5),
    (pa.array([0.5, None], pa.float32()), "REAL", 0.5),
    (pa.array([Decimal("1.50"), None], pa.decimal128(9, 2)), "DECIMAL(9,2)", Decimal("1.50")),
    (pa.array([Decimal("1.50"), None], pa.decimal256(38, 2)), "DECIMAL(38,2)", Decimal("1.50")),
    (pa.array([True, None]), "BOOLEAN", True),
    (pa.array(["x", None], pa.large_string()), "TEXT", "x"),
    (pa.array(["x", None], pa.string_view()), "TEXT", "x"),
    (pa.array(["x", None]).dictionary_encode(), "TEXT", "x"),
    (pa.array([7, None], pa.uint64()).dictionary_encode(), "DECIMAL(20,0)", Decimal(7)),
    (pa.array([b"\0", None], pa.large_binary()), "BYTEA", b"\0"),
    (pa.array([b"\0", None], pa.binary_view()), "BYTEA", b"\0"),
    (pa.array([b"\0\1", None], pa.binary(2)), "BYTEA", b"\0\1"),
    (pa.array([None, None], pa.null()), "TEXT", None),
    (pa.array([DAY, None], pa.date32()), "DATE", DAY),
    (pa.array([DAY, None], pa.date64()), "DATE", DAY),
    (pa.array([datetime(2024, 1, 1), None], pa.timestamp("s")), "TIMESTAMP", datetime(2024, 1, 1)),
    (pa.array([datetime(2024, 1, 1), None], pa.timestamp("ms")), "TIMESTAMP", datetime(2024, 1, 1)),
    (pa.array([MOMENT, None], pa.timestamp("ns")), "TIMESTAMP", MOMENT),
    (pa.array([MOMENT, None], pa.timestamp("us", "Asia/Tokyo")), "TIMESTAMPTZ", MOMENT.replace(tzinfo=UTC)),
    (pa.array([MOMENT.time(), None], pa.time64("us")), "TIME", MOMENT.time()),
]


def test_parquet_brings_its_types(tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    names = [f"C{n}" for n in range(len(PARQUET))]
    parquet.write_table(pa.table([column for column, *_ in PARQUET], names=names), path)
    target = imported(path)
    assert list(types_of(target, "p").values()) == [type_ for _, type_, _ in PARQUET]
    with gmdb.connect(target) as db:
        first = db.execute("select * from p").fetchone()
        assert first == tuple(value for *_, value in PARQUET)
        assert db.execute("select count(*) from p where c0 is null").fetchone() == (1,)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[[1]]]),
        pa.array([[1]], pa.large_list(pa.uint64())),
        pa.array([{"a": 1}]),
        pa.array([1], pa.duration("s")),
    ],
    ids=lambda column: str(column.type),
)
def test_a_column_that_gmdb_has_no_type_for_is_refused(tmp_path: Path, capsys: Output, column: pa.Array) -> None:
    path = tmp_path / "p.parquet"
    parquet.write_table(pa.table({"odd": column}), path)
    assert f"column odd: gmdb has no type for {str(column.type).split('<', maxsplit=1)[0]}" in failing(path, capsys)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.csv", None, "cannot be read: No such file"),
        ("empty.csv", "", "cannot be read as CSV"),
        ("twice.csv", "a,A\n1,2\n", "two columns are called a"),
        ("ragged.csv", "a,b\n1,2\n1\n", "cannot be read as CSV"),
        ("fake.sqlite", "SQLite format 3\0 and no more", "SQLite cannot read it"),
        ("fake.parquet", "PAR1 and no more", "is not a Parquet file"),
    ],
)
def test_files_that_cannot_be_read_are_refused(
    tmp_path: Path, capsys: Output, name: str, content: str | None, message: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    assert message in failing(path, capsys)
