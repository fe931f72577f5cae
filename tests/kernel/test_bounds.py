"""Every loop of a kernel ends, whatever is on the pages: in which ways it may be seen to, and that all are.

A loop is one of these:

- ``for ... in range(...)``.  What a page, or anything else outside of the kernel, says of how many rounds there are may
  be a lie.  So a field that is read in ``range(...)`` is one of ``FIELDS``, whose bounds are known; what a ``load``
  reads there is taken by ``min`` with something that is known.
- ``while``, over something that counts: a comparison in its condition is about a name that every way through its body
  moves by a constant, towards the end, and that nothing else sets.
- ``while ...:  # ends: why``, where a reader can see it and this test cannot.

There is no ``while True``, and no ``while`` that follows links from page to page: that is a ``for`` over as many links
as there can be (``pages_at_most``, ``chain_max``, ``LEVELS_MAX``), behind which it says DAMAGED.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

import gmdb.kernel

SOURCES = sorted(Path(gmdb.kernel.__file__).parent.rglob("*.py"))
DECORATORS = {"kernel", "long_kernel", "routine"}
REASON = re.compile(r"while .*:  # ends: \w+ .+")
LINKS = re.compile(r"NO_PAGE|NO_SLOT|NO_LOCK")

FIELDS = {
    # of pages: checked at the first touch of a page (soundness.py)
    "slot_count": "the directory of slots fits the page",
    "map_count": "no more than the page has room for",
    # of memory, which whoever calls the kernel has set
    "column_count": "of a table's definition, or of an index's head: at most KEY_COLUMNS_MAX",
    "index_count": "at most INDEXES_MAX",
    "lob_count": "columns of a table",
    "load_count": "entries of the table of loads",
    "page_count": "pages that a device has in memory, or that were listed for a scan",
    "run_count": "runs in memory",
    "count": "entries of a run, or pieces of a merge",
    "at": "of a run's entries",
    "done": "rows of a block",
    "length": "bytes of a buffer",
    "trusted": "chooses between two constants",
}
LOADS = {"load_u8", "load_u16", "load_u32", "load_i32", "load_i64"}
KNOWN_LOADS = {"load_u16(patch + COL_COUNT_AT)": "at most MAX_COLUMNS: image_end, or whoever made the patch"}


# ---- loops that count


def moved(statement: ast.stmt, counter: str) -> int:
    """By which constant a statement moves the counter, if only the sign counts; 0 if it does not."""
    if not isinstance(statement, ast.AugAssign) or ast.unparse(statement.target) != counter:
        return 0
    if not isinstance(statement.value, ast.Constant) or not statement.value.value > 0:
        return 0
    if isinstance(statement.op, ast.RShift):
        return -1
    return {ast.Add: 1, ast.Sub: -1}.get(type(statement.op), 0)


def always_moves(body: list[ast.stmt], counter: str, sign: int) -> bool:
    """Whether every way through the statements that comes back to the loop's head has moved the counter."""
    for statement in body:
        if moved(statement, counter) == sign or isinstance(statement, ast.Return | ast.Break):
            return True
        if isinstance(statement, ast.Continue):
            return False
        if isinstance(statement, ast.If):
            if always_moves(statement.body, counter, sign) and always_moves(statement.orelse, counter, sign):
                return True
            ways = [statement.body, statement.orelse]
            if any(goes_back(way) and not always_moves(way, counter, sign) for way in ways):
                return False
    return False


def goes_back(body: list[ast.stmt]) -> bool:
    """Whether there is a ``continue`` of this loop among the statements."""
    return any(isinstance(node, ast.Continue) for statement in body for node in ast.walk(statement))


def is_set_otherwise(loop: ast.While, counter: str) -> bool:
    """Whether something in the loop gives the counter a value, other than by moving it."""
    nodes = list(ast.walk(loop))
    moves = [node for node in nodes if isinstance(node, ast.stmt) and moved(node, counter)]
    names = [node for node in nodes if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store)]
    stores = [node for node in names if ast.unparse(node) == counter]
    return len(stores) > len(moves)


def conditions(test: ast.expr) -> Iterator[ast.expr]:
    """The parts of a condition, each of which ends the loop."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        for part in test.values:
            yield from conditions(part)
    else:
        yield test


def counts(loop: ast.While) -> bool:
    """Whether a comparison of the loop's condition comes to its end."""
    for part in conditions(loop.test):
        if isinstance(part, ast.Name):  # while bits: bits >>= 2
            if always_moves(loop.body, part.id, -1) and not is_set_otherwise(loop, part.id):
                return True
            continue
        if not isinstance(part, ast.Compare) or len(part.ops) != 1:
            continue
        sign = {ast.Lt: 1, ast.LtE: 1, ast.Gt: -1, ast.GtE: -1}.get(type(part.ops[0]), 0)
        names = {ast.unparse(node) for node in ast.walk(part.left) if isinstance(node, ast.Name | ast.Attribute)}
        if sign and any(always_moves(loop.body, name, sign) and not is_set_otherwise(loop, name) for name in names):
            return True
    return False


# ---- what is wrong with a source


def problems(source: str) -> list[str]:
    """The loops of a file's kernels of which it cannot be seen that they end."""
    lines, found = source.splitlines(), []
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef):
            continue
        if not DECORATORS.intersection(ast.unparse(decorator) for decorator in function.decorator_list):
            continue
        for node in ast.walk(function):
            where = f"{function.name}, line {getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.While):
                is_reasoned = REASON.search(lines[node.lineno - 1]) and not LINKS.search(ast.unparse(node.test))
                if isinstance(node.test, ast.Constant) or not (is_reasoned or counts(node)):
                    found.append(f"{where}: while {ast.unparse(node.test)}")
            elif isinstance(node, ast.For):
                found += [f"{where}: {what}" for what in unknown(node.iter)]
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == function.name:
                found.append(f"{where}: it calls itself")
    return found


def unknown(rounds: ast.expr) -> Iterator[str]:
    """What in ``range(...)`` may be any number."""
    if not isinstance(rounds, ast.Call) or ast.unparse(rounds.func) != "range":
        yield f"for over {ast.unparse(rounds)}"
        return
    pending = list(rounds.args)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "min":
            continue  # with what a reader knows
        if isinstance(node, ast.Attribute) and node.attr not in FIELDS:
            yield f"field {node.attr}"
        if isinstance(node, ast.Call) and ast.unparse(node.func) in LOADS and ast.unparse(node) not in KNOWN_LOADS:
            yield ast.unparse(node)
        pending += ast.iter_child_nodes(node)  # type: ignore[arg-type]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_every_loop_of_a_kernel_has_a_bound(source: Path) -> None:
    assert not problems(source.read_text())


WITH_BOUND = """
while i < count:
    i += 1
---
while i + 8 <= count and load_i64(a + i) == load_i64(b + i):
    i += 8
---
while bits:
    if bits & 3:
        total += 1
    bits >>= 2
---
while slot < count:
    if slot & 1:
        slot += 2
        continue
    elif is_over(slot):
        break
    slot += 1
---
while state.pool > 0:
    state.pool -= 1
    if is_good(state.pool):
        return state.pool
---
while low < high:  # ends: they come closer with every look
    low, high = closer(low, high)
---
for slot in range(node.slot_count):
    pass
---
for _ in range(min(load_u32(body), MAP_ENTRIES_MAX)):
    pass
"""
WITHOUT_BOUND = """
while True:
    i += 1
---
while True:  # ends: it returns sooner or later
    return 1
---
while page_id != NO_PAGE:
    page_id = next_of(page_id)
---
while page_id != NO_PAGE:  # ends: lists do
    page_id = next_of(page_id)
---
while low < high:
    low, high = closer(low, high)
---
while low < high:  # ends
    low, high = closer(low, high)
---
while i < count:
    if is_right(i):
        i += 1
---
while i < count:
    if is_right(i):
        continue
    i += 1
---
while i < count:
    i -= 1
---
while i < count:
    i += 1
    i = first
---
while i < count:
    i += length_of(i)
---
while i != count:
    i += 1
---
for _ in range(head.free_page_count):
    pass
---
for _ in range(load_u32(body)):
    pass
---
loop(i)
"""


def function(body: str) -> str:
    return "@routine\ndef loop(i):\n" + "\n".join("    " + line for line in dedent(body).strip().splitlines())


@pytest.mark.parametrize("body", WITH_BOUND.split("---"))
def test_loops_that_are_seen_to_end(body: str) -> None:
    assert not problems(function(body))


@pytest.mark.parametrize("body", WITHOUT_BOUND.split("---"))
def test_loops_that_are_not(body: str) -> None:
    assert problems(function(body))
