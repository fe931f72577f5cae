"""The soak's own parts: its checks notice what is wrong, its disk loses what was not synced, its planted bugs fit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import gmdb
from tests import planted
from tests.soak import definer, town
from tests.soak.town import ACCOUNTS, BALANCE, FILE_EVERY, WAYS, WRITERS, Instant, file_of, text_of
from tests.soak.visitors import Loads

HIGH, VERSION = 2 * FILE_EVERY, 3


def instant() -> Instant:
    """One that is right: each writer has some entries, two of them with files, all of them changed three times."""
    numbers = range(1, HIGH + 1)
    return Instant(
        [(k, BALANCE) for k in range(ACCOUNTS)],
        [(writer, 7, 0, HIGH, VERSION * HIGH) for writer in range(WRITERS)],
        [(writer, n, VERSION, text_of(writer, n, VERSION)) for writer in range(WRITERS) for n in numbers],
        [(writer, n, file_of(writer, n)) for writer in range(WRITERS) for n in numbers if n % FILE_EVERY == 0],
    )


def lose_money(seen: Instant) -> None:
    seen.accounts[3] = (3, BALANCE - 1)


def lose_an_account(seen: Instant) -> None:
    del seen.accounts[0]


def lose_a_commit(seen: Instant) -> None:
    seen.books[2] = (2, 6, 0, HIGH, VERSION * HIGH)


def lose_an_entry(seen: Instant) -> None:
    del seen.entries[5]


def see_an_older_version(seen: Instant) -> None:
    seen.entries[5] = (0, 6, VERSION - 1, text_of(0, 6, VERSION - 1))


def see_another_text(seen: Instant) -> None:
    seen.entries[5] = (0, 6, VERSION, text_of(0, 6, VERSION - 1))


def lose_a_file(seen: Instant) -> None:
    assert seen.files is not None
    del seen.files[0]


def damage_a_file(seen: Instant) -> None:
    assert seen.files is not None
    seen.files[0] = (0, FILE_EVERY, file_of(0, FILE_EVERY)[:-1])


def test_an_instant_that_is_right_is_not_complained_of() -> None:
    assert instant().complaints(dict.fromkeys(range(WRITERS), 7)) == []


@pytest.mark.parametrize(
    "harm",
    [
        lose_money,
        lose_an_account,
        lose_a_commit,
        lose_an_entry,
        see_an_older_version,
        see_another_text,
        lose_a_file,
        damage_a_file,
    ],
)
def test_what_is_wrong_with_an_instant_is_noticed(harm: Callable[[Instant], None]) -> None:
    seen = instant()
    harm(seen)
    assert seen.complaints(dict.fromkeys(range(WRITERS), 7)) != []


@pytest.mark.parametrize("way", WAYS)
def test_a_new_town_is_right_however_it_is_read(path: Path, way: str) -> None:
    with gmdb.connect(path, isolation="repeatable read") as db:
        town.found(db)
        assert town.look(db, way, with_files=True).complaints({}) == []
        assert list(definer.complaints(db)) == []
        db.execute("create table d_1 (i int)")
        assert list(definer.complaints(db)) == ["tables ['d_1'] instead of []"]


def test_loads_are_whole_and_what_was_acknowledged_stays() -> None:
    loads = Loads(allowed={1: {town.LOAD_ROWS}, 2: {0, town.LOAD_ROWS}})
    whole = town.LOAD_ROWS
    assert list(loads.complaints({1: whole, 2: whole - 1}, is_quiet=False)) != []
    assert list(loads.complaints({1: whole, 2: whole}, is_quiet=True)) == []
    assert list(loads.complaints({1: whole}, is_quiet=True)) != []  # it is known by now that the second is there


CUT = """
import sys
from pathlib import Path
from tests.soak.disk import TownDisk
disk, path = TownDisk(), Path(sys.argv[1])
with disk.open(path, create=True) as file:
    file.write(b"a" * 100_000, 0)
    file.sync()
    file.write(b"b" * 50_000, 0)
    with disk.open(path.with_name("other"), create=True) as other:
        other.write(b"c" * 100, 0)
    disk.cut_power(int(sys.argv[2]))
"""


def test_a_power_cut_takes_what_was_not_synced_or_some_of_it(tmp_path: Path) -> None:
    left = set()
    for seed in range(6):
        file = tmp_path / f"{seed}"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        ended = subprocess.run([sys.executable, "-c", CUT, str(file), str(seed)], env=environment, check=False)
        assert ended.returncode == -signal.SIGKILL
        data = file.read_bytes()
        assert len(data) == 100_000
        assert data[50_000:] == b"a" * 50_000  # was synced
        left.add(round(data.count(b"b") / 50_000, 1))
    assert len(left) > 1


@pytest.mark.parametrize("bug", planted.BUGS, ids=lambda bug: bug.name)
def test_a_bug_that_is_to_be_planted_finds_its_place(bug: planted.Bug) -> None:
    assert (planted.TOP / "src" / "gmdb" / bug.file).read_text().count(bug.old) == 1
