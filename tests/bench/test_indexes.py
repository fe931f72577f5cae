from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from bench.harness import Summary
from bench.indexes import (
    INDEX,
    GmdbWithDuplicates,
    HashedGmdb,
    Indexed,
    IndexedGmdb,
    IndexedSqlite,
    KeyedSqlite,
    indexing,
    loaded,
    summarize_found,
)
from bench.tables import narrow_table, shuffled_table

from gmdb.errors import NoSuchIndex

ROWS = 2000


def test_the_shuffled_table_has_every_key_once_and_not_in_order():
    keys = shuffled_table(ROWS).data["i"].to_pylist()
    assert keys != list(range(ROWS))
    assert sorted(keys) == list(range(ROWS))


def test_a_range_of_keys_is_the_same_table_everywhere(tmp_path: Path):
    table = shuffled_table(ROWS)
    expected = table.data.sort_by("i").slice(500, 200)
    for peer in (IndexedGmdb, KeyedSqlite):
        (tmp_path / peer.name).mkdir()
        with loaded(peer, table, tmp_path / peer.name) as opened:
            found = opened.find_range(500, 700)
        assert found.schema.types == expected.schema.types
        assert found.to_pylist() == expected.to_pylist()


@pytest.mark.parametrize("peer", [IndexedGmdb, HashedGmdb, KeyedSqlite])
def test_keys_that_are_not_there_are_not_found(peer: type[Indexed], tmp_path: Path):
    table = narrow_table(ROWS)
    with loaded(peer, table, tmp_path) as opened:
        assert opened.rows_found(opened.find([7, ROWS, 3])) == [table.python_rows[7], table.python_rows[3]]


def test_a_row_that_was_not_asked_for_does_not_count():
    rows = narrow_table(ROWS).python_rows
    assert summarize_found(rows[:3], rows[:3]) == Summary(3, 3)
    assert summarize_found(rows[:3], [rows[0], rows[3], rows[2]]) == Summary(2, 2)
    assert summarize_found(rows[:3], rows[:2]) == Summary(2, 1)


@pytest.mark.parametrize("peer", [GmdbWithDuplicates, IndexedSqlite])
def test_every_round_has_an_index_to_make(peer: type[GmdbWithDuplicates | IndexedSqlite], tmp_path: Path):
    table = shuffled_table(ROWS)
    for _ in range(2):
        with indexing(peer, table, tmp_path) as attempt:
            assert attempt.summarize(attempt.run()) == table.summary
    with closing(peer(tmp_path / "loaded", table)) as opened:
        opened.drop_index()
        with pytest.raises((NoSuchIndex, sqlite3.OperationalError), match=INDEX):
            opened.summarize_index()
