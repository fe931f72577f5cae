"""What the JIT compiles is kept as pickles: none is loaded that another user could have written."""

from __future__ import annotations

import importlib.util
import os
import pickle
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import gmdb
from gmdb.cli.demo.chapters import _run_and_kill
from gmdb.cli.demo.steps import NOTES
from gmdb.errors import UnsafeDirectory
from gmdb.kernel.runtime import code_cache
from tests.security.users import NOBODY, STRANGER, as_user, root_only

PROBE = """
from gmdb.kernel.runtime.jit import kernel


@kernel
def successor(number):
    return number + 1
"""


def forget() -> None:
    """Look for the folder of compiled code again."""
    code_cache.cache_folder.cache_clear()
    code_cache.cache_directory.cache_clear()


@pytest.fixture
def home() -> Iterator[Path]:
    """A home and a directory for temporary files, which other users can see."""
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as made:
        top = Path(made)
        top.chmod(0o755)
        (top / "shared").mkdir()
        (top / "shared").chmod(0o1777)
        (top / "probe.py").write_text(PROBE)
        yield top


@pytest.fixture(autouse=True)
def caches(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory of caches that is looked for first."""
    for name in ("GMDB_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(tempfile, "tempdir", str(home / "shared"))
    forget()
    yield home / ".cache"
    monkeypatch.undo()
    forget()


def successor_of(number: int, probe: Path) -> int:
    """Compile the probe's kernel, or load it, and call it."""
    forget()
    spec = importlib.util.spec_from_file_location("probe", probe)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return int(module.successor(number))


class Bomb:
    """Loaded as a pickle, it leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self._mark}",)


def plant(folder: Path, probe: Path, mark: Path) -> int:
    """Put something for the probe's kernel into a folder of compiled code, with the names that Numba looks for."""
    os.environ["GMDB_CACHE_DIR"] = str(folder.with_name("workshop"))
    successor_of(1, probe)
    os.rename(folder.with_name("workshop") / "gmdb", folder)
    del os.environ["GMDB_CACHE_DIR"]
    files = list(folder.rglob("*.nbi"))
    for file in files:
        file.write_bytes(pickle.dumps(Bomb(mark)))
    return len(files)


def test_what_is_planted_would_be_run(home: Path, caches: Path) -> None:
    """Else the tests below would show nothing."""
    caches.mkdir()
    assert plant(caches / "gmdb", home / "probe.py", home / "mark") == 1
    successor_of(41, home / "probe.py")
    assert (home / "mark").exists()


@pytest.mark.parametrize("opened", ["folder", "subfolder", "above"])
def test_code_is_not_loaded_where_others_could_write(home: Path, caches: Path, opened: str) -> None:
    caches.mkdir()
    plant(caches / "gmdb", home / "probe.py", home / "mark")
    subfolder = next((caches / "gmdb").iterdir())
    {"folder": caches / "gmdb", "subfolder": subfolder, "above": caches}[opened].chmod(0o770)
    assert successor_of(41, home / "probe.py") == 42
    assert not (home / "mark").exists()


@root_only
@pytest.mark.parametrize("mode", [0o777, 0o755])
def test_code_of_another_user_is_not_run(home: Path, mode: int) -> None:
    """Where a home cannot be written, code is kept among temporary files: the first who comes can make the folder."""
    successor_of(1, home / "probe.py")  # and have all that compiling needs loaded: others cannot read this interpreter
    folder, mark = home / "shared" / f"gmdb-{NOBODY}", home / "shared" / "mark"

    def attack() -> int:
        os.environ["HOME"] = "/nonexistent"
        count = plant(folder, home / "probe.py", mark)
        for path in [folder, *folder.rglob("*")]:
            path.chmod(mode)
        return count

    def work() -> list[Any]:
        os.environ["HOME"] = "/nonexistent"
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            return [successor_of(41, home / "probe.py"), code_cache.cache_folder(), *(str(one.message) for one in told)]

    assert as_user(attack, STRANGER) == 1
    number, where, *told = as_user(work)
    assert (number, where, mark.exists()) == (42, None, False)
    assert len(told) == 1
    assert f"{folder} belongs to user {STRANGER}" in told[0]


def test_numba_chooses_no_place_of_its_own(home: Path, caches: Path) -> None:
    """If it cannot write where it was told to (the disk may be full), it would go where nobody has checked."""
    successor_of(1, home / "probe.py")
    (subfolder,) = (path for path in (caches / "gmdb").iterdir() if path.name.startswith("probe-"))
    (inner,) = (path for path in subfolder.iterdir() if path.is_dir())
    for file in inner.iterdir():
        file.unlink()
    inner.rmdir()
    inner.touch()
    assert successor_of(41, home / "probe.py") == 42
    assert not list(home.rglob("*.nbi"))


# ---- every way in which a place can be unsafe

SOURCE = Path(code_cache.__file__)
State = Callable[[Path], None]  # makes the folder ``base / "gmdb"`` in some way


def folder_with(mode: int) -> State:
    def make(base: Path) -> None:
        (base / "gmdb").mkdir(parents=True)
        (base / "gmdb").chmod(mode)

    return make


def above_with(mode: int, levels: int = 1) -> State:
    def make(base: Path) -> None:
        (base / "gmdb").mkdir(parents=True)
        (base / "gmdb").parents[levels - 1].chmod(mode)

    return make


def given_away(levels: int) -> State:
    def make(base: Path) -> None:
        (base / "gmdb").mkdir(parents=True)
        os.chown([base / "gmdb", *(base / "gmdb").parents][levels], NOBODY, NOBODY)

    return make


def link_to(mode: int, owner: int | None = None) -> State:
    def make(base: Path) -> None:
        target = base.with_name("target")
        (target / "gmdb").mkdir(parents=True)
        target.chmod(mode)
        base.symlink_to("target")
        if owner is not None:
            os.chown(base, owner, owner, follow_symlinks=False)

    return make


def loop(base: Path) -> None:
    base.with_name("one").symlink_to("two")
    base.with_name("two").symlink_to(base.with_name("one"))
    base.symlink_to(base.with_name("one"))


SAFE = {
    "missing": lambda _: None,
    "private": folder_with(0o700),
    "seen by others": folder_with(0o755),
    "in a sticky directory": above_with(0o1777),
    "behind a link": link_to(0o755),
}
UNSAFE = {
    "the group writes": folder_with(0o770),
    "others write": folder_with(0o707),
    "all write": folder_with(0o777),
    "sticky itself": folder_with(0o1777),
    "the group writes above": above_with(0o770),
    "all write above": above_with(0o777),
    "all write far above": above_with(0o777, 2),
    "behind a link, all write": link_to(0o777),
}
ANOTHERS = {
    "of another user": given_away(0),
    "below another user's": given_away(1),
    "far below another user's": given_away(2),
    "behind another user's link": link_to(0o755, NOBODY),
}
STATES = [
    *(pytest.param(state, False, id=name) for name, state in UNSAFE.items()),
    *(pytest.param(state, False, id=name, marks=root_only) for name, state in ANOTHERS.items()),
    *(pytest.param(state, True, id=name) for name, state in SAFE.items()),
]


@pytest.mark.parametrize(("state", "is_safe"), STATES)
def test_a_directory_of_caches_is_used_only_if_it_is_safe(
    home: Path, state: State, is_safe: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = home / "far" / "above" / "base"
    base.parent.mkdir(parents=True)
    state(base)
    monkeypatch.setenv("XDG_CACHE_HOME", str(base))
    expected = base / "gmdb" if is_safe else home / "shared" / f"gmdb-{os.geteuid()}"
    assert code_cache.cache_folder() == expected
    assert expected.stat().st_uid == os.geteuid()
    assert not expected.stat().st_mode & 0o022


@pytest.mark.parametrize(("state", "is_safe"), STATES)
def test_a_named_directory_that_is_unsafe_is_refused(
    home: Path, state: State, is_safe: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = home / "far" / "above" / "base"
    base.parent.mkdir(parents=True)
    state(base)
    monkeypatch.setenv("GMDB_CACHE_DIR", str(base))
    if is_safe:
        assert code_cache.cache_folder() == base / "gmdb"
        return
    with pytest.raises(UnsafeDirectory, match=r"GMDB_CACHE_DIR is .*(can be written by others|belongs to user)"):
        code_cache.cache_folder()


def test_links_in_a_circle_are_passed_over(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop(home / "base")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "base"))
    assert code_cache.cache_folder() == home / "shared" / f"gmdb-{os.geteuid()}"


@pytest.mark.parametrize("named", ["GMDB_CACHE_DIR", "XDG_CACHE_HOME"])
def test_a_relative_name_follows_no_change_of_directory(
    home: Path, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    monkeypatch.setenv(named, "here")
    where = code_cache.cache_folder()
    assert where is not None
    assert where.is_absolute()
    assert (home / "here").exists() == (named == "GMDB_CACHE_DIR")  # the other has to be absolute


def test_without_a_safe_place_nothing_is_kept(home: Path, caches: Path) -> None:
    caches.mkdir()
    caches.chmod(0o777)
    (home / "shared").chmod(0o777)
    with pytest.warns(
        RuntimeWarning, match=r"compiles its kernels anew.*\.cache can be.*shared can be.*GMDB_CACHE_DIR"
    ):
        assert code_cache.cache_folder() is None
    assert code_cache.cache_directory(SOURCE) is None


# ---- what lies in the folder


def open_folder(folder: Path) -> None:
    folder.chmod(0o777)


def open_file(folder: Path) -> None:
    folder.chmod(0o755)
    (folder / "inner" / "code").chmod(0o666)


def open_inner_folder(folder: Path) -> None:
    folder.chmod(0o755)
    (folder / "inner").chmod(0o777)


def link_file(folder: Path) -> None:
    (folder / "inner" / "code").rename(folder.parent / "elsewhere")
    (folder / "inner" / "code").symlink_to(folder.parent / "elsewhere")


def link_folder(folder: Path) -> None:
    folder.rename(folder.parent / "elsewhere")
    folder.symlink_to("elsewhere")


def give_file(folder: Path) -> None:
    os.chown(folder / "inner" / "code", NOBODY, NOBODY)


def give_inner_folder(folder: Path) -> None:
    os.chown(folder / "inner", NOBODY, NOBODY)


def give_folder(folder: Path) -> None:
    os.chown(folder, NOBODY, NOBODY)


def second_name(folder: Path) -> None:
    os.link(folder / "inner" / "code", folder.parent / "elsewhere")


ALTERED: list[Any] = [open_folder, open_file, open_inner_folder, link_file, link_folder, second_name]
ALTERED += [pytest.param(one, marks=root_only) for one in (give_file, give_inner_folder, give_folder)]


@pytest.mark.parametrize("alter", ALTERED)
def test_what_others_may_have_left_is_removed(alter: Callable[[Path], None]) -> None:
    folder = code_cache.cache_directory(SOURCE)
    assert folder is not None
    (folder / "inner").mkdir()
    (folder / "inner" / "code").write_bytes(b"code")
    forget()
    assert code_cache.cache_directory(SOURCE) == folder
    assert (folder / "inner" / "code").exists()
    alter(folder)
    forget()
    assert code_cache.cache_directory(SOURCE) == folder
    assert list(folder.iterdir()) == []
    assert not folder.is_symlink()
    assert folder.stat().st_uid == os.geteuid()
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o022, 0o077])
def test_what_is_made_is_the_users_alone_whatever_the_umask(caches: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        for _ in range(2):
            forget()
            folder = code_cache.cache_directory(SOURCE)
            assert folder is not None
            assert folder.parent == caches / "gmdb"
            for made in (caches, caches / "gmdb", folder):
                assert made.stat().st_mode & 0o777 == 0o700
            (folder / "inner").mkdir(exist_ok=True)  # as Numba does, with the modes of the umask
    finally:
        os.umask(before)


def test_a_process_of_the_demo_loads_nothing_from_the_current_directory(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # all kernels are compiled where they are always
    forget()
    with gmdb.connect(home / "demo.gmdb") as db:
        db.create_table(NOTES, [("id", "INT"), ("state", "VARCHAR(10)")])
        db.commit()
    (home / "pyarrow.py").write_text(f"open({str(home / 'mark')!r}, 'w')")
    monkeypatch.chdir(home)
    assert _run_and_kill(home / "demo.gmdb") > 0
    assert not (home / "mark").exists()
