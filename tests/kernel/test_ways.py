"""Kernels run ahead, by the JIT or as plain Python: which way is chosen, and that all of them give the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gmdb
from gmdb.kernel.ahead import FILE
from gmdb.kernel.runtime.compiler import AHEAD, WAY
from tests.kernel.conftest import OWN_KERNELS

ROOT = Path(__file__).parents[2]
PROBE = """
import sys, warnings
{before}
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    from gmdb.kernel.runtime.compiler import WAY
print(WAY, "numba" in sys.modules, *(one.message for one in told))
"""
WITHOUT_NUMBA = "sys.modules['numba'] = None"

needs_module = pytest.mark.skipif(WAY != AHEAD, reason="no kernels compiled ahead are there")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package somewhere else, with kernels compiled ahead."""
    source = Path(gmdb.__file__).parent
    shutil.copytree(source, tmp_path / "src" / "gmdb", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "src" / "gmdb"


def chosen(package: Path, wanted: str = "", before: str = "") -> str:
    """Which way a new process takes, whether Numba is loaded then, and its warnings; or its error."""
    environment = {**os.environ, "PYTHONPATH": str(package.parent), "GMDB_KERNELS": wanted}
    command = [sys.executable, "-c", PROBE.format(before=before)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    return ended.stdout.strip() or ended.stderr.strip().splitlines()[-1]


@needs_module
def test_kernels_that_fit_their_sources_run_ahead_and_numba_is_not_loaded(copy: Path) -> None:
    assert chosen(copy) == "ahead False"
    assert chosen(copy, before=WITHOUT_NUMBA).startswith("ahead")
    assert chosen(copy, "ahead") == "ahead False"


@needs_module
@pytest.mark.parametrize("changed", ["kernel/change/dml.py", "format/heap.py", "kernel/one_more.py"])
def test_kernels_of_other_sources_are_not_used_and_that_is_told(copy: Path, changed: str) -> None:
    with (copy / changed).open("a") as file:
        file.write("# something else\n")
    told = chosen(copy)
    assert told.startswith("jit True gmdb compiles kernels when they are first called")
    assert f"{copy}/kernel/{FILE} were compiled from other sources; run make kernels" in told
    assert "KernelsUnavailable: GMDB_KERNELS is ahead, but the kernels in" in chosen(copy, "ahead")
    assert "compiled from other sources, and Numba" in chosen(copy, before=WITHOUT_NUMBA)


@needs_module
def test_a_module_that_cannot_be_loaded_is_not_used_and_that_is_told(copy: Path) -> None:
    (copy / "kernel" / FILE).write_bytes(b"\x7fELF and no more")
    assert "jit True gmdb compiles kernels" in chosen(copy)
    assert "kernels compiled ahead cannot be loaded" in chosen(copy, "ahead")


def test_without_kernels_ahead_the_jit_compiles_them_if_it_is_there(copy: Path) -> None:
    (copy / "kernel" / FILE).unlink(missing_ok=True)
    assert chosen(copy) == "jit True"
    refused = chosen(copy, before=WITHOUT_NUMBA)
    assert refused.startswith("gmdb.errors.KernelsUnavailable: no kernels compiled ahead are there, and Numba")
    assert "gmdb[jit]" in refused
    assert "KernelsUnavailable: GMDB_KERNELS is ahead, but no kernels" in chosen(copy, "ahead")


def test_the_way_that_is_named_is_taken(copy: Path) -> None:
    assert chosen(copy, "jit") == "jit True"
    assert chosen(copy, "plain") == "plain False"
    assert chosen(copy, "plain", WITHOUT_NUMBA).startswith("plain")
    assert "KernelsUnavailable: GMDB_KERNELS is jit, and Numba" in chosen(copy, "jit", WITHOUT_NUMBA)
    assert "InterfaceError: GMDB_KERNELS is 'fast'; it may be ahead, jit or plain" in chosen(copy, "fast")
    numba_told = "import os; os.environ['NUMBA_DISABLE_JIT'] = '1'"
    assert "NUMBA_DISABLE_JIT is set; GMDB_KERNELS=plain" in chosen(copy, "jit", numba_told)


@pytest.mark.parametrize("way", ["jit", "plain"])
def test_kernels_of_the_tests_own_are_right(way: str) -> None:
    files = [f"tests/kernel/{name}" for name in (*OWN_KERNELS, "test_compiler.py")]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *files]
    environment = {**os.environ, "GMDB_KERNELS": way}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout
    assert " passed" in ended.stdout
