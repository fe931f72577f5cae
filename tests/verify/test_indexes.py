"""Damaged indexes: what is wrong with a tree, and where tree and table disagree."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import LockTimeout, NoSuchRow, RowLocked, UniqueViolation, WriteConflict
from gmdb.format.address import NO_PAGE, RowId, page_id_of, page_name
from gmdb.format.btree import BTREE_NODE, INDEX_AT, INDEX_HEAD, NODE_AT
from gmdb.format.row import BITS_AT, COL_COUNT_AT, RowFlag, encode_row
from gmdb.format.segment import SEGMENT_HEAD, SEGMENT_HEAD_AT
from gmdb.format.undo import UNDO_RECORD, UndoOperation, record_extents
from gmdb.tables.catalog.schema import SYS_INDEXES_COLUMNS
from gmdb.tables.files.database_files import DatabaseFiles
from gmdb.verify import verify
from tests.verify.expect import found, only
from tests.verify.indexed import KEY_AT, POINTER_AT, TreeDamage, build_indexed


@pytest.fixture(scope="module")
def sound_indexes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_indexed(tmp_path_factory.mktemp("indexes") / "sound.gmdb")


@pytest.fixture
def tree(sound_indexes: Path, tmp_path: Path) -> TreeDamage:
    return TreeDamage(Path(shutil.copytree(sound_indexes, tmp_path / "copy.gmdb")))


def test_a_sound_database_with_trees_of_several_levels_has_no_findings(tree: TreeDamage) -> None:
    assert tree.findings() == []
    assert [tree.node(tree.root(name))["level"] for name in ("t_k", "t_s", "t_w")] == [1, 2, 1]


# ---- the tree


def test_swapped_entries_are_not_in_order(tree: TreeDamage) -> None:
    leaf = tree.leaves("t_k")[1]
    tree.set_slots(leaf, lambda slots: [*slots[:4], slots[5], slots[4], *slots[6:]])
    only(tree, leaf, tree.offset(leaf, 5) + KEY_AT, "index t_k: slot 5: entries are not in order: (")


def test_entries_with_one_key_are_in_the_order_of_their_rows(tree: TreeDamage) -> None:
    with gmdb.connect(tree.path) as db:
        for _ in range(5):
            db.insert("t", (None, "same", 1.0, None))
    leaf = tree.leaves("t_w")[-1]  # NULLs
    tree.set_slots(leaf, lambda slots: [slots[1], slots[0], *slots[2:]])
    findings = found(tree, leaf, tree.offset(leaf, 1) + KEY_AT, "slot 1: entries are not in order: (None) of row")
    assert len(findings) == 1


def test_an_entry_that_is_there_twice_is_found(tree: TreeDamage) -> None:
    leaf = tree.leaves("t_k")[0]
    tree.set_slots(leaf, lambda slots: slots)
    page, row_id = tree.page(leaf), tree.row_of(leaf, 3)
    size = int.from_bytes(page[tree.offset(leaf, 3) + 4 :][:2], "little")
    tree.write(leaf, tree.offset(leaf, 4), page[tree.offset(leaf, 3) :][:size])
    findings = found(tree, leaf, tree.offset(leaf, 4), "slot 4: the entry of key (")
    assert f"of row {row_id} and its row is there twice" in str(findings)
    assert "has no entry for the row's key" in str(findings)


@pytest.mark.parametrize(("field", "where"), [("prev", "before"), ("next", "behind")])
def test_a_broken_link_is_found(tree: TreeDamage, field: str, where: str) -> None:
    leaves = tree.leaves("t_k")
    at = tree.set(leaves[2], BTREE_NODE, NODE_AT, field, leaves[0])
    right = leaves[1 if field == "prev" else 3]
    said = f"index t_k: {field} is page {page_name(leaves[0])}, but the page {where} it is {page_name(right)}"
    only(tree, leaves[2], at, said)


@pytest.mark.parametrize(("field", "number", "where"), [("prev", 0, "before"), ("next", -1, "behind")])
def test_a_level_ends_on_both_sides(tree: TreeDamage, field: str, number: int, where: str) -> None:
    leaves = tree.leaves("t_k")
    at = tree.set(leaves[number], BTREE_NODE, NODE_AT, field, leaves[1])
    only(tree, leaves[number], at, f"{field} is page {page_name(leaves[1])}, but the page {where} it is none")


def test_a_page_of_another_level_is_found(tree: TreeDamage) -> None:
    branch = tree.level("t_s", 1)[1]
    at = tree.set(branch, BTREE_NODE, NODE_AT, "level", 2)
    only(tree, branch, at, "index t_s: level 2, but the page above it makes it 1")


def test_a_child_that_is_no_page_of_the_index_is_found(tree: TreeDamage) -> None:
    root, other = tree.root("t_k"), tree.leaves("t_w")[0]
    at = tree.offset(root, 2) + POINTER_AT
    tree.write(root, at, other.to_bytes(4, "little"))
    only(tree, root, at, f"slot 2: the entry leads to page {page_name(other)}, which is not a page of this index")


def test_a_child_that_two_entries_lead_to_is_found(tree: TreeDamage) -> None:
    root = tree.root("t_k")
    at = tree.offset(root, 2) + POINTER_AT
    tree.write(root, at, tree.child(root, 1).to_bytes(4, "little"))
    only(tree, root, at, f"leads to page {page_name(tree.child(root, 1))}, to which another entry leads already")


@pytest.mark.parametrize(("page_id", "said"), [(NO_PAGE, "not in use"), (page_id_of(4, 1), "not a page of this index")])
def test_a_root_that_is_none_is_found(tree: TreeDamage, page_id: int, said: str) -> None:
    at = tree.set(tree.index("t_k").entry_page, INDEX_HEAD, INDEX_AT, "root", page_id)
    only(
        tree,
        tree.index("t_k").entry_page,
        at,
        f"index t_k: the root leads to page {page_name(page_id)}, which is {said}",
    )


def test_a_root_that_is_not_the_top_leaves_pages_that_nothing_leads_to(tree: TreeDamage) -> None:
    branch, root = tree.level("t_s", 1)[0], tree.root("t_s")
    tree.set(tree.index("t_s").entry_page, INDEX_HEAD, INDEX_AT, "root", branch)
    findings = found(tree, root, NODE_AT, "index t_s: no page of the index leads to this page")
    assert any(f.page_id == branch and "next is page" in f.message for f in findings)
    assert not any("has no entry" in f.message for f in findings)


def test_a_page_that_its_parent_has_lost_is_found(tree: TreeDamage) -> None:
    root = tree.root("t_k")
    lost = tree.child(root, 3)
    tree.set_slots(root, lambda slots: slots[:3] + slots[4:])
    findings = found(tree, lost, NODE_AT, "index t_k: no page of the index leads to this page")
    assert not any("has no entry" in f.message for f in findings)


def test_a_branch_without_entries_is_found(tree: TreeDamage) -> None:
    root = tree.root("t_k")
    tree.set_slots(root, lambda _: [])
    only(tree, root, NODE_AT + BTREE_NODE.offset("slot_count"), "a branch without entries leads nowhere")


def test_a_last_entry_of_a_branch_with_a_key_is_found(tree: TreeDamage) -> None:
    root = tree.root("t_k")
    tree.set_slots(root, lambda slots: [*slots[:-2], slots[-1], slots[-2]])
    found(tree, root, tree.offset(root, -1), "the last entry of a branch has no key, but this one has")


@pytest.mark.parametrize(("change", "number", "said"), [(-50, 2, "is above"), (50, 3, "is not above")])
def test_a_separator_that_does_not_bound_its_children_is_found(
    tree: TreeDamage, change: int, number: int, said: str
) -> None:
    root = tree.root("t_k")
    at = tree.offset(root, 2) + KEY_AT
    key = int.from_bytes(tree.page(root)[at : at + 4], "little") + change
    tree.write(root, at, key.to_bytes(4, "little"))
    child = tree.child(root, number)
    slot = tree.node(child)["slot_count"] - 1 if number == 2 else 0
    bound = f"that of slot 2 of page {page_name(root)}, ({key}), which bounds the page"
    said = f"of row {tree.row_of(child, slot)} {said} {bound}"
    only(tree, child, tree.offset(child, slot) + KEY_AT, said)


def test_separators_of_branches_are_in_order_and_within_bounds(tree: TreeDamage) -> None:
    root, branches = tree.root("t_s"), tree.level("t_s", 1)
    at = tree.offset(branches[1], 0) + KEY_AT + 2
    tree.write(branches[1], at, b"!")  # below everything
    findings = found(tree, branches[1], at - 2, f"is not above that of slot 0 of page {page_name(root)}")
    assert any("is above that of slot 0 of page" in f.message for f in findings)


# ---- entries


def test_columns_that_are_not_those_of_the_index_are_found(tree: TreeDamage) -> None:
    leaf = tree.leaves("t_s")[2]
    at = tree.offset(leaf, 1)
    tree.write(leaf, at + COL_COUNT_AT, (3).to_bytes(2, "little"))
    said = "index t_s: slot 1: the columns of the entry's key are not those of the index: s VARCHAR(900), d DOUBLE"
    findings = found(tree, leaf, at + BITS_AT, said)
    assert len(findings) == 2
    assert "has no entry for the row's key" in str(findings)


def test_a_separator_of_an_index_that_is_not_unique_has_the_row_id(tree: TreeDamage) -> None:
    root = tree.root("t_w")
    slot = tree.offset(root, 0)
    size = int.from_bytes(tree.page(root)[slot + 4 : slot + 6], "little")
    tree.write(root, slot + 4, (size - 8).to_bytes(2, "little") + (1).to_bytes(2, "little") + (3).to_bytes(4, "little"))
    only(tree, root, slot + BITS_AT, "are not those of the index: w DECIMAL(30,2) and the row id")


@pytest.mark.parametrize(
    ("behind", "raw", "said"),
    [
        (0, b"\xff\xff\xff\x02", "flags, 0x02, are not flags of an entry"),
        (4, b"\x03\x00", "an entry of 3 bytes"),
        (6, b"\x00\x00", "an entry has 1 to 16 columns, this one 0"),
        (8, b"\x02\x00\x00\x00", "the key is longer than its entry"),
        (8, b"\x00\x00\x00\x00", "its key ends after 20"),
        (8, b"\x11\x00\x00\x00", "size bits behind those of the 1 columns are set"),
        (POINTER_AT + 6, b"\0\0", "does not end in 65535"),
    ],
)
def test_what_is_wrong_with_an_entry_by_itself_is_found(tree: TreeDamage, behind: int, raw: bytes, said: str) -> None:
    leaf = tree.leaves("t_k")[1]
    offset = tree.offset(leaf, 7)
    tree.write(leaf, offset + behind, raw)
    findings = tree.findings()
    assert any(f.page_id == leaf and "slot 7: " in f.message and said in f.message for f in findings), findings
    assert all(f.page_id == leaf for f in findings if "slot 7" not in f.message)


# ---- tables


def test_a_dropped_entry_is_missed_by_its_row(tree: TreeDamage) -> None:
    leaf = tree.leaves("t_k")[1]
    row_id = tree.row_of(leaf, 4)
    key = int.from_bytes(tree.page(leaf)[tree.offset(leaf, 4) + KEY_AT :][:4], "little")
    tree.set_slots(leaf, lambda slots: slots[:4] + slots[5:])
    offset = dict(tree.rows("t"))[row_id]
    said = f"slot {row_id.slot_id}: index t_k has no entry for the row's key, ({key})"
    only(tree, row_id.page_id, offset, said)


def test_many_dropped_entries_are_told_in_part(tree: TreeDamage) -> None:
    leaf = tree.leaves("t_k")[1]
    tree.set_slots(leaf, lambda slots: slots[:40])
    findings = tree.findings()
    assert len(findings) == 21
    assert "more rows of table t have no entry" in str(findings)


def test_an_entry_that_leads_to_another_row_is_found(tree: TreeDamage) -> None:
    leaf = tree.leaves("t_k")[1]
    row_id, other = tree.row_of(leaf, 4), tree.row_of(leaf, 9)
    tree.lead_to(leaf, 4, other)
    findings = found(tree, leaf, tree.offset(leaf, 4), f"leads to row {other}, whose key is (")
    assert [f.page_id for f in findings if "has no entry for" in f.message] == [row_id.page_id]
    assert len(findings) == 2


@pytest.mark.parametrize(
    ("row_id", "said"),
    [
        (RowId(page_id_of(4, 4_000_000), 1), "whose page is not in use"),
        (RowId(page_id_of(4, 1), 1), "but page 4:1 is not a page of rows of table t"),
        (None, "which is not there"),
    ],
)
def test_an_entry_whose_row_is_gone_is_found(tree: TreeDamage, row_id: RowId | None, said: str) -> None:
    leaf = tree.leaves("t_k")[1]
    to = RowId(tree.pages("t")[0], 400) if row_id is None else row_id
    tree.lead_to(leaf, 4, to)
    found(tree, leaf, tree.offset(leaf, 4), f"leads to row {to}, {said}")


def test_an_entry_of_a_deleted_row_is_found(tree: TreeDamage) -> None:
    leaf = tree.leaves("t_k")[1]
    row_id = tree.row_of(leaf, 4)
    offset = dict(tree.rows("t"))[row_id]
    tree.write(row_id.page_id, offset + 3, bytes([RowFlag.DELETE]))
    findings = found(tree, leaf, tree.offset(leaf, 4), f"leads to row {row_id}, which is deleted")
    assert {f.message.split(":")[0] for f in findings if f.page_id != row_id.page_id} == {
        "index t_k", "index t_s", "index t_w",
    }  # fmt: skip


def test_a_changed_byte_of_a_key_is_found(tree: TreeDamage) -> None:
    leaf = tree.leaves("t_s")[1]
    at = tree.offset(leaf, 1) + KEY_AT
    length = int.from_bytes(tree.page(leaf)[at : at + 2], "little")
    row_id = tree.row_of(leaf, 1)
    tree.write(leaf, at + 2 + length, b"\1")  # the lowest byte of the second column
    only(tree, leaf, tree.offset(leaf, 1), f"leads to row {row_id}, whose key is (")


def test_a_changed_value_of_a_row_is_found(tree: TreeDamage) -> None:
    leaf = tree.leaves("t_k")[1]
    row_id = tree.row_of(leaf, 4)
    offset = dict(tree.rows("t", unwanted=RowFlag.ENTRY))[row_id]
    tree.write(row_id.page_id, offset + 12, (77_777).to_bytes(4, "little"))
    only(tree, leaf, tree.offset(leaf, 4), f"leads to row {row_id}, whose key is (77777)")


@pytest.mark.parametrize(
    ("raw", "said"), [(b"\x05\x00\x00\x00", "has lock 5"), (b"\xff\xff\xff\x01", "is marked as deleted")]
)
def test_a_closed_database_has_no_entry_with_a_lock_or_a_mark(tree: TreeDamage, raw: bytes, said: str) -> None:
    leaf = tree.leaves("t_k")[1]
    tree.write(leaf, tree.offset(leaf, 4), raw)
    only(tree, leaf, tree.offset(leaf, 4), f"{said}, but the database was closed")


def test_a_duplicate_in_a_unique_index_is_found(tree: TreeDamage) -> None:
    leaf = tree.leaves("t_k")[1]
    row_id, other = tree.row_of(leaf, 4), tree.row_of(leaf, 5)
    assert row_id < other
    key = tree.page(leaf)[tree.offset(leaf, 4) + KEY_AT :][:4]
    tree.write(leaf, tree.offset(leaf, 5) + KEY_AT, key)
    offset = dict(tree.rows("t", unwanted=RowFlag.ENTRY))[other]
    tree.write(other.page_id, offset + 12, key)
    said = f"slot 5: the index is unique, but key ({int.from_bytes(key, 'little')}) of row {other} is also in slot 4"
    only(tree, leaf, tree.offset(leaf, 5) + KEY_AT, said)


def test_a_duplicate_on_the_next_leaf_is_found(tree: TreeDamage) -> None:
    first, second = tree.leaves("t_k")[1:3]
    last = tree.node(first)["slot_count"] - 1
    other = tree.row_of(second, 0)
    key = tree.page(first)[tree.offset(first, last) + KEY_AT :][:4]
    tree.write(second, tree.offset(second, 0) + KEY_AT, key)
    offset = dict(tree.rows("t", unwanted=RowFlag.ENTRY))[other]
    tree.write(other.page_id, offset + 12, key)
    said = f"is also in slot {last} of page {page_name(first)}"
    found(tree, second, tree.offset(second, 0) + KEY_AT, said)


def test_a_damaged_leaf_is_one_finding(tree: TreeDamage) -> None:
    leaf = tree.leaves("t_k")[1]
    tree.write(leaf, 3000, b"\xff\xff", sealed=False)
    assert [(f.page_id, f.message[:4]) for f in tree.findings()] == [(leaf, "CRC ")]


def test_a_damaged_page_of_rows_is_one_finding(tree: TreeDamage) -> None:
    moved = {row_id.page_id for flag in (RowFlag.ENTRY, RowFlag.LINK) for row_id, _ in tree.rows("t", flag)}
    page_id = next(page_id for page_id in reversed(tree.pages("t")) if page_id not in moved)
    tree.write(page_id, 3000, b"\xff\xff", sealed=False)
    assert [(f.page_id, f.message[:4]) for f in tree.findings()] == [(page_id, "CRC ")]


# ---- the catalog


@pytest.mark.parametrize(("field", "value"), [("unique", 0), ("column_count", 2)])
def test_a_head_that_differs_from_the_catalog_is_found(tree: TreeDamage, field: str, value: int) -> None:
    at = tree.set(tree.index("t_k").entry_page, INDEX_HEAD, INDEX_AT, field, value)
    said = f"index t_k: {field} {value} in the index's head, but the catalog makes it 1"
    only(tree, tree.index("t_k").entry_page, at, said)


def test_other_columns_in_the_head_are_found(tree: TreeDamage) -> None:
    entry = tree.index("t_k").entry_page
    at = INDEX_AT + INDEX_HEAD.offset("positions")
    tree.write(entry, at, b"\x02")
    only(tree, entry, at, "index t_k: positions [2, 0, ")


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("table_id", 99, "index t_k is of object 99, which is not a table"),
        ("positions", "9", "index t_k has a column number 9, but table t has 4 columns"),
        ("positions", "x", "the catalog cannot be read"),
        ("entry_page", page_id_of(4, 3), "index t_k starts at page 4:3, which is not an entry page"),
        ("obj_id", 2000, "index t_k has number 2000, which the next table or index would get"),
    ],
)
def test_a_wrong_row_of_the_catalog_is_found(tree: TreeDamage, column: str, value: object, said: str) -> None:
    with DatabaseFiles(tree.path) as files:
        source = files.table("sys_indexes")
        row_id, values = next(item for item in files.rows(source) if item[1][2] == "t_k")
    changed = dict(zip((c.name for c in SYS_INDEXES_COLUMNS), values, strict=True)) | {column: value}
    offset = dict(tree.rows("sys_indexes"))[row_id]
    tree.write(row_id.page_id, offset, encode_row(SYS_INDEXES_COLUMNS, list(changed.values())))
    assert any(said in f.message for f in tree.findings()), tree.findings()


def test_an_index_whose_segment_is_of_a_kind_that_is_no_index_is_found(tree: TreeDamage) -> None:
    entry = tree.index("t_k").entry_page
    tree.set(entry, SEGMENT_HEAD, SEGMENT_HEAD_AT, "type", 6)
    tree.write(entry, 24, (6).to_bytes(2, "little"))
    assert any("index t_k starts at page" in f.message and "whose seg_type is 6" in f.message for f in tree.findings())


# ---- databases at work


def play(db: Connection, chance: random.Random, steps: int) -> None:
    """Random changes of table t in one session; some refused, some taken back."""
    table = db.heap("t")
    for _ in range(steps):
        row_ids = [row_id for row_id, _ in table.rows()] if chance.random() < 0.1 else []
        values = (chance.choice((None, chance.randrange(400))), text(chance), chance.choice((0.0, -0.0, 1.5, None)))
        try:
            if row_ids:
                for row_id in chance.sample(row_ids, min(len(row_ids), 25)):
                    change = {"k": values[0]} if chance.random() < 0.4 else {"s": text(chance), "d": values[2]}
                    table.update(row_id, change) if chance.random() < 0.7 else table.delete(row_id)
            elif chance.random() < 0.1:
                batch = {"k": pa.nulls(20, pa.int32()), "s": [text(chance)] * 20, "d": [0.5] * 20}
                db.append("t", pa.table(batch))
            else:
                table.insert(values)
        except (UniqueViolation, LockTimeout, RowLocked, WriteConflict, NoSuchRow):
            pass
        if chance.random() < 0.1:
            chance.choice((db.commit, db.commit, db.rollback))()


def text(chance: random.Random) -> str | None:
    return chance.choice((None, "", "a", "b" * chance.randrange(700), str(chance.randrange(50))))


@pytest.mark.parametrize(("using", "seed"), [*(("btree", n) for n in range(6)), *(("hash", n) for n in range(4))])
def test_whatever_sessions_did_and_left_open_verify_finds_nothing(tmp_path: Path, using: str, seed: int) -> None:
    chance = random.Random(seed)
    path = tmp_path / "work.gmdb"
    with gmdb.connect(path, lock_timeout=0) as db, gmdb.connect(path, lock_timeout=0) as other:
        db.create_table("t", {"k": "INT", "s": "VARCHAR(900)", "d": "DOUBLE"}, pct_free=5)
        db.create_index("t_k", "t", ["k"], unique=True, using=using)
        db.create_index("t_s", "t", ["s", "d"], using=using)
        db.commit()
        reader = gmdb.connect(path, isolation="repeatable read")
        for step in range(8):
            play(db, chance, 60)
            play(other, chance, 60)
            if step == 2:
                list(reader.heap("t").rows())
            if chance.random() < 0.3:
                db.gc()
            db.dump(tmp_path / f"{step}.dump")
            assert verify(tmp_path / f"{step}.dump").findings == []
        other.backup(tmp_path / "backup")
        reader.close()
    assert verify(path).findings == []
    with gmdb.connect(tmp_path / "backup"):  # with open transactions in it, which are taken back
        pass
    assert verify(tmp_path / "backup").findings == []


@pytest.fixture
def working(tmp_path: Path) -> TreeDamage:
    """A dump: row 1 had key 1 and has 2, row 2 is deleted; neither is committed."""
    with gmdb.connect(tmp_path / "work.gmdb") as db:
        db.create_table("t", {"k": "INT", "s": "VARCHAR(20)"})
        db.create_index("t_k", "t", ["k"], unique=True)
        db.commit()
        first, second, _ = (db.insert("t", (n, "x")) for n in (1, 5, 9))
        db.commit()
        db.gc()
        db.heap("t").update(first, {"k": 2})
        db.heap("t").delete(second)
        db.dump(tmp_path / "work.dump")
        db.rollback()
    return TreeDamage(tmp_path / "work.dump")


def test_entries_of_versions_in_undo_are_needed(working: TreeDamage) -> None:
    assert working.findings() == []
    [leaf] = working.leaves("t_k")
    working.set_slots(leaf, lambda slots: slots[1:])
    [finding] = working.findings()
    assert "BTREE_DELETE of row" in finding.message
    assert "index t_k has no such entry" in finding.message


def test_an_entry_that_no_version_justifies_is_found_in_a_dump(working: TreeDamage) -> None:
    [leaf] = working.leaves("t_k")
    at = working.offset(leaf, 3)
    working.write(leaf, at + KEY_AT, (10).to_bytes(4, "little"))
    only(working, leaf, at, f"the entry of key (10) leads to row {working.row_of(leaf, 3)}, whose key is (9)")


def test_undo_that_holds_no_entry_is_found(working: TreeDamage) -> None:
    with DatabaseFiles(working.path) as files:
        pages = range(page_id_of(1, 0), page_id_of(1, files.devices[1].hwm))
    for page_id in pages:
        for offset, _, _ in record_extents(working.page(page_id)):
            if UNDO_RECORD.at(working.page(page_id), offset).op_type == UndoOperation.BTREE_DELETE:
                working.write(page_id, offset + UNDO_RECORD.size + COL_COUNT_AT, b"\x05")
                found(working, page_id, offset, "it holds no entry of index t_k")
                return
    pytest.fail("there is no such record")
