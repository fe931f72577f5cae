"""A directory after a power cut has all that was synced, and any part of the rest."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

import gmdb
from gmdb.storage import disk
from gmdb.storage.disk import DiskFile
from tests.crash.faults import RecordingDisk, marks
from tests.crash.power_cut import SECTOR, crash_state, crash_states
from tests.integrity import assert_sound

STATES = 300
Found = dict[str, bytes]


def sectors(*letters: str) -> bytes:
    return b"".join(letter.encode() * SECTOR for letter in letters)


class Case:
    """A directory that is recorded, the copy of it from before, and what a power cut may leave."""

    def __init__(self, tmp_path: Path, **files: bytes) -> None:
        self.root, self.base, self.target = (tmp_path / name for name in ("root", "base", "target"))
        self.root.mkdir()
        for name, content in files.items():
            (self.root / name).write_bytes(content)
        shutil.copytree(self.root, self.base)
        self.disk = RecordingDisk(self.root)

    def open(self, name: str) -> DiskFile:
        return self.disk.open(self.root / name, create=True)

    def sync_names(self) -> None:
        self.disk.sync_directory(self.root)

    def found(self, count: int = STATES, seed: int = 1) -> list[Found]:
        """What power cuts right now leave: contents by name."""
        now = len(self.disk.journal)
        states = crash_states(self.disk.journal, self.base, self.target, Random(seed), [now] * count)
        return [contents(directory) for _, directory in states]

    def found_in(self, name: str) -> set[bytes | None]:
        """Every content that one file is found with; None if it is missing."""
        return {state.get(name) for state in self.found()}


def contents(directory: Path) -> Found:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Case]:
    return lambda **files: Case(tmp_path, **files)


# ---- contents


def test_what_was_synced_is_always_there(make: Callable[..., Case]) -> None:
    case = make(f=sectors("0", "0", "0", "0"))
    with case.open("f") as file:
        file.write(sectors("a", "b"), 0)
        file.sync()
        assert case.found_in("f") == {sectors("a", "b", "0", "0")}
        file.write(sectors("x"), 2 * SECTOR)
    assert case.found_in("f") == {sectors("a", "b", "0", "0"), sectors("a", "b", "x", "0")}


def test_a_write_is_torn_at_any_sectors(make: Callable[..., Case]) -> None:
    case = make(f=sectors("0", "0", "0"))
    with case.open("f") as file:
        file.write(sectors("a", "b", "c"), 0)
    every = {sectors(first, second, third) for first in "0a" for second in "0b" for third in "0c"}
    assert case.found_in("f") == every


def test_writes_outlive_power_in_any_order_and_the_later_wins(make: Callable[..., Case]) -> None:
    case = make(f=sectors("0", "0"))
    with case.open("f") as file:
        file.write(sectors("a"), 0)
        file.write(sectors("b"), SECTOR)
        file.write(sectors("c"), 0)
    assert case.found_in("f") == {sectors(first, second) for first in "0ac" for second in "0b"}


def test_a_sector_that_outlives_power_has_all_that_was_written_to_it_before(make: Callable[..., Case]) -> None:
    case = make(f=bytes(SECTOR))
    with case.open("f") as file:
        file.write(b"one", 0)
        file.write(b"two", 3)
    assert case.found_in("f") == {content.ljust(SECTOR, b"\0") for content in (b"", b"one", b"onetwo")}


def test_files_lose_and_keep_independently_of_each_other(make: Callable[..., Case]) -> None:
    case = make(f=sectors("0"), g=sectors("0"))
    for name in "fg":
        with case.open(name) as file:
            file.write(sectors("a"), 0)
    assert len({(state["f"], state["g"]) for state in case.found()}) == 4


def test_syncing_one_file_says_nothing_of_another(make: Callable[..., Case]) -> None:
    case = make(f=sectors("0"), g=sectors("0"))
    with case.open("f") as first, case.open("g") as second:
        first.write(sectors("a"), 0)
        second.write(sectors("a"), 0)
        second.sync()
    assert case.found_in("g") == {sectors("a")}
    assert case.found_in("f") == {sectors("0"), sectors("a")}


def test_whole_directories_are_kept_lost_or_cut_off_at_a_moment(make: Callable[..., Case]) -> None:
    """The likely cuts must not drown in the many unlikely ones."""
    case = make(f=sectors(*"0000"), g=sectors(*"0000"))
    with case.open("f") as first, case.open("g") as second:
        for number, file in enumerate([first, second] * 4):
            file.write(sectors("a"), number // 2 * SECTOR)
    found = [state["f"] + state["g"] for state in case.found()]
    for kept in range(9):
        cut = [sectors(*"a" * count, *"0" * (4 - count)) for count in ((kept + 1) // 2, kept // 2)]
        assert b"".join(cut) in found


# ---- lengths


def test_a_length_may_be_old_or_new_until_it_is_synced(make: Callable[..., Case]) -> None:
    case = make(f=sectors("0"))
    with case.open("f") as file:
        file.allocate(3 * SECTOR)
        assert case.found_in("f") == {sectors("0"), sectors("0", "\0", "\0")}
        file.sync()
        assert case.found_in("f") == {sectors("0", "\0", "\0")}
        file.truncate(100)
        assert case.found_in("f") == {sectors("0", "\0", "\0"), b"0" * 100}
        file.sync()
        assert case.found_in("f") == {b"0" * 100}


def test_a_file_that_was_cut_off_and_grew_again_has_zeros(make: Callable[..., Case]) -> None:
    case = make(f=sectors("0", "0"))
    with case.open("f") as file:
        file.truncate(SECTOR)
        file.allocate(2 * SECTOR)
        file.sync()
    assert case.found_in("f") == {sectors("0", "\0")}


def test_a_write_at_the_end_may_leave_length_without_data_but_no_data_without_length(make: Callable[..., Case]) -> None:
    case = make(f=b"")
    with case.open("f") as file:
        file.write(sectors("a", "b"), 0)
    assert case.found_in("f") == {b""} | {sectors(first, second) for first in "\0a" for second in "\0b"}


def test_a_large_allocation_takes_no_space(make: Callable[..., Case]) -> None:
    case = make()
    with case.open("f") as file:
        file.allocate(8 << 20)
        file.write(sectors("a"), 4 << 20)
        file.sync()
    case.sync_names()
    crash_state(case.disk.journal, len(case.disk.journal), case.base, case.target, Random(1))
    status = (case.target / "f").stat()
    assert status.st_size == 8 << 20
    assert status.st_blocks * 512 < 1 << 20


# ---- names


def test_a_new_file_may_be_missing_until_its_directory_is_synced(make: Callable[..., Case]) -> None:
    case = make()
    with case.open("f") as file:
        file.write(b"a", 0)
        file.sync()
    assert case.found_in("f") == {None, b"a"}
    case.sync_names()
    assert case.found_in("f") == {b"a"}


def test_a_new_file_may_be_there_without_its_content(make: Callable[..., Case]) -> None:
    case = make()
    with case.open("f") as file:
        file.write(b"a", 0)
    case.sync_names()
    assert case.found_in("f") == {b"", b"\0", b"a"}


def test_a_file_that_takes_the_place_of_another_is_never_missing(make: Callable[..., Case]) -> None:
    case = make(f=b"old")
    with case.open("f.new") as file:
        file.write(b"new", 0)
        file.sync()
    case.disk.replace(case.root / "f.new", case.root / "f")
    found = case.found()
    assert {state["f"] for state in found} == {b"old", b"new"}
    assert all(state["f"] == b"old" for state in found if "f.new" in state)
    case.sync_names()
    assert case.found(10) == [{"f": b"new"}] * 10


def test_a_file_that_was_renamed_twice_has_one_name(make: Callable[..., Case]) -> None:
    case = make(f=b"x")
    case.disk.replace(case.root / "f", case.root / "g")
    case.disk.replace(case.root / "g", case.root / "h")
    assert {tuple(state) for state in case.found()} == {("f",), ("g",), ("h",)}


def test_a_removed_file_may_be_back_until_its_directory_is_synced(make: Callable[..., Case]) -> None:
    case = make(f=b"old")
    case.disk.remove(case.root / "f")
    assert case.found_in("f") == {None, b"old"}
    with case.open("f") as file:
        file.write(b"new", 0)
        file.sync()
    assert case.found_in("f") == {None, b"old", b"new"}
    case.sync_names()
    assert case.found_in("f") == {b"new"}


def test_syncing_one_directory_says_nothing_of_another(make: Callable[..., Case]) -> None:
    case = make()
    (case.root / "below").mkdir()
    for name in ("f", "below/f"):
        case.open(name).close()
    case.sync_names()
    assert case.found_in("f") == {b""}
    assert case.found_in("below/f") == {None, b""}


# ---- states of a journal


def test_random_work_that_was_synced_is_found_as_it_was_left(make: Callable[..., Case]) -> None:
    random = Random(7)
    case = make(a=sectors("a"), b=random.randbytes(5000), untouched=b"u")
    for _ in range(300):
        name = random.choice("abcdef")
        with case.open(name) as file:
            for _ in range(random.randint(0, 3)):
                file.write(random.randbytes(random.randint(1, 3000)), random.randint(0, 6000))
            if random.random() < 0.3:
                random.choice((file.allocate, file.truncate))(random.randint(1, 12_000))
            if random.random() < 0.5:
                file.sync()
        if random.random() < 0.1:
            case.disk.replace(case.root / name, case.root / random.choice("abcdef"))
        elif random.random() < 0.1:
            case.disk.remove(case.root / name)
    for path in case.root.iterdir():
        case.open(path.name).sync()
    case.sync_names()
    assert case.found(5) == [contents(case.root)] * 5


def test_all_kept_is_what_a_process_that_dies_leaves(make: Callable[..., Case]) -> None:
    random = Random(3)
    case = make(f=b"")
    with case.open("f") as file:
        for _ in range(20):
            file.write(random.randbytes(700), random.randint(0, 9000))
            file.truncate(random.randint(1, 12_000))
            if random.random() < 0.2:
                file.sync()
            assert contents(case.root) in case.found(100, seed=random.getrandbits(32))


def test_states_come_at_every_point_and_leave_nothing_behind(make: Callable[..., Case]) -> None:
    case = make(f=sectors("0"))
    with case.open("f") as file:
        for letter in "abc":
            file.write(sectors(letter), 0)
            file.sync()
            case.disk.mark(letter)
    journal, seen = case.disk.journal, []
    for upto, directory in crash_states(journal, case.base, case.target, Random(1)):
        done = ["0", *marks(journal, upto)]
        assert (directory / "f").read_bytes() in [sectors(letter) for letter in (done[-1], "abca"[len(done) - 1])]
        assert [path.name for path in case.target.iterdir()] == [directory.name]
        seen.append(upto)
    assert seen == list(range(len(journal) + 1))
    assert list(case.target.iterdir()) == []


def test_the_same_seed_builds_the_same_states(make: Callable[..., Case]) -> None:
    case = make(f=sectors(*"00000000"))
    with case.open("f") as file:
        file.write(sectors(*"abcdefgh"), 0)
    assert case.found(50, seed=5) == case.found(50, seed=5) != case.found(50, seed=6)


def test_points_must_not_go_back(make: Callable[..., Case]) -> None:
    case = make(f=b"")
    case.sync_names()
    states = crash_states(case.disk.journal, case.base, case.target, Random(1), [1, 0])
    next(states)
    with pytest.raises(AssertionError, match="0 does not come after 1"):
        next(states)


def test_a_copy_that_was_not_taken_before_the_journal_is_noticed(make: Callable[..., Case]) -> None:
    case = make(f=b"x")
    with case.open("f") as file:
        file.write(b"y", 0)
    with pytest.raises(AssertionError, match="f, which was not there when it began"):
        crash_state(case.disk.journal, 1, case.target / "missing", case.target, Random(1))


def test_a_database_that_was_closed_outlives_any_power_cut(path: Path, tmp_path: Path) -> None:
    gmdb.connect(path).close()
    shutil.copytree(path, tmp_path / "base")
    recorder = RecordingDisk(path)
    values = np.arange(3000, dtype=np.int32)
    with disk.use(recorder), gmdb.connect(path) as db:
        db.create_table("t", {"i": "INT"})
        db.commit()
        db.append("t", pa.table({"i": pa.array(values)}))
        db.commit()
    points = [len(recorder.journal)] * 3
    for _, directory in crash_states(recorder.journal, tmp_path / "base", tmp_path / "states", Random(1), points):
        with gmdb.connect(directory) as db:
            assert db.arrow("t").read_all()["i"].to_numpy().tolist() == values.tolist()
        assert_sound(directory)
