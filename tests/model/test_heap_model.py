"""Random inserts, updates, deletes, migrations and compactions against a dict."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import gmdb
from gmdb.errors import NoSuchRow
from gmdb.format.address import RowId
from gmdb.format.heap import check
from tests.integrity import assert_sound
from tests.searches import extent

SIZES = st.one_of(st.integers(0, 30), st.integers(0, 4000), st.sampled_from([7, 8, 2019, 2020, 4000]))


class HeapMachine(RuleBasedStateMachine):
    """The rows that a heap should have, beside the heap."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "model.gmdb"
        self.db = gmdb.connect(self.path)
        self.db.create_table("t", {"n": "BIGINT", "s": "VARCHAR(4000)"}, pct_free=10)
        self.db.commit()
        self.heap = self.db.heap("t")
        self.rows: dict[RowId, tuple[int | None, str | None]] = {}
        self.given_out: set[RowId] = set()
        self.committed: dict[RowId, tuple[int | None, str | None]] = {}
        self.collected = False

    def pick(self, number: int) -> RowId:
        return sorted(self.rows)[number % len(self.rows)]

    @rule(n=st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), size=st.one_of(st.none(), SIZES))
    def insert(self, n: int | None, size: int | None) -> None:
        values = (n, None if size is None else "x" * size)
        row_id = self.heap.insert(values)
        assert row_id not in self.rows
        if not self.collected:
            assert row_id not in self.given_out
        self.given_out.add(row_id)
        self.rows[row_id] = values

    @precondition(lambda self: self.rows)
    @rule(number=st.integers(0, 10**6), size=SIZES)
    def update(self, number: int, size: int) -> None:
        row_id = self.pick(number)
        self.rows[row_id] = (size, "y" * size)
        self.heap.update(row_id, self.rows[row_id])

    @precondition(lambda self: self.rows)
    @rule(number=st.integers(0, 10**6))
    def delete(self, number: int) -> None:
        row_id = self.pick(number)
        self.heap.delete(row_id)
        del self.rows[row_id]
        with pytest.raises(NoSuchRow):
            self.heap.fetch(row_id)

    @rule()
    def commit(self) -> None:
        self.db.commit()
        self.committed = dict(self.rows)

    @rule()
    def rollback(self) -> None:
        self.db.rollback()
        self.rows = dict(self.committed)

    @rule()
    def collect(self) -> None:
        self.db.gc()
        self.collected = True

    @rule()
    def reopen(self) -> None:
        self.db.close()
        self.rows = dict(self.committed)
        self.collected = True
        assert_sound(self.path)
        self.db = gmdb.connect(self.path)
        self.heap = self.db.heap("t")

    @invariant()
    def heap_has_the_models_rows(self) -> None:
        assert dict(self.heap.rows()) == self.rows
        scanned = self.db.arrow("t").read_all().to_pylist()
        assert [(row["n"], row["s"]) for row in scanned] == [values for _, values in self.heap.rows()]

    @invariant()
    def every_page_is_sound(self) -> None:
        for page_id in self.heap.segment.page_ids().tolist():
            page = bytes(self.heap.segment.store.devices[4].memory(page_id & 0x3FFFFF))
            assert list(check(page)) == []

    def teardown(self) -> None:
        self.db.close()
        assert_sound(self.path)
        self.folder.cleanup()


HeapMachine.TestCase.settings = settings(
    max_examples=extent(12, 25), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
test_a_heap_behaves_like_a_dict = pytest.mark.search(HeapMachine.TestCase)
