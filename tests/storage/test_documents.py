"""Documents beside the pages say anything at all: they are read, or refused by an error of gmdb's."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from random import Random
from typing import Any

import pytest

import gmdb
from gmdb.database.feed import Definitions
from gmdb.errors import Corruption, Error, PositionUnknown
from gmdb.format.checksum import crc32c
from gmdb.format.images import IMAGE_BATCH
from gmdb.storage.feeds import LogPosition, definition_numbers, log_needed, read_reader, read_readers
from gmdb.storage.loads import NOTE_NAME as DRIVER_NAME
from gmdb.storage.loads import load_path, new_load, remove_litter
from gmdb.storage.log.backup import NOTE_NAME, read_note
from gmdb.storage.pins import Holder, ImageIndex, Pin, image_files, pin_path, read_pin, read_pins, require_lease
from gmdb.tables.catalog.definition_documents import table_from_plain
from tests.security.attacks import odd_json

ODD = 150  # documents of each kind


class Written:
    """A database with a document of each kind."""

    def __init__(self, path: Path) -> None:
        self.path, self.backup = path, path.with_name("backup")
        with gmdb.connect(path) as db:
            db.execute("create table t (i int primary key, s varchar(9) default 'x') with (change_feed = true)")
            db.execute("create index t_s on t using hash (s)")
            db.commit()
            db.changes(tables=["t"], reader="one").close()
            self.pin = db.take_snapshot(lease=1000)
            db.execute("insert into t values (1, 'a')")
            db.commit()
            db.checkpoint()
            db.backup(self.backup)
        self.load_id = new_load(path, Holder.this_process())
        self.version = max(definition_numbers(path))

    def use_pin(self) -> None:
        read_pins(self.path)
        for table in read_pin(self.path, self.pin.name).tables:
            table_from_plain(table)

    def use_reader(self) -> None:
        read_readers(self.path)
        log_needed(self.path, self.pin.database_id, 1 << 20)
        reader = read_reader(self.path, "one")
        assert reader is not None
        LogPosition.from_text(reader.position, reader.database_id)

    def use_definition(self) -> None:
        definitions = Definitions(self.path)
        definitions.feed_of(self.version)
        list(definitions.of_feed(1))

    def document(self, kind: str) -> tuple[Path, Any]:
        """The file, and who reads it."""
        return {
            "pin": (pin_path(self.path, self.pin.name), self.use_pin),
            "reader": (self.path / "feeds" / "one.reader", self.use_reader),
            "definition": (self.path / "feeds" / "definitions" / f"{self.version}.json", self.use_definition),
            "note": (self.backup / NOTE_NAME, lambda: read_note(self.backup)),
            "driver": (load_path(self.path, self.load_id) / DRIVER_NAME, lambda: remove_litter(self.path)),
        }[kind]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return Written(tmp_path_factory.mktemp("documents") / "db")


@pytest.mark.parametrize("kind", ["pin", "reader", "definition", "note", "driver"])
def test_a_document_that_says_anything_is_read_or_refused(written: Written, kind: str) -> None:
    file, use = written.document(kind)
    before, random, refused = file.read_bytes(), Random(1), 0
    use()
    try:
        for number in range(ODD):
            document = odd_json(json.loads(before), random)
            file.parent.mkdir(parents=True, exist_ok=True)  # a load whose driver is gone has been removed
            file.write_text(json.dumps(document))
            try:
                use()
            except Error:
                refused += 1
            except Exception as error:
                raise AssertionError(f"{kind} {number}: {str(document)[:300]}: {error!r}") from error
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("[" * 100_000)
        if kind == "driver":
            use()
        else:
            with pytest.raises(Error):
                use()
    finally:
        file.write_bytes(before)
    assert kind == "driver" or refused > ODD // 4


@pytest.mark.parametrize("name", [os.path.join(os.pardir, os.pardir, "other"), os.path.abspath("other"), ""])
def test_a_pin_that_names_another_file_is_refused(written: Written, name: str) -> None:
    file, _ = written.document("pin")
    before = file.read_bytes()
    file.write_text(json.dumps({**json.loads(before), "name": name}))
    try:
        with pytest.raises(Corruption, match="damaged"):
            read_pin(written.path, written.pin.name)
    finally:
        file.write_bytes(before)


@pytest.mark.parametrize("numbers", ["1-2-3", "1-2-3-" + "9" * 19, "1-2-3-" + "9" * 5000, "1-2-3--4"])
def test_a_position_has_numbers_of_eight_bytes(numbers: str) -> None:
    with pytest.raises(PositionUnknown):
        LogPosition.from_text(f"01234567-{numbers}", "01234567")


@pytest.mark.parametrize("field", ["size", "page_count"])
@pytest.mark.parametrize("value", [0, 1, 0xFFFF_FFFF])
def test_images_whose_batch_has_another_size_are_not_read_for_ever(written: Written, field: str, value: int) -> None:
    (_, _, file), pin = image_files(written.path)[0], written.pin
    before = file.read_bytes()
    index = ImageIndex(written.path, pin)
    assert index.newest
    index.close()
    head = bytearray(before[: IMAGE_BATCH.size])
    struct.pack_into("<Q" if field == "size" else "<I", head, IMAGE_BATCH.offset(field), value)
    head[-4:] = crc32c(bytes(head[:-4])).to_bytes(4, "little")
    file.write_bytes(bytes(head) + before[IMAGE_BATCH.size :])
    try:
        index = ImageIndex(written.path, pin)
        assert not index.newest
        index.close()
    finally:
        file.write_bytes(before)


def test_a_lease_for_ever_ends_after_all() -> None:
    lease = require_lease(float("inf"))
    pin = Pin("a", "b", 1, 1, 1.0, lease, Holder.nobody(), {})
    assert Pin.from_json(pin.to_json()) == pin
