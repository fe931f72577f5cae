"""Dumps and backups from the middle of building an index: they verify clean, and opening a backup takes it back."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import gmdb
from gmdb.format.undo import UNDO_ENTRY, UNDO_RECORD, UndoOperation, record_extents
from gmdb.kernel.change.index_calls import add_some
from gmdb.kernel.change.index_fill import fill_tree
from gmdb.tables.access import index_build
from gmdb.tables.files.database_files import DatabaseFiles
from gmdb.verify import verify

ROWS = 30_000
FILLING = {"btree": fill_tree, "hash": add_some}
SHADOWS = {
    "btree": {UndoOperation.BTREE_INSERT_SHADOW, UndoOperation.BTREE_DELETE_SHADOW},
    "hash": {UndoOperation.HASH_INSERT_SHADOW, UndoOperation.HASH_DELETE_SHADOW},
}


def operations(path: Path) -> set[int]:
    with DatabaseFiles(path) as files:
        pages = [files.page(page_id) for page_id in files.segment_pages(UNDO_ENTRY)]
    return {int(UNDO_RECORD.at(page, at).op_type) for page in pages for at, _, _ in record_extents(page)}


@pytest.mark.parametrize("using", ["btree", "hash"])
def test_copies_from_the_middle_of_a_build_are_sound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, using: str
) -> None:
    """At three moments: before filling, halfway through it, and with all that is to be caught up with."""
    path, taken = tmp_path / "d.gmdb", []
    with gmdb.connect(path) as db, gmdb.connect(path) as other:
        db.create_table("t", {"i": "INT", "s": "VARCHAR(40)"})
        rows = {"i": pa.array(range(ROWS), pa.int32()), "s": [f"row {n % 700}" for n in range(ROWS)]}
        db.append("t", pa.table(rows))
        db.commit()
        ids = [row_id for row_id, _ in other.heap("t").rows()][:60]
        other.commit()

        def take(name: str) -> None:
            heap = other.heap("t")
            row_id = heap.insert((ROWS + len(taken), "meanwhile"))
            heap.update(row_id, {"s": "changed"})
            heap.update(ids.pop(), {"s": name})
            heap.delete(ids.pop())
            other.dump(tmp_path / f"{name}.dump")
            other.backup(tmp_path / f"{name}.backup")
            taken.append(name)
            other.commit()

        call = index_build.Filling._call
        calls = []

        def counted(self: index_build.Filling, kernel: object, *arguments: int) -> int:
            done = call(self, kernel, *arguments)
            if kernel is FILLING[using]:
                calls.append(done)
                if len(calls) == 2:
                    assert 0 < sum(calls) < ROWS
                    take("halfway")
            return done

        fill = index_build.Filling.fill

        def wrapped(self: index_build.Filling, form: object) -> None:
            take("before")
            fill(self, form)  # type: ignore[arg-type]
            take("filled")

        monkeypatch.setattr(index_build.Filling, "_call", counted)
        monkeypatch.setattr(index_build.Filling, "fill", wrapped)
        db.autocommit = True  # others go on meanwhile
        db.create_index("t_s", "t", ["s"], using=using)
        monkeypatch.undo()
        other.dump(tmp_path / "after.dump")
    assert taken == ["before", "halfway", "filled"]
    assert verify(path).findings == []
    assert verify(tmp_path / "after.dump").findings == []
    for name in taken:
        assert SHADOWS[using] <= operations(tmp_path / f"{name}.dump")
        assert verify(tmp_path / f"{name}.dump").findings == []
        with gmdb.connect(tmp_path / f"{name}.backup") as db:
            assert db.table("t").indexes == ()
            db.create_index("t_s", "t", ["s"], using=using)
        assert verify(tmp_path / f"{name}.backup").findings == []


@pytest.mark.parametrize("using", ["btree", "hash"])
def test_what_was_left_for_an_index_that_was_given_up_means_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, using: str
) -> None:
    """A reader keeps the undo of a writer who met an index that failed; another index comes after it."""
    path = tmp_path / "d.gmdb"
    reader = gmdb.connect(path, isolation="repeatable read")
    with reader, gmdb.connect(path) as db, gmdb.connect(path) as other:
        db.create_table("u", {"i": "INT"})
        db.create_table("t", {"i": "INT"})
        for n in range(100):
            db.insert("t", (n,))
        db.commit()
        list(reader.heap("u").rows())

        def fill(_: index_build.Filling, __: object) -> None:
            other.insert("t", (7,))
            other.heap("t").delete(next(row_id for row_id, _ in other.heap("t").rows()))
            other.commit()
            raise KeyboardInterrupt

        monkeypatch.setattr(index_build.Filling, "fill", fill)
        db.autocommit = True
        with pytest.raises(KeyboardInterrupt):
            db.create_index("t_i", "t", ["i"], using=using)
        monkeypatch.undo()
        db.dump(tmp_path / "failed.dump")
        db.create_index("other_kind", "t", ["i"], using="hash" if using == "btree" else "btree")
        db.create_index("same_kind", "t", ["i"], using=using)
        db.autocommit = False
        db.insert("t", (8,))
        db.dump(tmp_path / "others.dump")
    for name in ("failed.dump", "others.dump"):
        assert SHADOWS[using] <= operations(tmp_path / name)
        assert verify(tmp_path / name).findings == []
    assert verify(path).findings == []
