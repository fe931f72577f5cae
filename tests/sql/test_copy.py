"""COPY: files become rows and rows files, with PostgreSQL's formats, options and refusals."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from bench.postgres import Connection as Postgres
from bench.postgres import available, server

import gmdb
from gmdb.cli.program import main
from gmdb.database.connection import Connection
from gmdb.errors import (
    CheckViolation,
    DataError,
    Error,
    GeneratedAlways,
    InvalidSyntax,
    InvalidText,
    NoSuchColumn,
    OperationalError,
    ProgrammingError,
    SchemaError,
    UniqueViolation,
    UnsupportedExpression,
    ValueTooLong,
)

ODD = [
    (1, "plain", None, True),
    (2, "", b"\x00\xff", False),
    (3, 'a,"b"\tc\\d', b"", None),
    (4, "two\nlines\r", None, True),
    (5, "\\N", b"\\", None),
    (6, "\\.", None, None),
    (7, " é 日本 ", None, None),
    (8, None, None, None),
]
FORMATS = [
    "",
    "with (format text, delimiter '|', null 'none')",
    "with (format csv)",
    "with (format csv, header, delimiter ';', quote '''', null 'NULL')",
    "with (format csv, escape '\\', force_quote (s))",
    "csv header",
]


@pytest.fixture(params=["local", "remote"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Connection]:
    path = tmp_path / "d.gmdb"
    is_remote = request.param == "remote"
    if is_remote:
        request.getfixturevalue("peer")("own = gmdb.connect(path)", path=str(path))
    try:
        with gmdb.connect(path) as connection:
            connection.execute("create table t (i int primary key, s varchar(40), b bytea, f boolean)")
            connection.commit()
            yield connection
    finally:
        if is_remote:
            request.getfixturevalue("peer")("own.close()")


def rows(db: Connection, text: str = "select * from t order by i") -> list[tuple[Any, ...]]:
    return db.execute(text).fetchall()


@pytest.mark.parametrize("options", FORMATS)
def test_what_is_written_is_read_again(db: Connection, tmp_path: Path, options: str) -> None:
    db.executemany("insert into t values (?, ?, ?, ?)", ODD)
    file = tmp_path / "rows"
    assert db.cursor().copy(f"copy t to '{file}' {options}").rowcount == len(ODD)
    db.execute("delete from t")
    reading = options.replace(", force_quote (s)", "")
    assert db.cursor().copy(f"copy t from '{file}' {reading}").rowcount == len(ODD)
    assert rows(db) == ODD


@pytest.mark.skipif(not available(), reason="needs PostgreSQL's programs")
def test_postgresql_writes_and_reads_the_same(tmp_path: Path) -> None:
    with server() as postgres, gmdb.connect(tmp_path / "d.gmdb") as own, tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)  # the server is another user
        _require_same(postgres, own, Path(folder))


def _require_same(postgres: Postgres, own: Connection, folder: Path) -> None:
    table = "create table t (i int, s varchar(40), b bytea, f boolean, d double precision, n decimal(9,2), z timestamp)"
    insert = """insert into t values (1, 'a,"b"', '\\x00ff', true, 1e20, 1.50, '2024-01-02 03:04:05.6'),
        (2, '', '', false, 'NaN', null, null), (3, E'x\\ty\\\\z\\n', null, null, 0.1, -1, '2024-01-02')"""
    for statement in (table, insert):
        own.execute(statement)
        postgres.ask(statement)
    for number, options in enumerate(FORMATS):
        ours, theirs = folder / f"own{number}", folder / f"postgres{number}"
        own.cursor().copy(f"copy t to '{ours}' {options}")
        postgres.ask(f"copy t to '{theirs}' {options}")
        assert ours.read_bytes() == theirs.read_bytes(), options
        own.execute("delete from t")
        own.cursor().copy(f"copy t from '{theirs}' {options.replace(', force_quote (s)', '')}")
        assert own.execute("select count(*), sum(length(s)), max(z), sum(n) from t").fetchone() == (
            3, 11, datetime(2024, 1, 2, 3, 4, 5, 600_000), Decimal("0.50"),
        )  # fmt: skip


TYPES = """create table every (si smallint, i int, bi bigint, r real, d double precision, n numeric(9,2),
    w numeric(30,9), f boolean, dt date, tm time, ts timestamp, tz timestamptz, iv interval, u uuid, c char(5),
    v varchar(10), x text, b bytea, j json, jb jsonb, ai int[], asi smallint[], ax text[], av varchar(5)[],
    af boolean[], ad date[], an numeric(9,2)[], ar real[], ae double precision[], atm time[], ats timestamp[],
    ab bytea[])"""
VALUES = (
    r"""insert into every values (-3, 7, 9000000000, 0.1, 1e-7, 1.50, 12345678901234567890.5, true, '0044-03-15',
    '23:59:59.5', '2024-02-29 01:02:03.000004', '2024-07-01 12:00:00+00', '1 year 2 mons -3 days 04:05:06.7',
    'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', 'ab', 'a,"b"', E'two\nlines\\', '\x00ff5c',
    '{"b": [1, "x\n"],  "a": null}', '{"b": [1, "x\n"],  "a": 1.50}', '{1,null,3}', '{-1,2}',
    '{a,"b c","d\\\"e",null,"null",""}', '{"a,b",c}', '{t,f,null}', '{2024-01-02,null}', '{1.5,-2}', '{0.1,1e30}',
    '{1e300,-0.5}', '{01:02:03,23:59:59.999999}', '{2024-01-02 03:04:05.6}', '{"\\x00ff"}')""",
    "insert into every (si) values (null)",
    """insert into every (r, d, ts, tz, iv, c, x, b, j, jb, ai, ax) values ('Infinity', '-Infinity',
    '1582-01-01 00:00:00', '1969-12-31 23:59:59.5+00', '-00:00:01', '', '', '', '"text"', '"text"', '{}', '{}')""",
    """insert into every (r, d, n, tz, iv, j, jb) values ('NaN', 'NaN', 0, '2024-01-01 12:00:00+05:30', '0',
    ' [1 , 2 ] ', 'true')""",
)


@pytest.mark.skipif(not available(), reason="needs PostgreSQL's programs")
def test_postgresql_writes_and_reads_every_type_the_same(tmp_path: Path) -> None:
    with server() as postgres, gmdb.connect(tmp_path / "d.gmdb") as own, tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)  # the server is another user
        for statement in ("set time zone 'Europe/Berlin'", TYPES, *VALUES):
            own.execute(statement)
            postgres.ask(statement)
        for options in ("", "csv"):
            ours, theirs, again = (Path(folder, f"{name}{options}") for name in ("own", "postgres", "again"))
            own.cursor().copy(f"copy every to '{ours}' {options}")
            postgres.ask(f"copy every to '{theirs}' {options}")
            assert ours.read_text().splitlines() == theirs.read_text().splitlines()
            own.execute("delete from every")
            own.cursor().copy(f"copy every from '{theirs}' {options}")
            own.cursor().copy(f"copy every to '{again}' {options}")
            assert again.read_text() == theirs.read_text()


def test_every_type_is_written_and_read_again(db: Connection) -> None:
    db.execute("set time zone 'Europe/Berlin'")
    for statement in (TYPES, *VALUES):
        db.execute(statement)
    once, again = io.StringIO(), io.StringIO()
    db.cursor().copy("copy every to stdout", once)
    assert '\t{"b": [1, "x\\\\n"],  "a": null}\t{"a": 1.50, "b": [1, "x\\\\n"]}\t{1,NULL,3}\t' in once.getvalue()
    assert "\t2024-07-01 14:00:00+02\t1 year 2 mons -3 days +04:05:06.7\t" in once.getvalue()
    before = rows(db, "select * from every where si = -3")
    db.execute("delete from every")
    db.cursor().copy("copy every from stdin", io.StringIO(once.getvalue()))
    db.cursor().copy("copy every to stdout", again)
    assert (again.getvalue(), rows(db, "select * from every where si = -3")) == (once.getvalue(), before)


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("si", "40000"), ("r", "1e40"), ("f", "maybe"), ("dt", "2023-02-29"), ("tm", "25:00"), ("tz", "noon"),
        ("iv", "x"), ("u", "12"), ("b", r"\\xzz"), ("j", "{1}"), ("jb", "[1,"), ("ai", "{1,x}"), ("ab", r'{"\\\\xz"}'),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_read_is_named_with_its_column(db: Connection, column: str, text: str) -> None:
    db.execute(TYPES)
    with pytest.raises(DataError, match=f"copy every, line 2, column {column}: "):
        db.cursor().copy(f"copy every ({column}) from stdin", io.StringIO(f"\\N\n{text}\n"))


@pytest.mark.parametrize(("column", "text"), [("c", "123456"), ("v", "12345678901"), ("av", "{123456}")])
def test_a_text_that_is_too_long_is_not_cut(db: Connection, column: str, text: str) -> None:
    db.execute(TYPES)
    with pytest.raises(ValueTooLong, match="copy every, line 2: "):
        db.cursor().copy(f"copy every ({column}) from stdin", io.StringIO(f"\\N\n{text}\n"))


def test_tables_of_schemas_and_temporary_ones_are_copied(db: Connection) -> None:
    for kind in ("table s.n", "temporary table m", 'table "A.b""c"'):
        name = kind.rpartition("table ")[2]
        db.execute("create schema if not exists s")
        db.execute(f'create {kind} (i int, "G h" int generated always as (i * 2) stored)')
        if "temporary" not in kind:
            db.execute(f"create index on {name} ((i + 1))")
        out = io.StringIO()
        assert db.cursor().copy(f"copy {name} from stdin", io.StringIO("1\n2\n")).rowcount == 2
        assert rows(db, f"select * from {name} where i + 1 = 3") == [(2, 4)]
        db.cursor().copy(f"copy {name} to stdout csv header", out)
        assert out.getvalue() == "i\n1\n2\n"
        for direction in ("to stdout", "from stdin"):
            with pytest.raises(GeneratedAlways, match="G h"):
                db.cursor().copy(f'copy {name} (i, "G h") {direction}', io.StringIO("1\t2\n"))
            with pytest.raises(SchemaError, match="twice"):
                db.cursor().copy(f"copy {name} (i, i) {direction}", io.StringIO("1\t2\n"))
            with pytest.raises(NoSuchColumn, match="no column rowid"):
                db.cursor().copy(f"copy {name} (rowid) {direction}", io.StringIO("1\n"))
        assert rows(db, f"select count(*) from {name}") == [(2,)]


def test_changes_are_copied_by_what_they_return(db: Connection, tmp_path: Path) -> None:
    out = io.StringIO()
    change = "insert into t (i) values (1), (2) returning i"
    assert db.cursor().copy(f"copy ({change}) to stdout", out).rowcount == 2
    assert (out.getvalue(), rows(db, "select i from t order by i")) == ("1\n2\n", [(1,), (2,)])
    for refused in ("delete from t", "with o as (delete from t returning i) insert into t (i) select i + 9 from o"):
        with pytest.raises(UnsupportedExpression, match="RETURNING"):
            db.cursor().copy(f"copy ({refused}) to stdout", io.StringIO())
    with pytest.raises(OperationalError):
        db.cursor().copy(f"copy (delete from t returning i) to '{tmp_path}/nosuch/file'")
    for refused in ("create table q (i int)", "show time zone", ""):
        with pytest.raises(InvalidSyntax, match="line 1, column 7"):
            db.cursor().copy(f"copy ({refused}) to stdout", io.StringIO())
    assert rows(db, "select i from t order by i") == [(1,), (2,)]


def test_errors_have_their_place_in_the_statement(db: Connection) -> None:
    for statement, said in (
        ("copy (\n  select nosuch from t) to stdout", "line 2, column 10: "),
        ("copy  nosuch to stdout", "line 1, column 7: "),
        ('copy t to\n  "stdout"', "line 2, column 3: "),
    ):
        with pytest.raises(Error) as refusal:
            db.cursor().copy(statement, io.StringIO())
        assert str(refusal.value).startswith(said)


def test_devices_are_written_to_and_files_keep_their_modes(db: Connection, tmp_path: Path) -> None:
    db.execute("insert into t (i) values (1)")
    assert db.cursor().copy("copy t (i) to '/dev/null'").rowcount == 1
    assert Path("/dev/null").is_char_device()
    file, link = tmp_path / "file", tmp_path / "link"
    file.touch(0o600)
    link.symlink_to(file)
    db.cursor().copy(f"copy t (i) to '{link}'")
    assert (file.read_text(), file.stat().st_mode & 0o777, link.is_symlink()) == ("1\n", 0o600, True)


def read(db: Connection, text: str, options: str = "with (format csv)") -> list[tuple[Any, ...]]:
    db.execute("delete from t")
    db.cursor().copy(f"copy t (i, s) from stdin {options}", io.StringIO(text, newline=""))
    return rows(db, "select i, s from t order by i")


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ('1,""\n2,\n', "with (format csv)", [(1, ""), (2, None)]),
        ('1,a"b,c"d\n', "with (format csv)", [(1, "ab,cd")]),
        ('1,"a\n\nb"\n2,x', "with (format csv)", [(1, "a\n\nb"), (2, "x")]),
        ('i,s\n1,"a""b"\n', "with (format csv, header match)", [(1, 'a"b')]),
        ('1,"x\\"y"\n', "with (format csv, escape '\\')", [(1, 'x"y')]),
        ('1,""\n', "with (format csv, force_null (s))", [(1, None)]),
        ("1,\n", "with (format csv, force_not_null (s))", [(1, "")]),
        ("1,a\r\n2,b\r\n", "with (format csv)", [(1, "a"), (2, "b")]),
        ("1,a\n\\.\n2,b\n", "with (format csv)", [(1, "a")]),
        ("1\t\\N\n2\t\n3\ta\\tb\\x41\\101\\\\\n", "", [(1, None), (2, ""), (3, "a\tbAA\\")]),
        ("1\ta\\\nb\n2\t\\\t\n", "", [(1, "a\nb"), (2, "\t")]),
        (" 7 \tx\n", "", [(7, "x")]),
        ("", "", []),
    ],
)
def test_what_a_file_says(db: Connection, text: str, options: str, expected: list[tuple[Any, ...]]) -> None:
    assert read(db, text, options) == expected


@pytest.mark.parametrize(
    ("text", "options", "error", "said"),
    [
        ("1,a\n2\n", "csv", InvalidText, "copy t, line 2: 1 values for 2"),
        ("1,a,b\n", "csv", InvalidText, "line 1: 3 values for 2"),
        ('1,a\n2,"b\n', "csv", InvalidText, "line 2: a quote is not closed"),
        ("1,a\nx,b\n", "csv", InvalidText, "copy t, line 2, column i: .*integer"),
        (f"1,a\n2,{'x' * 41}\n", "csv", ValueTooLong, "copy t, line 2: "),
        ("1,a\n2,b\n1,c\n", "csv", UniqueViolation, "copy t, line 3: "),
        ("1,a\r\n2,b\n", "csv", InvalidText, "line 2: it ends otherwise"),
        ("s,i\n1,a\n", "with (format csv, header match)", InvalidText, "header"),
        ("1\t\\xff\n", "", InvalidText, "ASCII"),
    ],
)
def test_a_file_is_taken_whole_or_not(db: Connection, text: str, options: str, error: type[Error], said: str) -> None:
    db.execute("insert into t (i) values (99)")
    db.commit()
    with pytest.raises(error, match=said):
        db.cursor().copy(f"copy t (i, s) from stdin {options}", io.StringIO(text, newline=""))
    assert rows(db, "select i from t") == [(99,)]
    db.execute("set autocommit on")
    with pytest.raises(error, match=said):
        db.cursor().copy(f"copy t (i, s) from stdin {options}", io.BytesIO(text.encode()))
    assert rows(db, "select i from t") == [(99,)]


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("copy t from 'x' with (format binary)", UnsupportedExpression),
        ("copy t from 'x' with (freeze)", UnsupportedExpression),
        ("copy t from 'x' with (oids)", UnsupportedExpression),
        ("copy t from program 'ls'", UnsupportedExpression),
        ("copy t from stdin", UnsupportedExpression),
        ("copy t from 'x' where i > 1", InvalidSyntax),
        ("copy t from 'x' with (format csv, format csv)", InvalidSyntax),
        ("copy t from 'x' with (quote '!')", InvalidSyntax),
        ("copy t from 'x' with (delimiter 'ab')", InvalidSyntax),
        ("copy t from 'x' with (format csv, force_quote (i))", InvalidSyntax),
        ("copy t to 'x' with (format csv, force_null (i))", InvalidSyntax),
        ("copy t from 'x' with (format csv, force_null (nosuch))", InvalidSyntax),
        ("copy (select 1) from 'x'", InvalidSyntax),
        ("copy t from x", InvalidSyntax),
        ("copy t", InvalidSyntax),
        ("copy nosuch from 'x'", ProgrammingError),
        ("copy v from 'x'", UnsupportedExpression),
        ("copy v to 'x'", UnsupportedExpression),
        ("copy t (nosuch) from 'x'", ProgrammingError),
        ("copy t from '/nosuch/file'", OperationalError),
        ("copy t to '/nosuch/file'", OperationalError),
        ("copy t from 'x' with (encoding 'latin1')", UnsupportedExpression),
        ("select 1", InvalidSyntax),
    ],
)
def test_what_is_not_done_is_refused(db: Connection, statement: str, error: type[Error]) -> None:
    db.execute("create view v as select * from t")
    with pytest.raises(error):
        db.cursor().copy(statement)
    assert rows(db) == []


def test_many_rows_defaults_and_what_is_generated(db: Connection, tmp_path: Path) -> None:
    db.execute(
        "create table n (k int generated always as identity, i int check (i >= 0), j int default 7, "
        "d int generated always as (i * 2) stored)"
    )
    file = tmp_path / "many.csv"
    file.write_text("i\n" + "".join(f"{n}\n" for n in range(50_000)))
    assert db.cursor().copy(f"copy n (i) from '{file}' (format csv, header)").rowcount == 50_000
    assert rows(db, "select count(*), sum(i), min(j), sum(d), count(distinct k) from n") == [
        (50_000, 1249975000, 7, 2499950000, 50_000)
    ]
    out = tmp_path / "out"
    db.cursor().copy(f"copy (select k, i, j from n where i < 2 order by i) to '{out}' (delimiter ',')")
    assert out.read_text() == "1,0,7\n2,1,7\n"
    db.execute("delete from n")
    assert db.cursor().copy(f"copy n from '{out}' (delimiter ',')").rowcount == 2  # the numbers are the file's
    assert rows(db, "select * from n order by k") == [(1, 0, 7, 0), (2, 1, 7, 2)]
    file.write_text("i\n" + "".join(f"{n}\n" for n in range(30_000)) + "-1\n")
    with pytest.raises(CheckViolation, match="line 30002"):
        db.cursor().copy(f"copy n (i) from '{file}' csv header")
    file.write_text("1,2\n")
    with pytest.raises(GeneratedAlways):
        db.cursor().copy(f"copy n (i, d) from '{file}' csv")
    assert rows(db, "select count(*) from n") == [(2,)]


def test_files_of_texts_and_of_bytes_are_written(db: Connection) -> None:
    db.execute("insert into t (i, s) values (1, 'é')")
    text, data = io.StringIO(), io.BytesIO()
    assert db.cursor().copy("copy t to stdout", text).rowcount == 1
    db.cursor().copy("copy t to stdout (format csv, header)", data)
    assert (text.getvalue(), data.getvalue()) == ("1\té\t\\N\t\\N\n", "i,s,b,f\n1,é,,\n".encode())


def test_statements_touch_no_files(db: Connection, tmp_path: Path) -> None:
    file = tmp_path / "x"
    for statement in (f"copy t to '{file}'", f"/* */ copy (select 1) to '{file}' csv", f"copy t from '{file}'"):
        with pytest.raises(UnsupportedExpression, match=r"cursor\.copy"):
            db.execute(statement)
        with pytest.raises(UnsupportedExpression):
            db.executescript(statement)
    assert not file.exists()


def test_the_shell_copies(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file, path = tmp_path / "rows.csv", str(tmp_path / "d.gmdb")
    file.write_text("1,one\n2,\n")
    texts = (
        "create table t (i int, s text)",
        f"copy t from '{file}' csv",
        "copy t to stdout",
        f"copy t to '{file}' (format csv, header)",
    )
    assert main(["sql", path, *(word for text in texts for word in ("-c", text))]) == 0
    assert capfd.readouterr().out == "1\tone\n2\t\\N\n"
    assert file.read_text() == "i,s\n1,one\n2,\n"
    assert main(["sql", path, "-c", f"copy t from '{file}' csv"]) == 2
    assert "line 1, column i" in capfd.readouterr().err
