"""Conditions of partial indexes as key programs, which kernels evaluate (format/key_program.py).

A program compares columns with constants, as they are stored, and with one another.  What says more than that is
refused: it can be kept in a column of its own, and the index be about that.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any, NoReturn

from sqlglot import exp

from gmdb.errors import UnsupportedExpression
from gmdb.format.btree import Order
from gmdb.format.columns import Column as StoredColumn
from gmdb.format.key_program import STACK_MAX, Instruction, ProgramOperation, Truth, pack
from gmdb.format.segment import PROGRAM_ROOM
from gmdb.sql import tree
from gmdb.sql.bind.of_rows import bind_condition, columns_of
from gmdb.sql.bind.scope import Scope
from gmdb.sql.dialect import place
from gmdb.sql.plan.explain import written
from gmdb.sql.plan.paths import equal_key, high_end, low_end
from gmdb.sql.plan.terms import COMPARISONS, is_call, unconverted
from gmdb.sql.statements.stored_texts import written as kept_text
from gmdb.sql.tree import Expression
from gmdb.tables.access.indexes import order_of

_RESULTS = {"<": 1, "=": 2, ">": 4, "<=": 3, ">=": 6, "<>": 5}
_TURNED = {**COMPARISONS, "<>": "<>"}
_ALIKE = (  # types whose values are compared exactly by keys of the first one
    (("SMALLINT", "INT", "BIGINT", "DECIMAL"), ("SMALLINT", "INT", "BIGINT", "DECIMAL")),
    (("DATE", "TIMESTAMP"), ("DATE", "TIMESTAMP")),
    *(((name,), (name,)) for name in ("REAL", "DOUBLE", "BOOLEAN", "TIME", "TIMESTAMPTZ", "INTERVAL", "UUID")),
    *(((name,), (name,)) for name in ("VARCHAR", "CHAR", "BINARY", "VARBINARY")),
)
_NOTHING = {Order.WORD: bytes(4), Order.LONG: bytes(8), Order.DOUBLE: bytes(8), Order.WIDE: b"\x10\0" + bytes(16)}
_NOTHING |= {Order.REAL: bytes(4), Order.INTERVAL: b"\x10\0" + bytes(16)}


def program_of(node: exp.Expr, table: str, columns: Sequence[StoredColumn]) -> tuple[str, str]:
    """A condition's text, for the catalog to keep, and its program, in base 64."""
    own = columns_of(columns)
    condition = bind_condition(node, Scope.of_table(table, own), "the condition of an index")
    compiler = _Compiler(dict(zip(own, columns, strict=True)), own, node)
    compiler.truth(condition, 1)
    program = pack(compiler.steps)
    if len(program) > PROGRAM_ROOM:
        message = f"the condition of an index has room for {PROGRAM_ROOM} bytes, and this one takes {len(program)}"
        raise UnsupportedExpression(message, *place(node))
    return kept_text(node), b64encode(program).decode()


class _Compiler:
    """Instructions for the parts of a condition, in the order in which kernels follow them."""

    def __init__(self, stored: dict[tree.Column, StoredColumn], own: Sequence[tree.Column], node: exp.Expr) -> None:
        self._stored, self._numbers, self._node = stored, {column: n for n, column in enumerate(own)}, node
        self.steps: list[Instruction] = []

    def truth(self, part: Expression, depth: int) -> None:
        """Instructions that put a condition's truth on the stack, on which there are ``depth`` truths then."""
        if depth > STACK_MAX:
            self._refuse(part, "is nested too deep")
        if isinstance(part, tree.Constant):
            truth = Truth.UNKNOWN if part.value is None else Truth(int(part.value))
            self._put(ProgramOperation.TRUTH, which=1 << truth)
        elif isinstance(part, tree.Reference):
            self._compare(part.column, "=", tree.Constant(part.type, True), part)
        elif isinstance(part, tree.Junction):
            for n, one in enumerate(part.parts):
                self.truth(one, depth + (n > 0))
                if n:
                    self._put(ProgramOperation.OR if part.absorbing else ProgramOperation.AND)
        elif is_call(part, "not"):
            self.truth(part.arguments[0], depth)  # type: ignore[attr-defined]
            self._put(ProgramOperation.NOT)
        elif is_call(part, "is_true", "is_false"):
            self.truth(part.arguments[0], depth)  # type: ignore[attr-defined]
            which = Truth.TRUE if is_call(part, "is_true") else Truth.FALSE
            self._put(ProgramOperation.IS, which=1 << which)
        elif is_call(part, "is_null"):
            self._is_null(part.arguments[0], depth)  # type: ignore[attr-defined]
        elif is_call(part, *_RESULTS):
            self._comparison(part)  # type: ignore[arg-type]
        else:
            self._refuse(part)

    def _put(self, operation: ProgramOperation, **fields: Any) -> None:
        self.steps.append(Instruction(operation, **fields))

    def _is_null(self, value: Expression, depth: int) -> None:
        inner = unconverted(value)
        if isinstance(inner, tree.Reference):
            self._put(ProgramOperation.IS_NULL, column=self._numbers[inner.column])
        elif value.type.name == "BOOLEAN":
            self.truth(value, depth)
            self._put(ProgramOperation.IS, which=1 << Truth.UNKNOWN)
        else:
            self._refuse(value)

    def _comparison(self, part: tree.Call) -> None:
        symbol, (left, right) = part.operation.name, part.arguments
        one, other = unconverted(left), unconverted(right)
        if isinstance(one, tree.Reference) and isinstance(right, tree.Constant):
            self._compare(one.column, symbol, right, part)
        elif isinstance(other, tree.Reference) and isinstance(left, tree.Constant):
            self._compare(other.column, _TURNED[symbol], left, part)
        elif isinstance(one, tree.Reference) and isinstance(other, tree.Reference):
            self._compare_columns(one.column, symbol, other.column, part)
        else:
            self._refuse(part)

    def _compare_columns(self, one: tree.Column, symbol: str, other: tree.Column, part: Expression) -> None:
        types = [self._stored[column].type for column in (one, other)]
        if types[0] != types[1] and {type_.name for type_ in types} != {"VARCHAR"}:
            self._refuse(part, f"compares {types[0]} with {types[1]}")
        if not types[0].may_be_key:
            self._refuse(part)
        numbers = {"column": self._numbers[one], "operand": self._numbers[other]}
        order = int(order_of(self._stored[one]))
        self._put(ProgramOperation.COMPARE_COLUMNS, order=order, which=_RESULTS[symbol], **numbers)

    def _compare(self, column: tree.Column, symbol: str, value: tree.Constant, part: Expression) -> None:
        stored = self._stored[column]
        if not stored.type.may_be_key:
            self._refuse(part)
        if value.value is None:
            self._put(ProgramOperation.TRUTH, which=1 << Truth.UNKNOWN)
            return
        if not any(stored.type.name in own and value.type.name in others for own, others in _ALIKE):
            self._refuse(part, f"compares {stored.type} with {value.type}")
        which, key = self._key(stored, symbol, value.value, part)
        order = order_of(stored)
        if key is None:
            constant = _NOTHING.get(order, bytes(2))
        else:
            raw = stored.type.encode(key)
            constant = len(raw).to_bytes(2, "little") + raw if stored.type.size_code == 3 else raw
        number = self._numbers[column]
        self._put(ProgramOperation.COMPARE, order=int(order), which=which, column=number, constant=constant)

    def _key(self, stored: StoredColumn, symbol: str, value: Any, part: Expression) -> tuple[int, Any]:
        """Which results of comparing the column with a key make the comparison true; None stands for any key."""
        if symbol in ("=", "<>"):
            key = equal_key(stored.type, value)
            return (0 if symbol == "=" else 7, None) if key is None else (_RESULTS[symbol], key)
        if stored.type.name in ("CHAR", "BINARY"):
            self._refuse(part, f"is about the order of {stored.type}")
        is_low = symbol[0] == ">"
        end = (low_end if is_low else high_end)(stored.type, value, len(symbol) == 1)
        if end is None:
            return 0, None
        if end[0] is None:
            self._refuse(part, "has a constant that the column cannot hold")
        return (4 if is_low else 1) | (0 if end[1] else 2), end[0]

    def _refuse(self, part: Expression, why: str = "") -> NoReturn:
        what = f"{written(part)} {why}" if why else f"{written(part)} is more than that"
        raise UnsupportedExpression(
            f"the condition of an index compares columns with constants of their type, or with one another; {what}",
            *place(self._node),
            "Keep what it says in a column of its own",
        )
