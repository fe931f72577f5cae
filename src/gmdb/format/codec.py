"""Rows of one table into bytes and back, fast.

Does what ``encode_row`` and ``decode_row`` do, by functions that are written for the columns at hand: one for rows
without NULLs to be made, one for each pattern of size codes that rows to be read have shown.  A value that does not
fit, or bytes that are not a value, go through the general functions, for the error that they raise.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Container, Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from types import CodeType
from typing import Any

from gmdb.errors import DataError
from gmdb.format.columns import (
    EPOCH,
    EPOCH_DATE,
    MICROSECOND,
    UTC_EPOCH,
    Column,
    Kind,
    microseconds_of,
    time_of,
)
from gmdb.format.lob import TEXT_LOCATOR, LobPlace, Locator, is_text_locator
from gmdb.format.row import BITS_AT, COL_COUNT_AT, UNLOCKED, SizeCode, decode_row, encode_row, header_size

LEARNED_AFTER = 8  # rows of a pattern, which take the general way
PATTERNS_MAX = 64  # decoders that a codec keeps; rows of further patterns take the general way
CODES_MAX = 1024  # compiled functions that a process keeps, for all codecs
_NOT_SO = "(DataError, ValueError, TypeError, AttributeError, OverflowError, IndexError, struct.error)"
_GIVEN: dict[str, Any] = {
    "DataError": DataError,
    "struct": struct,
    "date": date,
    "datetime": datetime,
    "time": time,
    "timedelta": timedelta,
    "UTC": UTC,
    "EPOCH": EPOCH,
    "UTC_EPOCH": UTC_EPOCH,
    "microseconds_of": microseconds_of,
    "time_of": time_of,
    "FIRST_DAY": EPOCH_DATE.toordinal(),
    "ON_PAGES": int(LobPlace.ON_PAGES),
    "LOCATOR_SIZE": TEXT_LOCATOR.size,
    "is_locator": is_text_locator,
    "MICROSECOND": MICROSECOND,
}
# Of types that are stored as a number: its form, what a value must be, how it becomes the number, and back.
_NUMBERS = {
    "INT": ("i", "type({v}) is int", "{v}", "{v}"),
    "SMALLINT": ("i", "type({v}) is int and -32768 <= {v} <= 32767", "{v}", "{v}"),
    "BIGINT": ("q", "type({v}) is int", "{v}", "{v}"),
    "REAL": ("f", "(type({v}) is float or type({v}) is int)", "{v}", "{v}"),
    "DOUBLE": ("d", "(type({v}) is float or type({v}) is int)", "{v}", "{v}"),
    "BOOLEAN": ("i", "type({v}) is bool", "{v}", "{v} != 0"),
    "DATE": ("i", "type({v}) is date", "{v}.toordinal() - FIRST_DAY", "date.fromordinal({v} + FIRST_DAY)"),
    "TIMESTAMP": (
        "q",
        "type({v}) is datetime and {v}.tzinfo is None",
        "({v} - EPOCH) // MICROSECOND",
        "EPOCH + timedelta(0, 0, {v})",
    ),
    "TIMESTAMPTZ": (
        "q",
        "type({v}) is datetime and {v}.tzinfo is UTC",
        "({v} - UTC_EPOCH) // MICROSECOND",
        "UTC_EPOCH + timedelta(0, 0, {v})",
    ),
    "TIME": ("q", "type({v}) is time and {v}.tzinfo is None", "microseconds_of({v})", "time_of({v})"),
}


_WIDTHS = {Kind.DECIMAL_WORD: 4, Kind.DECIMAL_LONG: 8, Kind.DECIMAL_WIDE: 16, Kind.WIDE: 16}  # of what encode gives


class Unfinished(tuple[Any, ...]):
    """A row's values, some of which are Locators of large objects."""


class RowCodec:
    """Rows, or patches, of a fixed list of columns.

    ``gap``: zero bytes between header and values, as in keys.  ``wanted``: the columns that the caller looks
    at; None or the value stands in the place of any other.

    A row whose wanted values are not all in it is decoded as Unfinished.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        numbers: Sequence[int] | None = None,
        gap: int = 0,
        wanted: Container[int] | None = None,
    ) -> None:
        self._columns = tuple(columns)
        self._wanted = range(len(self._columns)) if wanted is None else wanted
        self._head = header_size(len(columns))
        self._gap = gap
        self._apart = [n for n, column in enumerate(columns) if column.type.may_be_apart and n in self._wanted]
        self._tail = b"".join(n.to_bytes(2, "little") for n in numbers or ())
        self._decoders: dict[bytes, Callable[[bytes], tuple[Any, ...]]] = {}
        self._seen: dict[bytes, int] = {}  # rows of patterns that have no decoder yet
        self.encode: Callable[[Sequence[Any]], bytes] = self._make_encode()
        self.decode: Callable[[bytes], tuple[Any, ...]] = self._make_decode()

    def encode_only(self) -> Callable[[Any], bytes]:
        """``encode`` for a single column, given its value instead of a list of one."""
        return self._make_encoder("v0")

    def _make_encode(self) -> Callable[[Sequence[Any]], bytes]:
        made: Callable[[Any], bytes] | None = None

        def encode(values: Sequence[Any]) -> bytes:
            """The bytes of a row.  The function that writes it is made for the first: many tables are only read."""
            nonlocal made
            if made is None:
                made = self._make_encoder("values")
            return made(values)

        return encode

    def _make_decode(self) -> Callable[[bytes], tuple[Any, ...]]:
        find, head, learn = self._decoders.get, self._head, self._learn

        def decode(row: bytes) -> tuple[Any, ...]:
            """The values of a row."""
            made = find(row[COL_COUNT_AT:head])
            return made(row) if made is not None else learn(row)

        return decode

    def _learn(self, row: bytes) -> tuple[Any, ...]:
        """Decode a row of a pattern of which few rows were seen yet; several are worth a decoder."""
        pattern = row[COL_COUNT_AT : self._head]
        seen = self._seen.get(pattern, 0) + 1
        if len(self._seen) >= PATTERNS_MAX or seen >= LEARNED_AFTER:
            self._seen.clear()
        if seen < LEARNED_AFTER:
            self._seen[pattern] = seen
            return self._decode_slowly(row)
        bits = int.from_bytes(pattern[2:], "little")
        codes = [bits >> 2 * n & 3 for n in range(len(self._columns))]
        fits = all(code in (0, column.type.size_code) for code, column in zip(codes, self._columns, strict=True))
        if fits and int.from_bytes(pattern[:2], "little") == len(codes) and len(self._decoders) < PATTERNS_MAX:
            self._decoders[pattern] = self._make_decoder(codes)
        return self._decode_slowly(row)

    def _decode_slowly(self, row: bytes) -> tuple[Any, ...]:
        values = decode_row(self._columns, row)
        if any(values[n].__class__ is Locator for n in self._apart):
            return Unfinished(values)
        return values

    def _encode_slowly(self, values: Sequence[Any]) -> bytes:
        """Rows with NULLs, and values that do not fit: it raises a DataError that names the column."""
        row = encode_row(self._columns, values)
        if not self._gap:
            return row + self._tail
        size = (len(row) + self._gap).to_bytes(2, "little")
        return row[:4] + size + row[COL_COUNT_AT : self._head] + bytes(self._gap) + row[self._head :]

    def _make_encoder(self, parameter: str) -> Callable[[Any], bytes]:
        """A function that writes rows without NULLs."""
        writer = _Encoder(self._columns, self._head, self._gap, self._tail)
        values = "".join(f"v{n}, " for n in range(len(self._columns)))
        unpacking = [f"({values}) = values"] if parameter == "values" else []
        slowly = f"slowly({'values' if parameter == 'values' else '[v0]'})"
        lines = [*unpacking, f"if {writer.condition}:", *("    " + line for line in writer.lines)]
        return _define(f"encode({parameter})", lines, slowly, {**writer.names, "slowly": self._encode_slowly})

    def _make_decoder(self, codes: Sequence[int]) -> Callable[[bytes], tuple[Any, ...]]:
        """A function that reads rows whose columns have these size codes."""
        reader = _Decoder(self._columns, codes, self._head, self._wanted)
        names = {**reader.names, "slowly": self._decode_slowly}
        return _define("decode(row)", reader.lines, "slowly(row)", names)


def _define(signature: str, lines: Sequence[str], otherwise: str, names: dict[str, Any]) -> Any:
    """A function of some lines, the last of which returns; whatever does not fit goes the other way."""
    body = "".join(f"        {line}\n" for line in lines)
    text = f"def {signature}:\n    try:\n{body}    except {_NOT_SO}:\n        pass\n    return {otherwise}\n"
    scope = {**_GIVEN, **names}
    exec(_code(text), scope)
    return scope[signature.partition("(")[0]]


@lru_cache(CODES_MAX)
def _code(text: str) -> CodeType:
    """The system tables of every database that is opened have the same, and many sessions the same table."""
    return compile(text, "<row codec>", "exec")


class _Encoder:
    """The lines that write a row: runs of numbers are packed together, bytes go in between."""

    def __init__(self, columns: Sequence[Column], head: int, gap: int, tail: bytes) -> None:
        self.names: dict[str, Any] = {"tail": tail}
        self.lines: list[str] = []
        self._conditions: list[str] = []
        bits = sum(column.type.size_code << 2 * n for n, column in enumerate(columns))
        words = [bits >> 32 * n & 0xFFFF_FFFF for n in range((head - BITS_AT) // 4)]
        self._form = f"<IHH{len(words)}I{gap}x"
        self._fields = [str(UNLOCKED), "size", str(len(columns)), *map(str, words)]
        self._parts: list[str] = []
        self._sizes: list[str] = []
        self._fixed = head + gap
        for n, column in enumerate(columns):
            self._add(column, n)
        self._pack()
        parts = " + ".join([*self._parts, "tail"] if tail else self._parts)
        size = " + ".join([str(self._fixed), *self._sizes])
        self.lines += [f"size = {size}", f"return {parts}"]
        self.condition = " and ".join(self._conditions) or "True"

    def _add(self, column: Column, n: int) -> None:
        type_, v = column.type, f"v{n}"
        if type_.name in _NUMBERS:
            form, condition, number, _ = _NUMBERS[type_.name]
            self._conditions.append(condition.format(v=v))
            self._number(form, number.format(v=v))
        elif type_.kind in _WIDTHS:
            self.names[f"encode{n}"] = type_.encode
            self._conditions.append(f"{v} is not None")
            width = _WIDTHS[type_.kind]
            if width == 16:
                self._number("H", "16")
            self._number(f"{width}s", f"encode{n}({v})")
        elif type_.is_lob or type_.is_array or type_.is_json:
            self.names[f"encode{n}"] = type_.encode
            self._conditions.append(f"{v} is not None")
            self.lines.append(f"b{n} = encode{n}({v})")
            self._variable(n)
        else:
            self._bytes(column, n)

    def _bytes(self, column: Column, n: int) -> None:
        """Text, which has a NUL behind it, or bytes."""
        is_text, length = column.type.kind is Kind.TEXT, column.type.in_row_max
        ending = int(is_text)
        self._conditions.append(f"type(v{n}) is {'str' if is_text else 'bytes'}")
        self.lines.append(f"b{n} = v{n}{'.encode()' if is_text else ''}")
        self.lines.append(f"if len(b{n}) > {length}: raise ValueError")
        if column.type.may_be_long and not is_text:
            self.lines.append(f"if len(b{n}) == LOCATOR_SIZE and is_locator(b{n}): raise ValueError")
        if column.type.padding:
            self.lines.append(f"b{n} = b{n}.ljust({length}, {column.type.padding!r})")
        self._variable(n, ending)

    def _variable(self, n: int, ending: int = 0) -> None:
        """A length and bytes, with zeros behind them that count."""
        self._number("H", f"len(b{n}) + {ending}")
        self._pack()
        self._parts.append(f"b{n}")
        self._sizes.append(f"len(b{n})")
        self._form += "x" * ending
        self._fixed += ending

    def _number(self, form: str, value: str) -> None:
        self._form += form
        self._fields.append(value)
        self._fixed += struct.calcsize("<" + form)

    def _pack(self) -> None:
        """Write what was collected."""
        if self._form != "<":
            name = f"pack{len(self._parts)}"
            self.names[name] = struct.Struct(self._form).pack
            self._parts.append(f"{name}({', '.join(self._fields)})")
        self._form, self._fields = "<", []


class _Decoder:
    """The lines that read a row: runs of numbers are unpacked together, with the length of what comes behind."""

    def __init__(self, columns: Sequence[Column], codes: Sequence[int], head: int, wanted: Container[int]) -> None:
        self.names: dict[str, Any] = {}
        self.lines: list[str] = []
        self._form = "<"
        self._targets: list[str] = []
        self._base, self._skip = "", head  # where the run begins: the end of bytes before it, if any, and a distance
        values = ["None"] * len(columns)
        end = max((n for n in range(len(columns)) if n in wanted), default=-1) + 1
        for n, (column, code) in enumerate(zip(columns[:end], codes[:end], strict=True)):
            if code != SizeCode.NULL:
                values[n] = self._read(column, n) if n in wanted else self._pass_over(column, n)
        self._unpack()
        self.lines.append(f"return ({', '.join(values)},)" if values else "return ()")

    def _read(self, column: Column, n: int) -> str:
        """Have a column's value read; returns the expression for it."""
        type_ = column.type
        if type_.name in _NUMBERS:
            form, _, _, value = _NUMBERS[type_.name]
            self._number(form, f"v{n}")
            return value.format(v=f"v{n}")
        self.names[f"decode{n}"] = type_.decode
        if type_.size_code != SizeCode.VARIABLE:
            self._number(f"{4 * type_.size_code}s", f"v{n}")
            return f"decode{n}(v{n})"
        self._number("H", f"n{n}")
        start = self._unpack()
        self.lines += [f"s{n} = {start}", f"e{n} = s{n} + n{n}"]
        self._base, self._skip = f"e{n}", 0
        if type_.kind is Kind.TEXT:
            return f"row[s{n}:e{n} - 1].decode()"  # a Locator is not UTF-8, and goes the general way
        if type_.is_lob:
            self.lines.append(f"if row[s{n}] == ON_PAGES: raise ValueError")
        if type_.may_be_long:
            self.lines.append(f"if n{n} == LOCATOR_SIZE and is_locator(row[s{n}:e{n}]): raise ValueError")
        if type_.name == "VARBINARY":
            return f"row[s{n}:e{n}]"
        return f"decode{n}(row[s{n}:e{n}])"

    def _pass_over(self, column: Column, n: int) -> str:
        """Have a column's value left out."""
        type_ = column.type
        if type_.size_code != SizeCode.VARIABLE:
            self._form += f"{4 * type_.size_code}x"
            return "None"
        self._number("H", f"n{n}")
        start = self._unpack()
        self.lines.append(f"e{n} = {start} + n{n}")
        self._base, self._skip = f"e{n}", 0
        return "None"

    def _number(self, form: str, target: str) -> None:
        self._form += form
        self._targets.append(target)

    def _unpack(self) -> str:
        """Read what was collected; returns where it ends."""
        start = f"{self._base} + {self._skip}" if self._base else str(self._skip)
        self._skip += struct.calcsize(self._form)
        if self._targets:
            name = f"unpack{len(self.names)}"
            self.names[name] = struct.Struct(self._form).unpack_from
            self.lines.append(f"({', '.join(self._targets)},) = {name}(row, {start})")
        self._form, self._targets = "<", []
        return f"{self._base} + {self._skip}" if self._base else str(self._skip)
