from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import gmdb
from tests.verify.build import Damage, build_database


@pytest.fixture(scope="session")
def sound_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound database, for tests that only read it."""
    return build_database(tmp_path_factory.mktemp("verify") / "sound.gmdb")


@pytest.fixture
def damage(sound_database: Path, tmp_path: Path) -> Damage:
    """A copy of the sound database, to be damaged."""
    return Damage(Path(shutil.copytree(sound_database, tmp_path / "copy.gmdb")))


@pytest.fixture
def dumped(tmp_path: Path) -> Damage:
    """The pages of a database at work: inserted, changed and deleted rows of two transactions, one after the other."""
    with gmdb.connect(tmp_path / "work.gmdb") as db, gmdb.connect(tmp_path / "work.gmdb") as reader:
        db.create_table("t", {"i": "INT", "s": "VARCHAR(20)"})
        db.commit()
        row_ids = [db.insert("t", (n, "old")) for n in range(10)]
        db.commit()
        db.gc()
        reader.begin()
        list(reader.heap("t").rows())
        db.update("t", {"s": "new"}, where=lambda row: row["i"] < 4)
        db.insert("t", (100, "added"))
        db.commit()
        db.update("t", {"s": "newer"}, where=lambda row: row["i"] in (2, 3, 100))
        db.update("t", {"s": "newest"}, where=lambda row: row["i"] == 3)
        db.heap("t").delete(row_ids[5])
        added = db.insert("t", (101, "added"))
        db.heap("t").update(added, {"s": "and changed"})
        db.dump(tmp_path / "work.dump")
        db.rollback()
        reader.rollback()
    return Damage(tmp_path / "work.dump")
