"""Pages of a hash index, as they are drawn and as documents."""

from __future__ import annotations

from pathlib import Path

import pytest

import gmdb
from gmdb.format import anatomy
from gmdb.format.address import NO_PAGE, device_of, offset_of, page_name
from gmdb.format.hash import is_directory
from gmdb.format.page import PAGE_HEAD
from gmdb.storage.store import Segment
from tests.inspect.test_draw import document, drawn, line_with


@pytest.fixture(scope="module")
def hash_pages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, bytes]]:
    """A closed database with a hash index of many equal keys, and that index's pages."""
    path = tmp_path_factory.mktemp("hash") / "db"
    with gmdb.connect(path) as db:
        db.create_table("t", {"k": "INT"})
        db.create_index("t_k", "t", ["k"], using="hash")
        db.commit()
        for n in range(2000):
            db.insert("t", (n % 4,))
        store = db._database.store
        segment = Segment(store, store.space("main"), db.table("t").indexes[0].entry_page)
        page_ids = segment.page_ids().tolist()
    with gmdb.connect(path) as db:
        devices = db._database.store.devices
        return path, {n: bytes(devices[device_of(n)].memory(offset_of(n))) for n in page_ids}


def test_a_directory_is_drawn_with_the_pages_that_its_slots_lead_to(hash_pages: tuple[Path, dict[int, bytes]]) -> None:
    path, pages = hash_pages
    directories = [page_id for page_id, page in pages.items() if is_directory(page)]
    assert len(directories) > 4
    for page_id in directories:
        text, made = drawn(path, page_id), document(path, page_id)
        children = {child for child in made["slots"] if child != NO_PAGE}
        assert made["head"]["hash_tab_head"]["page_count"] == len(children)
        assert len(made["slots"]) == 1 << made["node"]["depth"]
        for child in children:
            assert "bits" in line_with(text, str(child), page_name(child))


def test_a_bucket_is_drawn_with_row_ids_keys_and_addresses(hash_pages: tuple[Path, dict[int, bytes]]) -> None:
    path, pages = hash_pages
    buckets = [page_id for page_id, page in pages.items() if not is_directory(page)]
    entries = []
    for page_id in buckets:
        text, made = drawn(path, page_id), document(path, page_id)
        entries += made["entries"]
        assert made["entries"] == sorted(made["entries"], key=lambda entry: entry["address"])
        assert "address" in line_with(text, made["entries"][0]["address"])
    assert sorted({entry["key"] for entry in entries}) == ["00000000", "01000000", "02000000", "03000000"]
    assert len({entry["row_id"] for entry in entries}) == 2000
    assert len({(entry["key"], entry["address"][:10]) for entry in entries}) == 4


def test_what_is_wrong_with_a_directory_is_said(hash_pages: tuple[Path, dict[int, bytes]]) -> None:
    page = bytearray(next(page for page in hash_pages[1].values() if is_directory(page)))
    for field, value, complaint in (
        ("hash_tab_head.page_count", 999, "page_count 999, but the slots name"),
        ("hash_page_type", 7, "neither directory nor bucket"),
        ("free_begin", 5000, "free_begin should be"),
    ):
        broken = bytearray(page)
        at = PAGE_HEAD.offset(field)
        size = 1 if field == "hash_page_type" else 2
        broken[at : at + size] = value.to_bytes(size, "little")
        assert any(complaint in finding.message for finding in anatomy.check(bytes(broken))), field
