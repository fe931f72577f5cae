"""The engine writes what this folder's builder writes, and the inspector finds nothing wrong with it."""

from __future__ import annotations

import pyarrow as pa
import pytest

import gmdb
from gmdb.format.address import page_id_of
from gmdb.inspect.space_lists import read_segments
from gmdb.tables.files.database_files import DatabaseFiles
from gmdb.tables.files.page_view import view_page
from tests.inspect.build import TBL_ENTRY, build_database, reference_rows

ROWS = 1000
NODE_AT, TAIL = 80, 8


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A database that the engine wrote and closed."""
    path = tmp_path_factory.mktemp("engine") / "written.gmdb"
    numbers, texts = zip(*reference_rows(ROWS), strict=True)
    with gmdb.connect(path) as database:
        database.create_table("tbl", {"i": "INT", "s": "VARCHAR(10)"})
        database.commit()
        database.append("tbl", pa.table({"i": pa.array(numbers, pa.int32()), "s": pa.array(texts, pa.string())}))
    return path


def test_every_page_that_the_engine_writes_is_sound(written):
    with DatabaseFiles(written) as files:
        used = [page_id_of(n, offset) for n, device in files.devices.items() for offset in range(device.hwm)]
        assert [finding for page_id in used for finding in view_page(files, page_id).findings] == []
        assert [problem for segment in read_segments(files) for problem in segment.problems] == []
        assert [problem for space in files.spaces() for problem in space.problems()] == []


def test_rows_that_the_engine_writes_are_read_without_it(written):
    with DatabaseFiles(written) as files:
        assert [values for _, values in files.rows(files.table("tbl"))] == reference_rows(ROWS)


def test_the_engines_heap_pages_are_the_builders_byte_for_byte_behind_the_head(written, tmp_path):
    with DatabaseFiles(written) as files, DatabaseFiles(build_database(tmp_path / "db", reference_rows(ROWS))) as built:
        theirs = [files.page(page_id) for page_id in files.segment_pages(files.table("tbl").entry_page)]
        ours = [built.page(page_id) for page_id in built.segment_pages(TBL_ENTRY)]
    assert [page[NODE_AT:-TAIL] for page in theirs] == [page[NODE_AT:-TAIL] for page in ours]
