"""Key programs: which rows an index has entries of, as instructions that kernels evaluate on a row's bytes.

A program lies at the end of the entry page of its index's segment, where the map of that page ends sooner; the index
head says where.  Its instructions put truths on a stack: false, true or unknown.  A row has an entry if the last one
is true.
Not here: how conditions become programs (sql/index_programs.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any, NamedTuple

from gmdb.format.btree import INDEX_AT, INDEX_HEAD
from gmdb.format.layout import Region, layout
from gmdb.format.page import PAGE_HEAD, TAIL_SIZE, PageType, SegmentType
from gmdb.format.segment import PROGRAM_ROOM

PROGRAM_HEAD = layout(
    "key program head",
    4,
    count=("<u2", "instructions"),
    reserved=("<u2", "0"),
)

INSTRUCTION = layout(
    "key program instruction",
    8,
    operation=("u1", "see ProgramOperation"),
    order=("u1", "how values are compared: see Order"),
    which=(
        "u1",
        "bits: the results of a comparison (1 less, 2 equal, 4 greater), or truths (1 false, 2 true, 4 unknown)",
    ),
    reserved=("u1", "0"),
    column=("<u2", "a column's number in the table"),
    operand=("<u2", "where in the program a constant lies, as a row stores it; or another column's number"),
)

STACK_MAX = 24  # truths: each takes two bits of a number of 64


class ProgramOperation(IntEnum):
    """What an instruction does.  Comparisons with NULL give unknown."""

    COMPARE = 0  # put: whether comparing the column with the constant gives one of ``which``
    COMPARE_COLUMNS = 1  # put: the same, with another column
    IS_NULL = 2  # put: whether the column is NULL
    TRUTH = 3  # put the only truth of ``which``
    NOT = 4  # take one and put its negation
    AND = 5  # take two and put their conjunction
    OR = 6
    IS = 7  # take one and put whether it is one of ``which``


class Truth(IntEnum):
    FALSE = 0
    TRUE = 1
    UNKNOWN = 2


class Instruction(NamedTuple):
    """``constant``: the bytes of a constant, as a row stores them; else ``operand`` is what the layout says."""

    operation: ProgramOperation
    order: int = 0
    which: int = 0
    column: int = 0
    operand: int = 0
    constant: bytes = b""


def pack(instructions: list[Instruction]) -> bytes:
    """A program's bytes."""
    constants, at = b"", PROGRAM_HEAD.size + INSTRUCTION.size * len(instructions)
    packed = PROGRAM_HEAD.pack(count=len(instructions))
    for one in instructions:
        operand = at + len(constants) if one.operation is ProgramOperation.COMPARE else one.operand
        packed += INSTRUCTION.pack(
            operation=int(one.operation), order=one.order, which=one.which, column=one.column, operand=operand
        )
        constants += one.constant
    return packed + constants


def columns_compared(program: bytes) -> set[int]:
    """The numbers of the columns whose values a program compares."""
    found: set[int] = set()
    for n in range(PROGRAM_HEAD.at(program).count):
        step = INSTRUCTION.at(program, PROGRAM_HEAD.size + n * INSTRUCTION.size)
        if step.operation in (ProgramOperation.COMPARE, ProgramOperation.COMPARE_COLUMNS):
            found.add(int(step.column))
        if step.operation == ProgramOperation.COMPARE_COLUMNS:
            found.add(int(step.operand))
    return found


def program_at(page_size: int) -> int:
    """Where a program lies, counted from the index's head."""
    return page_size - TAIL_SIZE - PROGRAM_ROOM - INDEX_AT


def regions(page: Any) -> Iterator[Region]:
    """The program of an index on its segment's entry page, if it has one."""
    page_head, head = PAGE_HEAD.at(page), INDEX_HEAD.at(page, INDEX_AT)
    size = len(memoryview(page))
    if page_head.page_type != PageType.SEGMENT_ENTRY or page_head.seg_type not in (SegmentType.BTREE, SegmentType.HASH):
        return
    if not head.program_size or head.program_at != program_at(size):
        return
    at = INDEX_AT + head.program_at
    end = at + min(head.program_size, PROGRAM_ROOM)
    yield from PROGRAM_HEAD.regions(page, at, "program.")
    count = min(PROGRAM_HEAD.at(page, at).count, (end - at - PROGRAM_HEAD.size) // INSTRUCTION.size)
    at += PROGRAM_HEAD.size
    for n in range(count):
        yield from INSTRUCTION.regions(page, at, f"program[{n}].")
        at += INSTRUCTION.size
    if at < end:
        yield Region(at, end - at, "program.constants", bytes(memoryview(page)[at:end]).hex(), "constants")
