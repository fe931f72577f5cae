"""``gmdb sql`` with statements from the command line, a file and a pipe, and how results are laid out."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import gmdb
from gmdb.cli import main
from gmdb.cli.shell.input import Pieces
from gmdb.cli.shell.prompt import Names, history_path, is_finished
from gmdb.cli.shell.table_layout import Layout, csv_of, json_of, wrapped
from gmdb.format.columns import ColumnType

Output = pytest.CaptureFixture[str]
INT, TEXT = ColumnType("INT"), ColumnType("VARCHAR", 4000)


@pytest.fixture
def shop(tmp_path: Path) -> str:
    path = tmp_path / "shop.gmdb"
    with gmdb.connect(path) as db:
        db.execute("create table tbl (i int, s varchar(10))")
        db.execute("insert into tbl values (0, 'hello'), (1, null), (2, '日本')")
    return str(path)


def sql(shop: str, *arguments: str) -> int:
    return main(["sql", shop, *arguments])


def rows(shop: str) -> list[tuple[object, ...]]:
    with gmdb.connect(shop) as db:
        return db.execute("select i, s from tbl order by i").fetchall()


# ---- layout


def test_headings_are_capitals_over_dashes_as_wide_as_the_column(shop: str, capsys: Output) -> None:
    assert sql(shop, "-c", "select * from tbl where rownum<2") == 0
    assert capsys.readouterr().out == "I           S\n----------- ----------\n0           hello\n\n"


def test_nulls_wide_characters_and_bytes_are_lined_up(shop: str, capsys: Output) -> None:
    assert sql(shop, "-c", "select s, i, cast('\\x00ff' as bytea) as b, 1.50 as n from tbl order by i") == 0
    assert capsys.readouterr().out.split("\n") == [
        "S          I           B      N",
        "---------- ----------- ------ ----",
        "hello      0           \\x00ff 1.50",
        "NULL       1           \\x00ff 1.50",
        "日本       2           \\x00ff 1.50",
        "",
        "",
    ]


def test_a_result_without_rows_has_its_headings(shop: str, capsys: Output) -> None:
    assert sql(shop, "-c", "select * from tbl where i > 100") == 0
    assert capsys.readouterr().out == "I           S\n----------- ----------\n\n"


def test_long_texts_go_on_below_where_they_began() -> None:
    layout = Layout(["t", "i"], [TEXT, INT], [("x" * 100, 1)], None)
    assert list(layout.lines(("x" * 100, 1))) == ["x" * 60 + " 1", "x" * 40]
    assert list(layout.lines(("a\nb", 2))) == ["a" + " " * 59 + " 2", "b"]


def test_columns_of_long_texts_give_way_to_the_terminal() -> None:
    layout = Layout(["i", "t"], [INT, TEXT], [(1, "x" * 50)], 40)
    assert layout.head() == ["I           T", "-" * 11 + " " + "-" * 28]
    assert list(layout.lines((1, "x" * 50))) == ["1           " + "x" * 28, " " * 12 + "x" * 22]


def test_rows_too_wide_for_the_terminal_are_written_a_column_a_line() -> None:
    layout = Layout(["a", "bb"], [INT, INT], [], 20)
    assert layout.head() == []
    assert [*layout.lines((1, None)), *layout.lines((2, 3))] == [
        "ROW 1",
        "A  1",
        "BB NULL",
        "",
        "ROW 2",
        "A  2",
        "BB 3",
    ]


def test_what_would_steer_the_terminal_is_escaped() -> None:
    assert wrapped("a\x1b[2Jb\tc\x00", 30) == ["a\\x1b[2Jb\\tc\\x00"]


def test_a_character_of_two_places_is_not_cut() -> None:
    assert wrapped("日本語", 5) == ["日本", "語"]


# ---- other forms of output


def test_csv_tells_null_from_an_empty_text(shop: str, capsys: Output) -> None:
    assert sql(shop, "-c", "select i, s, '' as e, 'a,\"b' as q from tbl order by i", "--output", "csv") == 0
    first, second, third, fourth = capsys.readouterr().out.splitlines()
    assert (first, second) == ("i,s,e,q", '0,hello,"","a,""b"')
    assert (third, fourth) == ('1,,"","a,""b"', '2,日本,"","a,""b"')


def test_json_is_an_array_with_a_row_a_line(shop: str, capsys: Output) -> None:
    assert sql(shop, "-c", "select i, s, i as i, true as b, 1.10 as d from tbl order by i", "--output", "json") == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) == 5
    assert json.loads(out, parse_float=Decimal)[1] == {"i": 1, "s": None, "i_2": 1, "b": True, "d": Decimal("1.10")}


@pytest.mark.parametrize(
    ("value", "as_csv", "as_json"),
    [
        (None, "", "null"),
        (float("nan"), "nan", '"nan"'),
        (Decimal("1E+3"), "1000", "1000"),
        (datetime(2024, 1, 2, 3, 4, 5), "2024-01-02 03:04:05", '"2024-01-02 03:04:05"'),
        (date(2024, 1, 2), "2024-01-02", '"2024-01-02"'),
        (" x", '" x"', '" x"'),
        (b"\x01", "\\x01", '"\\\\x01"'),
    ],
)
def test_values_as_csv_and_json(value: object, as_csv: str, as_json: str) -> None:
    assert (csv_of(value), json_of(value)) == (as_csv, as_json)


def test_parquet_has_the_types(shop: str, tmp_path: Path) -> None:
    target = tmp_path / "tbl.parquet"
    assert sql(shop, "-c", "select * from tbl order by i", "--output", "parquet", "--to", str(target)) == 0
    found = parquet.read_table(target)
    assert found.schema.types == [pa.int32(), pa.string()]
    assert found.column("s").to_pylist() == ["hello", None, "日本"]


def test_parquet_without_rows_is_a_file_with_columns(shop: str, tmp_path: Path) -> None:
    target = tmp_path / "none.parquet"
    assert sql(shop, "-c", "select * from tbl where i < 0", "--output", "parquet", "--to", str(target)) == 0
    assert parquet.read_table(target).schema.names == ["i", "s"]


def test_parquet_needs_a_file(shop: str, capsys: Output) -> None:
    assert sql(shop, "-c", "select 1", "--output", "parquet") == 2
    assert "Parquet needs a file" in capsys.readouterr().err


def test_the_output_is_chosen_in_a_script(shop: str, tmp_path: Path, capsys: Output) -> None:
    script = tmp_path / "script.sql"
    target = tmp_path / "out.csv"
    script.write_text(
        f"set output csv '{target}'\nselect i from tbl;\nselect 1 as one;\nset output table\nselect 2 as n;"
    )
    assert sql(shop, "-f", str(script)) == 0
    assert target.read_text() == "i\n0\n1\n2\none\n1\n"
    assert capsys.readouterr().out == "N\n-----------\n2\n\n"


# ---- statements


def test_statements_of_the_command_line_are_committed(shop: str) -> None:
    assert sql(shop, "-c", "update tbl set s = 'x;y' where i = 0; delete from tbl where i = 1", "-c", "select 1") == 0
    assert rows(shop) == [(0, "x;y"), (2, "日本")]


def test_what_a_script_does_not_commit_is_rolled_back_and_that_is_said(shop: str, capsys: Output) -> None:
    assert sql(shop, "-c", "set autocommit off; delete from tbl; select count(*) from tbl") == 0
    assert "what was not committed is rolled back" in capsys.readouterr().err
    assert len(rows(shop)) == 3
    assert sql(shop, "-c", "set autocommit off; select count(*) from tbl") == 0
    assert capsys.readouterr().err == ""


def test_begin_holds_autocommit_off_until_the_transaction_ends(shop: str, capsys: Output) -> None:
    assert sql(shop, "-c", "begin; delete from tbl; rollback; delete from tbl where i = 0") == 0
    assert capsys.readouterr().err == ""
    assert [i for i, _ in rows(shop)] == [1, 2]
    assert sql(shop, "-c", "begin; delete from tbl") == 0
    assert "rolled back" in capsys.readouterr().err
    assert [i for i, _ in rows(shop)] == [1, 2]


def test_a_script_ends_at_the_first_statement_that_fails(shop: str, tmp_path: Path, capsys: Output) -> None:
    script = tmp_path / "script.sql"
    script.write_text("-- first\n\ndelete from tbl where i = 0;\nselect *\n  form tbl;\ndelete from tbl;\n")
    assert sql(shop, "-f", str(script)) == 2
    err = capsys.readouterr().err.splitlines()
    assert err[0] == "  form tbl"
    assert err[1].strip() == "^"
    assert err[2].startswith(f"{script}:5: error: syntax error")
    assert [i for i, _ in rows(shop)] == [1, 2]


def test_the_caret_stands_below_wide_characters_too(shop: str, capsys: Output) -> None:
    assert sql(shop, "-c", "select '日本', nosuch from tbl") == 2
    line, caret, message = capsys.readouterr().err.splitlines()
    assert (line, caret) == ("select '日本', nosuch from tbl", " " * 15 + "^")
    assert "nosuch" in message


def test_describe_shows_columns_keys_and_constraints(shop: str, capsys: Output) -> None:
    table = "create table d (i int generated always as identity primary key, s varchar(5) default 'x' check (s <> ''))"
    assert sql(shop, "-c", f"{table}; describe d; desc tbl; show tables") == 0
    out = capsys.readouterr().out
    assert "i      INT        no       identity, always" in out
    assert "s      VARCHAR(5) yes      'x'" in out
    assert "d_pkey i       btree yes" in out
    assert "s <> ''" in out
    assert out.endswith("NAME KIND\n---- -----\nd    table\ntbl  table\n\n")


def test_feedback_and_timing_are_said_when_asked_for(shop: str, capsys: Output) -> None:
    assert sql(shop, "-c", "set feedback on; update tbl set i = i; select 1; set timing on; delete from tbl") == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line]
    assert lines[0] == "3 rows updated"
    assert lines[4:6] == ["1 row found", "3 rows deleted"]
    assert lines[6].endswith(" s")


def test_a_pipe_is_read_as_a_script(shop: str, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("select i\nfrom tbl\nwhere i = 2;\nexit\nnonsense;"))
    assert sql(shop) == 0
    assert capsys.readouterr().out == "I\n-----------\n2\n\n"


def test_a_million_rows_do_not_stay_in_memory(tmp_path: Path) -> None:
    path, target = tmp_path / "big.gmdb", tmp_path / "big.csv"
    with gmdb.connect(path) as db:
        db.execute("create table t (i int, s varchar(20))")
        db.append("t", pa.table({"i": pa.array(range(1_000_000), pa.int32()), "s": ["x" * 20] * 1_000_000}))
    measured = "import resource, sys; from gmdb.cli import main; status = main(sys.argv[1:]); " + (
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10, file=sys.stderr); sys.exit(status)"
    )
    sizes = []
    for limit in (1000, 1_000_000):
        arguments = [
            "sql",
            str(path),
            "-c",
            f"select * from t where i < {limit}",
            "--output",
            "csv",
            "--to",
            str(target),
        ]
        ran = subprocess.run([sys.executable, "-c", measured, *arguments], capture_output=True, text=True, check=True)
        sizes.append(int(ran.stderr))
    assert sum(1 for _ in target.open()) == 1_000_001
    assert sizes[1] - sizes[0] < 250, sizes  # MiB; the rows as Python objects would be 150 and more on top


def test_an_interrupted_script_ends_with_the_status_of_that(shop: str) -> None:
    endless = "with n as (select a.i from tbl a, tbl b, tbl c, tbl d) select count(*) from " + ", ".join(
        f"n as n{k}" for k in range(12)
    )
    statements = ["delete from tbl where i = 0; select 1 as ready; " + endless]
    command = [sys.executable, "-m", "gmdb.cli", "sql", shop, "-c", *statements]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "READY\n"
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "error: the statement was interrupted\n")
    assert [i for i, _ in rows(shop)] == [1, 2]


# ---- reading


@pytest.mark.parametrize(
    ("text", "pieces", "rest"),
    [
        ("select 1; select 2;", ["select 1", "select 2"], ""),
        ("select ';'; x", ["select ';'"], " x\n"),
        ('select ";" -- ; \n;', ['select ";" -- ;'], ""),
        ("select 'it''s;' /* ; /* ; */ ; */;", ["select 'it''s;' /* ; /* ; */ ; */"], ""),
        (r"select e'\';';", [r"select e'\';'"], ""),
        ("select $a$;$$;$a$;", ["select $a$;$$;$a$"], ""),
        ("-- only a comment;\n;;", [], ""),
        ("select '", [], "select '\n"),
    ],
)
def test_statements_end_at_semicolons_outside_of_texts_and_comments(text: str, pieces: list[str], rest: str) -> None:
    reader = Pieces()
    assert [piece.text for line in (text + "\n").splitlines(True) for piece in reader.feed(line)] == pieces
    assert reader.rest == rest


def test_pieces_know_their_lines() -> None:
    assert [tuple(p) for p in Pieces().feed("select\n1;\n\n  select 2; select 3;")] == [
        ("select\n1", 1),
        ("select 2", 4),
        ("select 3", 4),
    ]


@pytest.mark.parametrize(
    ("text", "finished"),
    [("", True), ("exit", True), ("set autocommit off", True), ("select 1", False), ("select ';", False), ("x;", True)],
)
def test_enter_ends_a_statement_or_a_command(text: str, finished: bool) -> None:
    assert is_finished(text) is finished


def test_history_is_kept_in_the_state_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert history_path() == Path("/state/gmdb/history")


def test_completion_knows_the_columns_of_the_tables_that_are_named(shop: str) -> None:
    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

    with gmdb.connect(shop) as db:
        names = Names(lambda: db)

        def completed(text: str) -> list[str]:
            return [c.text for c in names.get_completions(Document(text), CompleteEvent())]

        assert completed("select * from tb") == ["tbl"]
        assert "s" in completed("update tbl set s")
        assert "s" not in completed("select s")
        assert completed("SELEC") == ["SELECT"]
