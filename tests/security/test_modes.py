"""Who may read and write what gmdb leaves on the disk: as much as the user's umask says, and others never write."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import gmdb
from gmdb.sql.duck.instance import Settings


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def use(path: Path) -> None:
    """Make a file of every kind."""
    with gmdb.connect(path) as db:
        db.execute("create table t (i int primary key, b blob)")
        db.set_change_feed("t", True)
        db.commit()
        db.set_archiving(True)
        db.changes(tables=["t"], reader="copy", without_lobs=True).close()
        db.execute("insert into t values (1, null)")
        db.commit()
        db.take_snapshot(lease=60)
        db.checkpoint()
        db.backup(path.with_name("backup"))
        db.dump(path.with_name("dump"))


def modes(folder: Path) -> dict[str, int]:
    return {str(p.relative_to(folder)): stat.S_IMODE(p.lstat().st_mode) for p in folder.rglob("*")}


def test_a_umask_that_lets_nobody_in_is_kept_everywhere(tmp_path: Path) -> None:
    with umask(0o077):
        use(tmp_path / "shop.gmdb")
    found = modes(tmp_path)
    assert len(found) > 20
    assert {name: oct(mode) for name, mode in found.items() if mode & 0o077} == {}


@pytest.mark.parametrize("mask", [0o022, 0o002, 0o000])
def test_files_with_data_are_never_for_others_to_write(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        use(tmp_path / "shop.gmdb")
    wrong = {
        name: oct(mode)
        for name, mode in modes(tmp_path).items()
        if Path(name).name.startswith(("device-", "redo-", "gmdb.control", "gmdb.mirror", "gmdb.lock")) and mode & 0o022
    }
    assert wrong == {}


def test_what_queries_put_aside_is_the_users_alone() -> None:
    with umask(0):
        directory = Path(Settings.default().temp_directory)
    try:
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    finally:
        directory.rmdir()
