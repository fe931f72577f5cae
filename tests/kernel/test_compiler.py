"""Machine code is kept apart for other sources, and kept where the sources that a kernel is made of are the same."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import gmdb.kernel
from gmdb.kernel.compile_all import mark_of
from gmdb.kernel.compiler import COMPILED, routine
from gmdb.kernel.kept import sources_of

PACKAGE = Path(gmdb.kernel.__file__).parent.parent
KERNELS = sorted((PACKAGE / "kernel").glob("*.py"))


def imported(source: Path) -> set[Path]:
    """What Python's own parser says that a file imports of formats and kernels."""
    found = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("gmdb.format", "gmdb.kernel")):
            _, folder, *rest = (node.module or "").split(".")
            names = rest or [alias.name for alias in node.names]
            found.update(PACKAGE / folder / f"{name}.py" for name in names)
        elif isinstance(node, ast.Import):
            assert not any(alias.name.startswith(("gmdb.format", "gmdb.kernel")) for alias in node.names)
    return {path for path in found if path.is_file()}


@pytest.mark.parametrize("source", KERNELS, ids=lambda path: path.stem)
def test_all_that_a_kernel_is_made_of_counts(source: Path):
    sources = set(sources_of(source))
    assert source in sources
    for path in sources:
        assert imported(path) <= sources, path


def test_what_it_does_not_import_does_not_count():
    assert PACKAGE / "kernel" / "btree.py" not in sources_of(PACKAGE / "kernel" / "append.py")


@pytest.mark.skipif(not COMPILED, reason="as plain Python, a routine is a function like any other")
def test_a_routine_that_python_calls_is_an_error_of_python():
    @routine
    def successor(number):
        return number + 1

    with pytest.raises(TypeError):
        successor(1)


def test_sources_elsewhere_or_changed_are_not_compiled_yet(tmp_path: Path) -> None:
    first, second = tmp_path / "first" / "k.py", tmp_path / "second" / "k.py"
    for source in (first, second):
        source.parent.mkdir()
        source.write_text("from gmdb.kernel.memory import load_u8\n")
    before = mark_of(tmp_path, [first])
    assert mark_of(tmp_path, [first]) == before
    assert mark_of(tmp_path, [second]) != before
    first.write_text("from gmdb.kernel.memory import load_u16\n")
    assert mark_of(tmp_path, [first]) != before
