from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from bench.__main__ import main
from bench.harness import WrongResultError
from bench.indexes import INDEX, HashedGmdb, IndexedGmdb, KeyedSqlite
from bench.lookups import PEERS, LookupCost, levels, lookups_table, measure, table_sizes
from bench.memory import generated_batches
from bench.tables import narrow_table

from tests.access.trees import shape


@pytest.mark.parametrize("rows", [10, 1000, 100_000])
def test_the_levels_of_a_b_tree_are_counted(rows: int, tmp_path: Path):
    with closing(IndexedGmdb(tmp_path, narrow_table(rows))) as opened:
        opened.load(generated_batches(rows))
        tree = opened.db.heap(opened.table.name).by(INDEX).tree
        assert levels(opened) == len(shape(tree))


@pytest.mark.parametrize(("rows", "expected"), [(10, 2), (300_000, 3)])
def test_the_levels_of_a_hash_index_are_its_directories_and_the_bucket(rows: int, expected: int, tmp_path: Path):
    with closing(HashedGmdb(tmp_path, narrow_table(rows))) as opened:
        opened.load(generated_batches(rows))
        assert levels(opened) == expected


def test_rows_that_were_not_asked_for_are_found_out(tmp_path: Path, monkeypatch):
    class Wrong(KeyedSqlite):
        def find(self, keys: Sequence[int]) -> list:
            return super().find(sorted(keys))

    monkeypatch.setitem(PEERS, "SQLite", Wrong)
    with pytest.raises(WrongResultError, match="SQLite"):
        measure(tmp_path, 100, rounds=1)


def test_the_largest_table_is_as_large_as_wanted():
    assert table_sizes(10_000_000) == [10_000, 100_000, 1_000_000, 10_000_000]
    assert table_sizes(50_000) == [10_000, 50_000]
    assert table_sizes(10_000) == [10_000]
    assert table_sizes(500) == [500]


@pytest.mark.parametrize(("microseconds", "outcome"), [(3.0, "1.50× | met"), (3.1, "1.50× | **missed**")])
def test_the_cost_may_grow_as_the_levels_do(microseconds: float, outcome: str):
    costs = [LookupCost("B-tree", 10_000, 2, (2.0,)), LookupCost("B-tree", 1_000_000, 3, (microseconds,))]
    first, second = lookups_table(costs).splitlines()[2:]
    assert first == "| B-tree | 10,000 | 2 | 2.00 |  |  |  |"
    assert second.endswith(f"| {outcome} |")


def test_sqlite_is_shown_without_a_target():
    costs = [LookupCost("SQLite", 10_000, None, (2.0,)), LookupCost("SQLite", 100_000, None, (9.0,))]
    assert lookups_table(costs).splitlines()[-1] == "| SQLite | 100,000 |  | 9.00 | 4.50× |  |  |"


def test_the_program_measures_lookups_and_leaves_no_files(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert main(["lookups", "--rows", "500", "--rounds", "1"]) == 0
    _, _, *lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0] for line in lines] == ["| B-tree", "| hash", "| SQLite"]
    assert list(tmp_path.iterdir()) == []
