"""Damaged hash indexes: what is wrong with directories and buckets, and where index and table disagree."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import gmdb
from gmdb.format.address import NO_PAGE, page_id_of, page_name
from gmdb.format.btree import ENTRIES_AT, INDEX_AT, INDEX_HEAD, NODE_AT
from gmdb.format.hash import HASH_NODE
from gmdb.format.page import PAGE_HEAD
from gmdb.format.row import BITS_AT, COL_COUNT_AT, RowFlag, encode_row
from gmdb.format.undo import UNDO_RECORD, UndoOperation, record_extents
from gmdb.tables.catalog.schema import SYS_INDEXES_COLUMNS
from gmdb.tables.files.database_files import DatabaseFiles
from tests.verify.expect import found, only
from tests.verify.indexed import KEY_AT, POINTER_AT, HashDamage, build_hashed


@pytest.fixture(scope="module")
def sound_hashes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_hashed(tmp_path_factory.mktemp("hashes") / "sound.gmdb")


@pytest.fixture
def index(sound_hashes: Path, tmp_path: Path) -> HashDamage:
    return HashDamage(Path(shutil.copytree(sound_hashes, tmp_path / "copy.gmdb")))


def test_a_sound_database_has_no_findings(index: HashDamage) -> None:
    assert index.findings() == []
    assert len(index.buckets("t_k")) > 10
    assert index.directories("t_d")


# ---- directories


def test_a_slot_that_leads_to_a_page_of_another_index_is_found(index: HashDamage) -> None:
    root, other = index.root("t_k"), index.buckets("t_s")[0]
    block = index.block(root, index.buckets("t_k")[3])
    at = index.lead(root, block, other)
    said = f"index t_k: slot {block[0]} of the directory leads to page {page_name(other)}, which is not a page of this"
    only(index, root, at, said)


def test_a_slot_that_leads_to_a_page_that_is_not_in_use_is_found(index: HashDamage) -> None:
    root, nowhere = index.root("t_k"), page_id_of(4, 4_000_000)
    at = index.lead(root, index.block(root, index.buckets("t_k")[3]), nowhere)
    only(index, root, at, f"leads to page {page_name(nowhere)}, which is not in use")


def test_a_bucket_that_slots_in_two_places_lead_to_is_found(index: HashDamage) -> None:
    root, buckets = index.root("t_k"), index.buckets("t_k")
    at = index.lead(root, index.block(root, buckets[6]), buckets[1])
    only(index, root, at, f"leads to page {page_name(buckets[1])}, to which other slots lead already")


def test_a_bucket_that_no_slot_leads_to_is_found(index: HashDamage) -> None:
    root, lost = index.root("t_k"), index.buckets("t_k")[3]
    index.lead(root, index.block(root, lost), NO_PAGE)
    only(index, lost, NODE_AT, "index t_k: no page of the index leads to this page")


def wide_bucket(index: HashDamage, name: str) -> tuple[int, int, list[int]]:
    """The root, and a bucket that several of its slots lead to, with these."""
    root = index.root(name)
    blocks = ((page_id, index.block(root, page_id)) for page_id in index.buckets(name))
    return root, *next((page_id, block) for page_id, block in blocks if len(block) > 1)


def test_a_bucket_that_is_in_too_few_slots_is_found(index: HashDamage) -> None:
    root, bucket, block = wide_bucket(index, "t_d")
    index.lead(root, block[-1:], NO_PAGE)
    said = f"slot {block[0]} of the directory leads to page {page_name(bucket)}, which is in slot"
    only(index, root, ENTRIES_AT + 4 * block[0], said)


def test_a_bucket_that_begins_at_the_wrong_slot_is_found(index: HashDamage) -> None:
    root, bucket, block = wide_bucket(index, "t_d")
    index.lead(root, block, NO_PAGE)
    at = index.lead(root, [slot + 1 for slot in block], bucket)
    depth = index.node(bucket)["level"]
    found(index, root, at, f"but a bucket of depth {depth} is in {len(block)}, beginning at a multiple of that")


def test_a_bucket_that_is_deeper_than_its_directory_is_found(index: HashDamage) -> None:
    bucket, depth = index.buckets("t_k")[2], index.node(index.root("t_k"))["level"]
    at = index.set(bucket, HASH_NODE, NODE_AT, "depth", depth + 1)
    only(index, bucket, at, f"index t_k: depth {depth + 1}, but the bucket's directory chooses by {depth} bits only")


def test_a_bucket_of_another_depth_than_its_slots_is_found(index: HashDamage) -> None:
    root, bucket = index.root("t_k"), index.buckets("t_k")[2]
    index.set(bucket, HASH_NODE, NODE_AT, "depth", index.node(bucket)["level"] - 1)
    at = ENTRIES_AT + 4 * index.block(root, bucket)[0]
    only(index, root, at, f"but a bucket of depth {index.node(bucket)['level']} is in")


def test_a_directory_has_one_slot(index: HashDamage) -> None:
    root, child = index.root("t_d"), index.directories("t_d")[0]
    [slot] = index.block(root, child)
    first = slot & ~1
    index.lead(root, [first, first + 1], child)
    said = f"leads to a directory, page {page_name(child)}, from slots {first} to {first + 1} at depth 10"
    found(index, root, ENTRIES_AT + 4 * first, said)


def test_a_directory_above_another_has_all_bits(index: HashDamage) -> None:
    root, first, second = index.root("t_k"), *index.buckets("t_k")[:2]
    index.make_directory(second, 0, {0: first})
    index.make_directory(root, 1, {0: second})
    said = f"slot 0 of the directory leads to a directory, page {page_name(second)}, from slot 0 at depth 1"
    only(index, root, ENTRIES_AT, said)


def test_a_directory_that_chooses_by_more_bits_than_its_level_has_is_found(index: HashDamage) -> None:
    """Ten bits a level up to bit 60, so that level 6 has the last four of the address."""
    at, buckets = index.root("t_k"), index.buckets("t_k")
    for page_id in buckets[:6]:
        index.make_directory(at, 10, {0: page_id})
        at = page_id
    index.make_directory(at, 5, {0: buckets[6]})
    where = NODE_AT + HASH_NODE.offset("depth")
    only(index, at, where, "index t_k: depth 5, but a directory of its level chooses by 4 bits at most")


@pytest.mark.parametrize(("children", "said"), [(1, "one bucket only"), (0, "no page")])
def test_a_directory_that_should_have_given_way_is_found(index: HashDamage, children: int, said: str) -> None:
    root, first, second = index.root("t_k"), *index.buckets("t_k")[:2]
    index.make_directory(second, 0, {0: first} if children else {})
    index.make_directory(root, 10, {0: second})
    at = NODE_AT + HASH_NODE.offset("slot_count")
    found(index, second, at, f"index t_k: the directory leads to {said}, and should have been removed")


@pytest.mark.parametrize(("page_id", "said"), [(NO_PAGE, "not in use"), (page_id_of(4, 1), "not a page of this index")])
def test_a_root_that_is_none_is_found(index: HashDamage, page_id: int, said: str) -> None:
    entry = index.index("t_k").entry_page
    at = index.set(entry, INDEX_HEAD, INDEX_AT, "root", page_id)
    only(index, entry, at, f"index t_k: the root leads to page {page_name(page_id)}, which is {said}")


def test_a_root_that_is_a_bucket_is_found(index: HashDamage) -> None:
    entry, bucket = index.index("t_k").entry_page, index.buckets("t_k")[0]
    at = index.set(entry, INDEX_HEAD, INDEX_AT, "root", bucket)
    only(index, entry, at, f"index t_k: the root leads to page {page_name(bucket)}, which is not a directory")


@pytest.mark.parametrize(
    ("of_root", "layout", "field", "value", "said"),
    [
        (True, PAGE_HEAD, "hash_tab_head.used_flag", 0, "used_flag 0; every page of a hash index has 1"),
        (False, PAGE_HEAD, "hash_tab_head.used_flag", 2, "used_flag 2; every page of a hash index has 1"),
        (True, PAGE_HEAD, "hash_tab_head.page_count", 77, "page_count 77, but the slots name "),
        (False, PAGE_HEAD, "hash_tab_head.page_count", 1, "page_count 1 in a bucket, which leads to no pages"),
        (False, PAGE_HEAD, "hash_page_type", 3, "hash_page_type 3 is neither directory nor bucket"),
        (False, HASH_NODE, "next", 7, "next is 0:7; pages of a hash index have no siblings"),
        (True, HASH_NODE, "prev", 7, "prev is 0:7; pages of a hash index have no siblings"),
        (True, PAGE_HEAD, "free_begin", 500, "free_begin should be "),
        (False, HASH_NODE, "depth", 11, "a bucket of depth 11; directories choose by 10 bits at most"),
    ],
)
def test_what_is_wrong_with_a_page_by_itself_is_found(
    index: HashDamage, of_root: bool, layout: gmdb.format.layout.Layout, field: str, value: int, said: str
) -> None:
    page_id = index.root("t_k") if of_root else index.buckets("t_k")[2]
    at = index.set(page_id, layout, 0 if layout is PAGE_HEAD else NODE_AT, field, value)
    only(index, page_id, at, said)


def test_a_directory_with_another_number_of_slots_than_its_depth_makes_is_found(index: HashDamage) -> None:
    root = index.root("t_k")
    at, depth = index.set(root, HASH_NODE, NODE_AT, "slot_count", 3), index.node(root)["level"]
    findings = found(index, root, at, f"a directory of depth {depth} with 3 slots")
    assert {f.page_id for f in findings} == {root}


# ---- buckets


def test_a_bucket_without_entries_is_found(index: HashDamage) -> None:
    bucket = index.buckets("t_k")[2]
    index.set_slots(bucket, lambda _: [])
    at = NODE_AT + HASH_NODE.offset("slot_count")
    findings = found(index, bucket, at, "index t_k: a bucket without entries")
    assert "has no entry for the row's key" in str(findings)


def test_entries_are_in_the_order_of_their_addresses(index: HashDamage) -> None:
    bucket = index.buckets("t_k")[2]
    index.set_slots(bucket, lambda slots: [*slots[:4], slots[5], slots[4], *slots[6:]])
    only(index, bucket, index.address_at(bucket, 5), "or the row ids do: entries are not in order")


def test_an_address_that_is_not_that_of_the_key_is_found(index: HashDamage) -> None:
    bucket = index.buckets("t_k")[2]
    at = index.address_at(bucket, 3)
    index.write(bucket, at, bytes([index.page(bucket)[at] ^ 1]))
    only(index, bucket, at, f"is not that of key ({_key(index, bucket, 3)}) of row {index.row_of(bucket, 3)}")


def test_a_bucket_of_other_addresses_is_found(index: HashDamage) -> None:
    root, buckets = index.root("t_k"), index.buckets("t_k")
    depths = [index.node(page_id)["level"] for page_id in buckets]
    a, b = next((n, n + 1) for n in range(len(depths)) if depths[n] == depths[n + 1])
    first, second = index.block(root, buckets[a]), index.block(root, buckets[b])
    index.lead(root, first, buckets[b])
    index.lead(root, second, buckets[a])
    findings = found(index, buckets[a], index.address_at(buckets[a], 0), "does not belong in the bucket, whose")
    prefix = f"begin with bits {second[0] >> index.node(root)['level'] - depths[a]:0{depths[a]}b}"
    assert prefix in str(findings)
    assert [f.page_id for f in findings] == sorted((buckets[a], buckets[b]))


def test_an_entry_that_is_there_twice_is_found(index: HashDamage) -> None:
    bucket = index.buckets("t_k")[2]
    page, row_id = index.page(bucket), index.row_of(bucket, 3)
    size = int.from_bytes(page[index.offset(bucket, 3) + 4 :][:2], "little")
    index.write(bucket, index.offset(bucket, 4), page[index.offset(bucket, 3) :][:size])
    findings = found(index, bucket, index.offset(bucket, 4), "slot 4: the entry of key (")
    assert f"of row {row_id} and its row is there twice" in str(findings)
    assert "has no entry for the row's key" in str(findings)


def test_columns_that_are_not_those_of_the_index_are_found(index: HashDamage) -> None:
    bucket = index.buckets("t_k")[2]
    at = index.offset(bucket, 1)
    index.write(bucket, at + COL_COUNT_AT, (3).to_bytes(2, "little"))
    said = "index t_k: slot 1: the columns of the entry's key are not those of the index: k INT and the address"
    findings = found(index, bucket, at + BITS_AT, said)
    assert len(findings) == 2
    assert "has no entry for the row's key" in str(findings)


def test_an_entry_that_is_broken_in_itself_is_found(index: HashDamage) -> None:
    bucket = index.buckets("t_k")[2]
    index.write(bucket, index.offset(bucket, 7) + POINTER_AT + 6, b"\0\0")
    assert any("slot 7: the row id that an entry holds does not end in 65535" in f.message for f in index.findings())


def test_a_damaged_bucket_is_one_finding(index: HashDamage) -> None:
    bucket = index.buckets("t_k")[2]
    index.write(bucket, 3000, b"\xff\xff", sealed=False)
    assert [(f.page_id, f.message[:4]) for f in index.findings()] == [(bucket, "CRC ")]


# ---- tables


def _key(index: HashDamage, page_id: int, slot: int) -> int:
    return int.from_bytes(index.page(page_id)[index.offset(page_id, slot) + KEY_AT :][:4], "little")


def test_a_dropped_entry_is_missed_by_its_row(index: HashDamage) -> None:
    bucket = index.buckets("t_k")[2]
    row_id, key = index.row_of(bucket, 4), _key(index, bucket, 4)
    index.set_slots(bucket, lambda slots: slots[:4] + slots[5:])
    offset = dict(index.rows("t"))[row_id]
    said = f"slot {row_id.slot_id}: index t_k has no entry for the row's key, ({key})"
    only(index, row_id.page_id, offset, said)


def test_an_entry_that_leads_to_another_row_is_found(index: HashDamage) -> None:
    bucket = index.buckets("t_k")[2]
    row_id, other = index.row_of(bucket, 4), index.row_of(bucket, 9)
    index.lead_to(bucket, 4, other)
    findings = found(index, bucket, index.offset(bucket, 4), f"leads to row {other}, whose key is (")
    assert [f.page_id for f in findings if "has no entry for" in f.message] == [row_id.page_id]
    assert any("is not that of key" in f.message for f in findings)


def test_a_changed_value_of_a_row_is_found(index: HashDamage) -> None:
    bucket = index.buckets("t_k")[2]
    row_id = index.row_of(bucket, 4)
    offset = dict(index.rows("t", unwanted=RowFlag.ENTRY))[row_id]
    index.write(row_id.page_id, offset + 12, (77_777).to_bytes(4, "little"))
    only(index, bucket, index.offset(bucket, 4), f"leads to row {row_id}, whose key is (77777)")


@pytest.mark.parametrize(
    ("raw", "said"), [(b"\x05\x00\x00\x00", "has lock 5"), (b"\xff\xff\xff\x01", "is marked as deleted")]
)
def test_a_closed_database_has_no_entry_with_a_lock_or_a_mark(index: HashDamage, raw: bytes, said: str) -> None:
    bucket = index.buckets("t_k")[2]
    index.write(bucket, index.offset(bucket, 4), raw)
    only(index, bucket, index.offset(bucket, 4), f"{said}, but the database was closed")


# ---- the catalog


def change_catalog(index: HashDamage, name: str, **values: object) -> None:
    with DatabaseFiles(index.path) as files:
        source = files.table("sys_indexes")
        row_id, stored = next(item for item in files.rows(source) if item[1][2] == name)
    changed = dict(zip((c.name for c in SYS_INDEXES_COLUMNS), stored, strict=True)) | values
    offset = dict(index.rows("sys_indexes"))[row_id]
    index.write(row_id.page_id, offset, encode_row(SYS_INDEXES_COLUMNS, list(changed.values())))


def test_keys_that_are_there_twice_are_found_in_a_unique_index(index: HashDamage) -> None:
    """Wherever they are: 0.0 and -0.0 are one key, and its rows are in many buckets."""
    index.set(index.index("t_d").entry_page, INDEX_HEAD, INDEX_AT, "unique", 1)
    change_catalog(index, "t_d", is_unique=True)
    findings = index.findings()
    assert len(findings) == 101
    for key in ("0.0", "-0.0"):
        said = f"the index is unique, but key ({key}) of row"
        assert any(said in f.message and f.message.startswith("index t_d: slot ") for f in findings)
    assert "more keys are there twice" in str(findings)
    assert "key (None)" not in str(findings)


def test_another_kind_in_the_head_is_found(index: HashDamage) -> None:
    entry = index.index("t_k").entry_page
    at = index.set(entry, INDEX_HEAD, INDEX_AT, "kind", 0)
    only(index, entry, at, "index t_k: kind 0 in the index's head, but the catalog makes it 1")


def test_another_kind_in_the_catalog_is_found(index: HashDamage) -> None:
    change_catalog(index, "t_k", kind="tree")
    assert "index t_k is of kind 'tree', but there are only btree and hash" in str(index.findings())


def test_an_index_with_a_segment_of_another_kind_is_found(index: HashDamage) -> None:
    change_catalog(index, "t_k", kind=None)
    assert "whose seg_type is 5 instead of 4" in str(index.findings())


# ---- databases at work


@pytest.fixture
def working(tmp_path: Path) -> HashDamage:
    """A dump: row 1 had key 1 and has 2, row 2 is deleted; neither is committed."""
    with gmdb.connect(tmp_path / "work.gmdb") as db:
        db.create_table("t", {"k": "INT", "s": "VARCHAR(20)"})
        db.create_index("t_k", "t", ["k"], unique=True, using="hash")
        first, second, _ = (db.insert("t", (n, "x")) for n in (1, 5, 9))
        db.commit()
        db.gc()
        db.heap("t").update(first, {"k": 2})
        db.heap("t").delete(second)
        db.dump(tmp_path / "work.dump")
        db.rollback()
    return HashDamage(tmp_path / "work.dump")


def _slot_of(working: HashDamage, key: int) -> int:
    [bucket] = working.buckets("t_k")
    return next(n for n in range(working.node(bucket)["slot_count"]) if _key(working, bucket, n) == key)


@pytest.mark.parametrize(("key", "operation"), [(1, "HASH_DELETE"), (2, "HASH_INSERT")])
def test_entries_of_versions_in_undo_are_needed(working: HashDamage, key: int, operation: str) -> None:
    assert working.findings() == []
    [bucket], slot = working.buckets("t_k"), _slot_of(working, key)
    working.set_slots(bucket, lambda slots: slots[:slot] + slots[slot + 1 :])
    [finding] = working.findings()
    assert f"{operation} of row" in finding.message
    assert "index t_k has no such entry" in finding.message


def undo_record(working: HashDamage, operation: UndoOperation) -> tuple[int, int]:
    """Page and offset of the first undo record with an operation."""
    with DatabaseFiles(working.path) as files:
        pages = range(page_id_of(1, 0), page_id_of(1, files.devices[1].hwm))
    return next(
        (page_id, offset)
        for page_id in pages
        for offset, _, _ in record_extents(working.page(page_id))
        if UNDO_RECORD.at(working.page(page_id), offset).op_type == operation
    )


def test_undo_that_holds_no_entry_is_found(working: HashDamage) -> None:
    page_id, offset = undo_record(working, UndoOperation.HASH_DELETE)
    working.write(page_id, offset + UNDO_RECORD.size + COL_COUNT_AT, b"\x05")
    found(working, page_id, offset, "it holds no entry of index t_k")


@pytest.mark.parametrize("operation", [UndoOperation.BTREE_DELETE, UndoOperation.BTREE_INSERT_SHADOW])
def test_undo_of_another_kind_of_index_is_found(working: HashDamage, operation: UndoOperation) -> None:
    page_id, offset = undo_record(working, UndoOperation.HASH_DELETE)
    working.set(page_id, UNDO_RECORD, offset, "op_type", operation)
    found(working, page_id, offset, f"{operation.name} of row")
    assert "index t_k is of another kind, hash" in str(working.findings())
