"""The shell as users have it: in a terminal, by keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import gmdb
from tests.cli.tmux import Terminal, needs_tmux, shell
from tests.integrity import assert_sound

pytestmark = needs_tmux
HELLOS = 150_000
FIRST = """\
SQL>set autocommit off;
SQL>select * from tbl where rownum<2;
I           S
----------- ----------
0           hello

SQL>update tbl set s='hello1' where i=0;
SQL>"""
OTHER = """\
SQL>select * from tbl where I=0;
I           S
----------- ----------
0           hello

SQL>"""


@pytest.fixture
def database(path: Path) -> Iterator[Path]:
    with gmdb.connect(path) as db:
        db.create_table("tbl", {"i": "INT", "s": "VARCHAR(10)"})
        db.append("tbl", pa.table({"i": pa.array(range(HELLOS), pa.int32()), "s": ["hello"] * HELLOS}))
    yield path
    assert_sound(path)


@pytest.fixture
def first(database: Path, tmp_path: Path) -> Iterator[Terminal]:
    with shell(tmp_path, "first", str(database)) as terminal:
        yield terminal
        terminal.wait_for_prompt()
        terminal.press("C-d")
        terminal.wait_for_end()


def body(terminal: Terminal) -> str:
    """The screen without the line that greets."""
    return terminal.screen().split("\n", 1)[1]


def test_an_update_that_is_not_committed_is_not_seen_by_the_other_shell(
    first: Terminal, database: Path, tmp_path: Path
) -> None:
    first.ask("set autocommit off;")
    first.ask("select * from tbl where rownum<2;")
    first.ask("update tbl set s='hello1' where i=0;")
    assert body(first) == FIRST
    assert "not committed" in first.status()
    assert "1 row updated" in first.status()
    with shell(tmp_path, "other", str(database)) as other:
        other.ask("select * from tbl where I=0;")
        assert body(other) == OTHER
        first.ask("commit;")
        assert "not committed" not in first.status()
        other.ask("select * from tbl where I=0;")
        assert body(other) == OTHER + OTHER[4:].replace("hello\n", "hello1\n").replace("SQL>select", "select", 1)
        other.type("exit")
        other.wait_for_end()


def test_the_other_shell_goes_on_when_the_first_has_left(database: Path, tmp_path: Path) -> None:
    with shell(tmp_path, "one", str(database)) as one, shell(tmp_path, "two", str(database)) as two:
        one.ask("set autocommit off;")
        one.ask("update tbl set s='mine' where i=0;")
        two.ask("begin;")
        two.ask("update tbl set s='mine' where i=1;")
        one.type("exit")
        one.wait_for("what was not committed is rolled back")
        two.ask("commit;")
        assert "the transaction is rolled back" in two.screen()
        two.ask("select * from tbl where i=0;")
        assert body(two).endswith(OTHER.split("\n", 1)[1])
        two.press("C-d")
        two.wait_for_end()


def test_control_c_ends_the_statement_and_not_the_shell(first: Terminal) -> None:
    first.type("select count(*) from tbl a, tbl b, tbl c where a.i + b.i + c.i < 0;")
    first.wait_for("Ctrl-C ends it")
    first.press("C-c")
    first.wait_for("error: the statement was interrupted")
    first.wait_for_prompt()
    first.ask("select count(*) from tbl;")
    assert f"\n{HELLOS}\n" in first.screen()


def test_control_c_ends_a_wait_for_a_row(first: Terminal, database: Path, tmp_path: Path) -> None:
    first.ask("set autocommit off")
    first.ask("update tbl set s='mine' where i=0;")
    with shell(tmp_path, "other", str(database)) as other:
        other.type("update tbl set s='yours' where i=0;")
        other.wait_for("Ctrl-C ends it")
        other.press("C-c")
        other.wait_for("interrupted")
        other.wait_for_prompt()
        other.type("quit")
        other.wait_for_end()
    first.ask("rollback;")


def test_control_c_ends_the_printing_of_many_rows(first: Terminal) -> None:
    first.type("select a.i, b.s from tbl a, tbl b;")
    first.wait_for("hello")
    first.press("C-c")
    first.wait_for("interrupted")
    first.wait_for_prompt()
    first.type("select 1;")
    first.wait_for("?COLUMN?")


def test_control_c_at_the_prompt_forgets_the_line(first: Terminal) -> None:
    first.type("select *")
    first.wait_for("2>")
    first.press("C-c")
    first.wait_for_prompt()
    first.ask("select 7;")
    assert "?COLUMN?\n-----------\n7" in first.screen()


def test_tab_completes_keywords_tables_and_columns(first: Terminal) -> None:
    first.ask("create table longer_name (quantity int, quality varchar(5));")
    for keys, completed in (
        ("sele", "SQL>select"),
        (" quan", "SQL>select quan"),
        (" from long", "SQL>select quan from longer_name"),
        (" where quant", "SQL>select quan from longer_name where quantity"),
    ):
        first.keys(keys)
        first.press("Tab")
        first.wait_for(completed)
    first.press("C-c")
    first.wait_for_prompt()


def test_what_was_typed_is_there_again_in_the_next_shell(first: Terminal, database: Path, tmp_path: Path) -> None:
    first.ask("select 41 + 1;")
    with shell(tmp_path, "next", str(database)) as other:
        other.press("Up")
        other.wait_for("SQL>select 41 + 1;")


def test_an_error_points_at_its_place_in_several_lines(first: Terminal) -> None:
    first.type("select i,")
    first.wait_for("2>")
    first.type("       nosuch from tbl;")
    first.wait_for("error:")
    lines = body(first).split("\n")
    assert lines[0:2] == ["SQL>select i,", "  2>       nosuch from tbl;"]
    assert lines[2:4] == ["       nosuch from tbl", "       ^"]
    assert lines[4].startswith("error: line 2: there is no column nosuch")


def test_rows_that_are_wider_than_the_terminal_are_written_a_column_a_line(first: Terminal) -> None:
    columns = ", ".join(f"{n} as number_{n}" for n in range(10))
    first.ask(f"select {columns} from tbl where rownum < 3;")
    assert "ROW 2\nNUMBER_0 0\nNUMBER_1 1\n" in first.screen()
