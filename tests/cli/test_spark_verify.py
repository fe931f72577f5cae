"""``gmdb spark verify``: the findings of ``gmdb verify``, in its order, made by Spark's workers."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import gmdb
from gmdb.cli import main
from gmdb.errors import SnapshotExpired
from gmdb.format.page import PAGE_HEAD
from gmdb.spark import checking
from gmdb.spark.checking import verify_databases
from gmdb.spark.jobs import watched
from gmdb.storage.directory import CONTROL_NAME, device_path
from gmdb.verify import verify
from gmdb.verify.page_reader import VerifiedFiles
from tests.verify.build import Damage, build_database
from tests.verify.indexed import KEY_AT, IndexDamage, TreeDamage, build_hashed, build_indexed
from tests.verify.test_fuzz import Target, mutated, sealed

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]
RANDOM_DAMAGES = 6  # of each database


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("sound")
    builds = {"plain": build_database, "indexed": build_indexed, "hashed": build_hashed}
    return {name: build(folder / f"{name}.gmdb") for name, build in builds.items()}


def copy(source: Path, target: Path) -> Path:
    return Path(shutil.copytree(source, target))


def damage_one_by_one(sound: dict[str, Path], folder: Path) -> list[Path]:
    """Copies with one damage each: in files, in pages, in rows, in segments, between indexes and rows."""
    made = []

    def next_copy(name: str) -> Path:
        made.append(copy(sound[name], folder / f"{len(made)}.gmdb"))
        return made[-1]

    os.truncate(device_path(next_copy("plain"), 5), 20 * 16384)
    device_path(next_copy("plain"), 7).unlink()
    control = next_copy("plain") / CONTROL_NAME
    control.write_bytes(bytes(control.stat().st_size))
    plain = Damage(next_copy("plain"))
    plain.write(plain.pages("bulk")[7], 7000, b"\1", sealed=False)
    plain = Damage(next_copy("plain"))
    plain.set(plain.pages("moved")[1], PAGE_HEAD, 0, "map_page_id", 77)
    plain = Damage(next_copy("plain"))
    plain.write_page(plain.map_pages("bulk")[-1], bytes(8192), sealed=False)
    tree = TreeDamage(next_copy("indexed"))
    leaf = tree.leaves("t_s")[1]
    tree.write(leaf, tree.offset(leaf, 2) + KEY_AT + 2, b"!")
    tree = TreeDamage(next_copy("indexed"))
    tree.set_slots(tree.leaves("t_k")[2], lambda slots: slots[:-1])
    tree = TreeDamage(next_copy("indexed"))
    tree.write(tree.pages("t")[3], 5000, b"\1\2", sealed=False)
    hashed = IndexDamage(next_copy("hashed"))
    hashed.write(hashed.root("t_d"), 120, b"\0\0\0\1")
    return made


def damage_at_random(sound: dict[str, Path], folder: Path) -> list[Path]:
    chance, made = random.Random(21), []
    for name, source in sound.items():
        for n in range(RANDOM_DAMAGES):
            made.append(copy(source, folder / f"random-{name}-{n}.gmdb"))
            target = Target(made[-1])
            for number, offset, page in chance.sample(target.places, 2):
                target.write(number, offset, sealed(mutated(page, chance)))
            target.close()
    return made


def test_spark_finds_what_verify_finds_in_its_order(spark, sound: dict[str, Path], tmp_path: Path) -> None:
    paths = [*sound.values(), *damage_one_by_one(sound, tmp_path), *damage_at_random(sound, tmp_path)]
    expected = [verify(path) for path in paths]
    assert [report.clean for report in expected[: len(sound)]] == [True] * len(sound)
    assert not any(report.clean for report in expected[len(sound) : len(sound) + 10])
    for report, made in zip(expected, verify_databases(spark, paths), strict=True):
        assert made == report


def test_one_database_is_its_findings_and_two_lines(sound: dict[str, Path], tmp_path: Path, capsys) -> None:
    damaged = Damage(copy(sound["plain"], tmp_path / "copy.gmdb"))
    damaged.write(damaged.pages("bulk")[7], 7000, b"\1", sealed=False)
    assert main(["verify", str(damaged.path)]) == 1
    expected = capsys.readouterr().out.splitlines()
    assert main(["spark", "verify", str(damaged.path)]) == 1
    *same, last = capsys.readouterr().out.splitlines()
    assert same == expected
    assert re.fullmatch(r"1 database: 52,2\d\d rows, 7\.\d MiB in [\d.]+ s", last)


def test_several_databases_have_a_row_each(sound: dict[str, Path], tmp_path: Path, capsys) -> None:
    first, second = sound["indexed"], sound["hashed"]
    assert main(["spark", "verify", str(first), str(second)]) == 0
    _, _, *rows, _, last = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows] == [str(first), str(second)]
    assert last.startswith("2 databases: 2 ok; ")
    assert main(["spark", "verify", str(first), str(tmp_path / "none"), "--json"]) == 2
    out, err = capsys.readouterr()
    well, none = json.loads(out)["databases"]
    assert (well["database"], well["clean"]) == (str(first), True)
    assert (none["database"], none["error"]) == (str(tmp_path / "none"), f"{tmp_path / 'none'} does not exist")
    assert err == ""


def test_an_open_database_is_checked_as_it_is_at_one_instant(path: Path, capsys) -> None:
    build_database(path)
    with gmdb.connect(path) as db, gmdb.connect(path) as other:
        other.delete(db.tables()[0])  # under way while it is checked
        status = main(["spark", "verify", str(path)])
        other.rollback()
    out, err = capsys.readouterr()
    assert (status, err) == (0, ""), out
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_worker_that_sees_other_files_says_so(spark, sound: dict[str, Path], monkeypatch) -> None:
    real = checking.closed_files

    @contextmanager
    def newer(directory: Path) -> Iterator[VerifiedFiles]:
        with real(directory) as files:
            files.control["scn"] += 1
            yield files

    monkeypatch.setattr(checking, "closed_files", newer)
    with pytest.raises(SnapshotExpired, match="workers must reach the same files"), watched(spark, "test"):
        verify_databases(spark, [sound["indexed"]])
