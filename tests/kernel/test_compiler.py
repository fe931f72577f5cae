"""Machine code is kept apart for other sources, and kept where the sources that a kernel is made of are the same."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import gmdb.kernel
from gmdb.kernel.runtime.code_cache import sources_of
from gmdb.kernel.runtime.compiler import COMPILED, routine

PACKAGE = Path(gmdb.kernel.__file__).parent.parent
KERNELS = sorted(path for path in (PACKAGE / "kernel").rglob("*.py") if path.parent.name != "build")


def imported(source: Path) -> set[Path]:
    """What Python's own parser says that a file imports of formats and kernels."""
    found = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("gmdb.format", "gmdb.kernel")):
            path = PACKAGE.joinpath(*(node.module or "").split(".")[1:])
            found.update([path.with_suffix(".py"), *(path / f"{alias.name}.py" for alias in node.names)])
        elif isinstance(node, ast.Import):
            assert not any(alias.name.startswith(("gmdb.format", "gmdb.kernel")) for alias in node.names)
    return {path for path in found if path.is_file()}


@pytest.mark.parametrize("source", KERNELS, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_all_that_a_kernel_is_made_of_counts(source: Path):
    sources = set(sources_of(source))
    assert source in sources
    for path in sources:
        assert imported(path) <= sources, path


def test_what_it_does_not_import_does_not_count():
    kernels = PACKAGE / "kernel"
    assert kernels / "indexes" / "btree.py" not in sources_of(kernels / "change" / "bulk_pages.py")


@pytest.mark.skipif(not COMPILED, reason="as plain Python, a routine is a function like any other")
def test_a_routine_that_python_calls_is_an_error_of_python():
    @routine
    def successor(number):
        return number + 1

    with pytest.raises(TypeError):
        successor(1)
