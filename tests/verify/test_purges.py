"""What garbage collection leaves of index entries when others come between its batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import gmdb
from gmdb.kernel.change.gc import purge_records
from gmdb.verify import verify


@pytest.mark.parametrize("using", ["btree", "hash"])
def test_a_rollback_amid_a_purge_leaves_no_lock_on_an_entry(
    tmp_path: Path, using: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries are purged before rows, a batch at a time; whoever rolls back in between has found them done with."""
    path = tmp_path / "work.gmdb"
    with gmdb.connect(path) as db, gmdb.connect(path) as other:
        db.create_table("t", {"k": "INT"})
        db.create_index("t_k", "t", ["k"], using=using)
        row_ids = [db.insert("t", (n,)) for n in range(100)]
        db.commit()
        db.gc()
        for row_id in row_ids:
            db.heap("t").update(row_id, {"k": 1000})
        db.commit()
        for row_id in row_ids:
            other.heap("t").update(row_id, {"k": 2000})
        store = db._database.store
        purge = store.call_essential
        batches = []

        def between(kernel: Any, *arguments: Any) -> Any:
            done = purge(kernel, *arguments)
            if kernel is purge_records:
                batches.append(done)
                if len(batches) == 4:  # all entries, and no row yet
                    other.rollback()
            return done

        monkeypatch.setattr(store, "call_essential", between)
        db.gc()
        assert len(batches) > 4
        monkeypatch.undo()
    assert verify(path).findings == []
