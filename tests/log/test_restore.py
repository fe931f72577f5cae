"""Archived log, and backups that it brings to any time since."""

from __future__ import annotations

import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.database.copies import restore
from gmdb.errors import Corruption, InterfaceError, NotABackup, NotADatabase, RestoreError, TargetExists
from gmdb.format.redo import HEAD_SPACE
from gmdb.storage.directory import read_control
from gmdb.storage.log.log_files import ARCHIVE, redo_numbers, redo_path
from tests.integrity import assert_sound


def rows(db: Connection) -> list[int]:
    return sorted(i for _, (i,) in db.heap("t").rows())


def found(path: Path) -> list[int]:
    assert_sound(path)
    with gmdb.connect(path) as db:
        return rows(db)


class Moment(NamedTuple):
    time: datetime
    rows: list[int]


class History:
    """A database that archives its log, a backup of it, and what was committed when."""

    def __init__(self, folder: Path) -> None:
        self.path, self.backup, self.folder = folder / "db", folder / "backup", folder
        self.archive = self.path / ARCHIVE
        self.moments: list[Moment] = []
        self._next = 0
        with gmdb.connect(self.path) as db:
            db.set_archiving(True)
            db.create_table("t", {"i": "INT"})
            db.commit()
            self.commit_some(db)
            db.backup(self.backup)
            self.note(db)

    def commit_some(self, db: Connection, count: int = 3) -> None:
        for _ in range(count):
            self._next += 1
            db.insert("t", (self._next,))
            db.commit()

    def note(self, db: Connection) -> None:
        time.sleep(0.002)
        self.moments.append(Moment(datetime.now(UTC), rows(db)))
        db.commit()
        time.sleep(0.002)

    def live(self, several: int = 3) -> None:
        """Open it, commit some, close it."""
        for _ in range(several):
            with gmdb.connect(self.path) as db:
                self.commit_some(db)
                self.note(db)

    def crash(self) -> None:
        """Go on with files that somebody had open: as if that process had been killed."""
        with gmdb.connect(self.path) as db, gmdb.connect(self.path) as other:
            other.insert("t", (-1,))
            self.commit_some(db)
            self.note(db)
            copy = self.folder / "crashed"
            shutil.copytree(self.path, copy)
            other.rollback()
        shutil.rmtree(self.path)
        copy.rename(self.path)

    def restored(self, name: str, to: datetime | None = None) -> list[int]:
        restore(self.backup, self.folder / name, archive=self.archive, to=to)
        return found(self.folder / name)


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path)


def test_a_backup_alone_is_restored_to_its_instant(history: History) -> None:
    history.live()
    recovery = restore(history.backup, history.folder / "new")
    assert found(history.folder / "new") == history.moments[0].rows
    assert not recovery.stopped
    assert redo_numbers(history.folder / "new") == []


def test_every_moment_can_be_restored_over_closings_and_crashes(history: History) -> None:
    history.live(2)
    history.crash()
    history.live(2)
    history.crash()
    history.live(1)
    assert len(redo_numbers(history.archive)) >= 6
    for n, moment in enumerate(history.moments):
        assert history.restored(f"new{n}", moment.time) == moment.rows
    assert history.restored("last") == history.moments[-1].rows


def test_a_restored_database_is_another_one(history: History) -> None:
    history.live()
    for n in range(2):
        restore(history.backup, history.folder / f"new{n}", archive=history.archive)
    names = [history.path, *(history.folder / f"new{n}" for n in range(2))]
    controls = [read_control(path) for path in names]
    assert len({control["database_id"] for control in controls}) == 3
    assert [control["archiving"] for control in controls] == [1, 0, 0]
    with gmdb.connect(history.folder / "new0") as db:
        history.commit_some(db)
        assert rows(db)[-1] == history.moments[-1].rows[-1] + 3


def test_the_backup_stays_as_it_was(history: History) -> None:
    history.live()
    before = {path.name: path.read_bytes() for path in history.backup.iterdir()}
    history.restored("new", history.moments[1].time)
    assert {path.name: path.read_bytes() for path in history.backup.iterdir()} == before


def test_log_that_is_not_archived_yet_is_found_in_the_database_itself(history: History) -> None:
    with gmdb.connect(history.path) as db:
        history.commit_some(db)
        history.note(db)
        copy = shutil.copytree(history.path, history.folder / "lost")
    restore(history.backup, history.folder / "new", archive=copy)
    assert found(history.folder / "new") == history.moments[-1].rows


def test_transactions_that_were_open_at_the_time_are_not_there(history: History) -> None:
    with gmdb.connect(history.path) as db, gmdb.connect(history.path) as other:
        other.insert("t", (1000,))
        history.commit_some(db)
        history.note(db)
        other.commit()
        history.note(db)
    assert history.restored("before", history.moments[-2].time) == history.moments[-2].rows
    assert history.restored("after", history.moments[-1].time) == history.moments[-1].rows
    assert 1000 in history.moments[-1].rows
    assert 1000 not in history.moments[-2].rows


def test_tables_tablespaces_and_loads_since_the_backup_are_restored(history: History) -> None:
    numbers = pa.table({"i": pa.array(range(50_000), pa.int32())})
    with gmdb.connect(history.path) as db:
        db.create_tablespace("late", page_size=32768, devices=2, device_pages_max=40)
        db.create_table("more", {"i": "INT"}, tablespace="late")
        db.commit()
        db.append("more", numbers)
        db.commit()
        history.note(db)
        db.drop_table("more")
    history.restored("before", history.moments[-1].time)
    with gmdb.connect(history.folder / "before") as db:
        assert db.arrow("more").read_all().num_rows == 50_000
        db.create_tablespace("later")
    assert_sound(history.folder / "before")
    history.restored("after")
    with gmdb.connect(history.folder / "after") as db:
        assert db.tables() == ["t"]


def test_a_commit_at_the_very_time_is_there(history: History) -> None:
    history.live(1)
    last = restore(history.backup, history.folder / "new", archive=history.archive).last_commit
    for name, to in (("at", last), ("before", last - 1)):
        restore(history.backup, history.folder / name, archive=history.archive, to=_time(to))
    assert found(history.folder / "at") == history.moments[-1].rows
    assert found(history.folder / "before") == history.moments[-1].rows[:-1]


def _time(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds // 10**6, UTC).replace(microsecond=microseconds % 10**6)


def test_nothing_is_archived_once_it_is_switched_off(history: History) -> None:
    with gmdb.connect(history.path) as db:
        db.set_archiving(False)
        history.commit_some(db)
    kept = redo_numbers(history.archive)
    history.live()
    assert redo_numbers(history.archive) == kept


# ---- what cannot be done


def refused(history: History, **options: object) -> pytest.ExceptionInfo[Exception]:
    before = sorted(path.name for path in history.folder.iterdir())
    with pytest.raises(gmdb.Error) as caught:
        restore(options.pop("backup", history.backup), history.folder / "new", **options)
    assert sorted(path.name for path in history.folder.iterdir()) == before
    return caught


def test_a_target_that_is_there_is_refused(history: History) -> None:
    (history.folder / "new").mkdir()
    assert refused(history).type is TargetExists


def test_what_is_no_backup_is_refused(history: History) -> None:
    assert refused(history, backup=history.folder / "nothing").type is NotADatabase
    assert refused(history, backup=history.path).type is NotABackup
    (history.backup / "gmdb.backup").write_text("{}")
    assert refused(history).type is NotABackup


def test_a_backup_that_was_opened_is_none_any_more(history: History) -> None:
    with gmdb.connect(history.backup, read_only=True) as db:
        assert rows(db) == history.moments[0].rows
    restore(history.backup, history.folder / "first")
    gmdb.connect(history.backup).close()
    caught = refused(history)
    assert caught.type is NotABackup
    assert "was opened for writing since" in str(caught.value)


def test_a_time_before_the_backup_is_refused(history: History) -> None:
    history.live(1)
    early = datetime(2020, 1, 1, tzinfo=UTC)
    caught = refused(history, archive=history.archive, to=early)
    assert caught.type is RestoreError
    assert "later than 2020-01-01" in str(caught.value)


def test_a_time_without_archived_log_is_refused(history: History) -> None:
    assert refused(history, to=datetime.now(UTC)).type is InterfaceError


@pytest.mark.parametrize("kind", ["missing", "empty", "file"])
def test_an_archive_that_is_none_is_refused(history: History, kind: str) -> None:
    folder = history.folder / "somewhere"
    if kind == "empty":
        folder.mkdir()
    elif kind == "file":
        folder.touch()
    assert refused(history, archive=folder).type is RestoreError


def test_a_file_that_is_missing_from_the_archive_is_named(history: History) -> None:
    history.live(4)
    numbers = redo_numbers(history.archive)
    redo_path(history.archive, numbers[-2]).unlink()
    caught = refused(history, archive=history.archive)
    assert caught.type is RestoreError
    assert redo_path(Path(), numbers[-2]).name in str(caught.value)
    assert history.restored("before", history.moments[1].time) == history.moments[1].rows  # the log is whole till then


def test_a_damaged_file_in_the_archive_is_found(history: History) -> None:
    history.live(2)
    path = redo_path(history.archive, redo_numbers(history.archive)[-2])
    data = bytearray(path.read_bytes())
    data[HEAD_SPACE + 700] ^= 1
    path.write_bytes(data)
    assert refused(history, archive=history.archive).type in (Corruption, RestoreError)


def test_an_archive_of_another_database_brings_nothing(history: History) -> None:
    history.live(1)
    (history.folder / "elsewhere").mkdir()
    other = History(history.folder / "elsewhere")
    other.live(1)
    restore(history.backup, history.folder / "new", archive=other.archive)
    assert found(history.folder / "new") == history.moments[0].rows
