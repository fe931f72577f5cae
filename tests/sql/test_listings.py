"""Table functions of the inspector, in SQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import gmdb
from gmdb.errors import InterfaceError, NoSuchFunction, NoSuchTable, UnsupportedExpression
from gmdb.inspect.inspector import LISTINGS
from tests.inspect.states import fill


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[gmdb.Connection]:
    with gmdb.connect(tmp_path_factory.mktemp("sql") / "db") as connection:
        fill(connection)
        connection.gc()  # else it may come between two looks at the pages
        yield connection


ARGUMENTS = {
    **dict.fromkeys(("maps", "freelists", "fill", "pages", "rows"), "'t'"),
    "index": "'t_i'", "entries": "'t_i'", "hash": "'t_h'", "regions": "'4:1'", "image": "'4:1'", "history": "'4:1'",
    "diff": "'4:1', '4:7'", "cells": "0, 1, 1000, 1", "seen": "'4:7', 0",
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in LISTINGS if name != "row"])
def test_every_listing_is_a_table_function(db: gmdb.Connection, name: str) -> None:
    cursor = db.execute(f"select * from gm_{name}({ARGUMENTS.get(name, '')})")
    table = db.inspect(name, *(one.strip("'") for one in ARGUMENTS.get(name, "").split(", ") if one))
    assert [column[0] for column in cursor.description] == table.schema.names
    assert len(cursor.fetchall()) == table.num_rows


def test_they_are_filtered_joined_and_grouped_as_tables_are(db: gmdb.Connection) -> None:
    (rows,) = db.execute("select count(*) from gm_rows('t') where _flags is null and i < 100").fetchone()
    assert rows == 100 - 11 - db.execute("select count(*) from gm_rows('t') where _flags = 'ENTRY'").fetchone()[0]
    joined = db.execute(
        "select p.name, p.live_rows, count(*) from gm_pages('t') p join gm_rows('t') r on r._page_id = p.page_id "
        "where r._flags is null or r._flags = 'ENTRY' group by p.name, p.live_rows"
    ).fetchall()
    assert joined
    assert all(live == counted for _, live, counted in joined)
    place = db.execute("select rowid from t where i = 5").fetchone()[0]
    versions = db.execute(f"select _state, i from gm_row('{place}') order by _version").fetchall()
    assert versions[0] == ("here", 5)
    first = joined[0][0]
    some = db.execute(f"select distinct _page_id from gm_rows('t', pages => '{first}')").fetchall()
    assert len(some) == 1
    assert "gm_rows('t')" in "\n".join(line for (line,) in db.execute("explain select * from gm_rows('t')").fetchall())


def test_they_see_what_the_session_has_just_done(db: gmdb.Connection) -> None:
    query = "select count(*) from gm_rows('t') where s = 'just now'"
    assert db.execute(query).fetchone() == (0,)
    db.execute("update t set s = 'just now' where i = 77")
    assert db.execute(query).fetchone() == (1,)
    db.rollback()
    assert db.execute(query).fetchone() == (0,)


def test_what_is_wrong_with_a_call_is_said(db: gmdb.Connection) -> None:
    with pytest.raises(NoSuchFunction, match="no table function gm_nothing; there are gm_spaces"):
        db.execute("select * from gm_nothing()")
    with pytest.raises(NoSuchTable, match="has no segment tt"):
        db.execute("select * from gm_rows('tt')")
    with pytest.raises(InterfaceError, match="it takes segment"):
        db.execute("select * from gm_rows()")
    with pytest.raises(UnsupportedExpression, match="written out"):
        db.execute("select * from gm_rows(lower('T'))")
    with pytest.raises(InterfaceError, match="takes no range"):
        db.execute("select * from gm_spaces(pages => '4:1')")
