"""COPY: rows from files and to files of the process that runs the statement, whoever has the database.

    copy t (a, b) from 'rows.csv' with (format csv, header)
    copy (select * from t) to 'rows.txt'

It consists of statements of a connection, INSERT for parameters and SELECT, so that it means what these mean: a value
is read as a literal of its column's type is, and its column takes it as INSERT would.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from itertools import islice
from pathlib import Path
from shutil import copymode
from typing import IO, TYPE_CHECKING, Any

from gmdb.database.dbapi import Result
from gmdb.errors import (
    Error,
    GeneratedAlways,
    InvalidSyntax,
    InvalidText,
    NoSuchColumn,
    OperationalError,
    SchemaError,
    UnsupportedExpression,
)
from gmdb.format.columns import ColumnType
from gmdb.process.late_dataclasses import dataclass, field
from gmdb.process.late_patterns import late_pattern
from gmdb.sql.casts import bytes_text, read_bytes, read_text, write_element
from gmdb.sql.copy_format import Format
from gmdb.sql.dialect import tokens_of
from gmdb.sql.zones import ZONE

if TYPE_CHECKING:
    from gmdb.database.connection import Connection

Readers = Sequence[Callable[[str], Any] | None]  # of the columns
BATCH_ROWS = 20_000
_TEXTS = frozenset({"CHAR", "VARCHAR", "CLOB"})
_BYTES = frozenset({"BINARY", "VARBINARY", "BLOB"})
_LONG_ARRAYS = frozenset({"VARCHAR[]", "VARBINARY[]"})
_FLAGS = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}
_KNOWN = ("format", "header", "delimiter", "null", "quote", "escape", "force_quote", "force_null", "force_not_null")
_CHANGES = frozenset({"insert", "update", "delete", "merge"})
_QUERIES = frozenset({"select", "values", "with", "table", *_CHANGES})
_QUOTES = {"STRING": "'", "IDENTIFIER": '"'}
_NO_LINE_END = late_pattern(r"[^\n]")
_PLACE = late_pattern(r"line \d+, column \d+: ")
_OF_CSV = frozenset({"quote", "escape", "force_quote", "force_null", "force_not_null"})


# ---- what a statement says


@dataclass(slots=True)
class _Copy:
    """``source``: the table as it was written, or a query, at ``place``.  ``file``: None for stdin and stdout."""

    source: str
    place: str
    is_query: bool
    is_change: bool
    columns: list[str]
    is_from: bool
    file: str | None
    options: dict[str, Any] = field(default_factory=dict)


class _Words:
    """The words of a statement, one after the other."""

    def __init__(self, text: str) -> None:
        self.text = text = text.strip()
        self._tokens = tokens_of(text)
        self._at = 0
        self.is_change = False  # whether the query may change something
        while self._tokens and self._tokens[-1].token_type.name == "SEMICOLON":
            self._tokens.pop()

    def peek(self) -> str:
        """The next word in small letters, or sign; of what is in quotes the quote alone; empty at the end."""
        token = self._tokens[self._at] if self._at < len(self._tokens) else None
        if token is None:
            return ""
        return _QUOTES.get(token.token_type.name) or str(token.text).lower()

    def take(self) -> Any:
        if self._at >= len(self._tokens):
            raise InvalidSyntax("syntax error: COPY is not finished")
        self._at += 1
        return self._tokens[self._at - 1]

    def match(self, *words: str) -> bool:
        if self.peek() not in words:
            return False
        self._at += 1
        return True

    def need(self, *words: str) -> str:
        word = self.peek()
        token = self.take()
        if word not in words:
            raise self.unexpected(token, f"expected {' or '.join(words).upper()}")
        return word

    def literal(self, what: str) -> str:
        token = self.take()
        if token.token_type.name != "STRING":
            raise self.unexpected(token, f"{what} is a text in quotes")
        return str(token.text)

    def name(self) -> str:
        token = self.take()
        if token.token_type.name == "IDENTIFIER":
            return str(token.text)
        if not re.fullmatch(r"[^\W\d][\w$]*", str(token.text)):
            raise self.unexpected(token, "a name is missing")
        return str(token.text).lower()

    def names(self) -> list[str]:
        names = [self.name()]
        while self.match(","):
            names.append(self.name())
        self.need(")")
        return names

    def query(self) -> str:
        """What stands between parentheses, the first of which was taken, at the same place by itself."""
        first, begin, depth = self._at, self._tokens[self._at - 1].end + 1, 1
        while self.match("("):
            depth += 1
        if self.peek() not in _QUERIES:
            raise self.unexpected(self.take(), "COPY takes a query, or a change with RETURNING")
        while depth:
            token = self.take()
            depth += {"L_PAREN": 1, "R_PAREN": -1}.get(token.token_type.name, 0)
        self.is_change = any(str(one.text).lower() in _CHANGES for one in self._tokens[first : self._at])
        copy = self._tokens[0].start
        blank = "/**/" + _NO_LINE_END.sub(" ", self.text[copy + 4 : begin])  # as long as what stands there
        return self.text[:copy] + blank + self.text[begin : token.start]

    def place(self) -> str:
        """Where the next word stands, as messages say it."""
        line, column = self._position(self._tokens[min(self._at, len(self._tokens) - 1)])
        return f"line {line}, column {column}: "

    def _position(self, token: Any) -> tuple[int, int]:
        before = self.text[: token.start]
        return before.count("\n") + 1, len(before) - before.rfind("\n")

    def unexpected(self, token: Any, why: str) -> InvalidSyntax:
        return InvalidSyntax(f"syntax error near {token.text!r}: {why}", *self._position(token))


def _parsed(text: str) -> _Copy:
    words = _Words(text)
    words.need("copy")
    columns: list[str] = []
    place = words.place()
    is_query = words.match("(")
    if is_query:
        source = words.query()
    else:
        parts = [words.name()]
        while words.match("."):
            parts.append(words.name())
        source = ".".join(map(_quoted, parts))
        if words.match("("):
            columns = words.names()
    is_from = words.need("to") == "from" if is_query else words.need("from", "to") == "from"
    file = None
    if words.peek() == "program":
        raise UnsupportedExpression("COPY starts no programs: read from a file, or cursor.copy(statement, file)")
    if not words.match("stdin" if is_from else "stdout"):
        file = words.literal("the name of a file")
    copy = _Copy(source, place, is_query, words.is_change, columns, is_from, file)
    words.match("with")
    if words.match("("):
        while True:
            _take_option(words, copy.options)
            if not words.match(","):
                break
        words.need(")")
    else:
        _take_old_options(words, copy.options)
    if words.peek():
        token = words.take()
        hint = "COPY has no WHERE" if str(token.text).lower() == "where" else "nothing may follow here"
        raise words.unexpected(token, hint)
    return copy


def _take_option(words: _Words, options: dict[str, Any]) -> None:
    """One of the options in parentheses."""
    token = words.take()
    name = str(token.text).lower()
    value: Any
    if name == "format":
        value = words.literal("a format").lower() if words.peek() == "'" else words.name()
    elif name == "header":
        value = True
        if words.peek() not in (",", ")"):
            word = str(words.take().text).lower()
            value = "match" if word == "match" else _FLAGS.get(word)
            if value is None:
                raise words.unexpected(token, "HEADER is true, false or match")
    elif name in ("delimiter", "null", "quote", "escape"):
        value = words.literal(name.upper())
    elif name in ("force_quote", "force_null", "force_not_null"):
        value = "*" if words.match("*") else []
        if value != "*":
            words.need("(")
            value = words.names()
    elif name == "encoding":
        value = words.literal("ENCODING")
        if value.lower().replace("-", "").replace("_", "") not in ("utf8", "unicode"):
            raise UnsupportedExpression(f"files are UTF8; ENCODING {value} is not supported")
    else:
        raise UnsupportedExpression(f"COPY has no option {name.upper()} here: there are {', '.join(_KNOWN)}")
    if name in options:
        raise words.unexpected(token, "it is there twice")
    options[name] = value


def _take_old_options(words: _Words, options: dict[str, Any]) -> None:
    """Options as PostgreSQL had them before: ``csv header delimiter ';'``."""
    while words.peek() in ("csv", "binary", "header", "delimiter", "null", "quote", "escape"):
        name = str(words.take().text).lower()
        key = "format" if name in ("csv", "binary") else name
        if key in options:
            raise InvalidSyntax(f"syntax error: {name.upper()} is there twice")
        if key in ("format", "header"):
            options[key] = name if key == "format" else True
        else:
            words.match("as")
            options[key] = words.literal(name.upper())


def _format(copy: _Copy, columns: Sequence[str]) -> Format:
    options = copy.options
    kind = options.get("format", "text")
    if kind not in ("text", "csv"):
        hint = "Parquet files are read by gmdb import" if kind == "binary" else "There are text and csv"
        raise UnsupportedExpression(f"COPY has no format {kind}", hint=hint)
    is_csv = kind == "csv"
    for name in sorted(_OF_CSV & options.keys()):
        if not is_csv or ((name == "force_quote") == copy.is_from and name.startswith("force")):
            where = "of CSV" if not is_csv else "of COPY TO" if copy.is_from else "of COPY FROM"
            raise InvalidSyntax(f"syntax error: {name.upper()} is an option {where}")
    delimiter, null = options.get("delimiter", "," if is_csv else "\t"), options.get("null", "" if is_csv else "\\N")
    quote = options.get("quote", '"')
    escape = options.get("escape", quote)
    for name, sign in (("DELIMITER", delimiter), ("QUOTE", quote), ("ESCAPE", escape)):
        if len(sign) != 1 or ord(sign) > 0x7F or sign in "\r\n":
            raise InvalidSyntax(f"syntax error: {name} is one sign of ASCII, and no end of a line")
    if "\n" in null or "\r" in null or delimiter in null or (is_csv and quote in null):
        raise InvalidSyntax("syntax error: NULL cannot have ends of lines, the delimiter or the quote in it")
    if delimiter == quote and is_csv:
        raise InvalidSyntax("syntax error: DELIMITER and QUOTE are the same")
    if not is_csv and delimiter in "\\.abcdefghijklmnopqrstuvwxyz0123456789":
        raise InvalidSyntax(f"syntax error: DELIMITER cannot be {delimiter!r}")

    def positions(name: str) -> frozenset[int]:
        names = options.get(name, [])
        return frozenset(range(len(columns)) if names == "*" else [_position(one, columns) for one in names])

    forced = [positions(name) for name in ("force_quote", "force_null", "force_not_null")]
    return Format(is_csv, delimiter, null, quote, escape, *forced)


def _position(name: str, columns: Sequence[str]) -> int:
    if name not in columns:
        raise InvalidSyntax(f"syntax error: {name} is not one of the columns that are copied")
    return columns.index(name)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# ---- carrying it out


def run_copy(connection: Connection, text: str, file: IO[Any] | None = None) -> Result:
    """Carry out a COPY.  ``file``: what stdin or stdout is, of texts or bytes."""
    copy = _parsed(text)
    if copy.file is not None and file is not None:
        raise InvalidSyntax("the statement names a file itself: write FROM STDIN or TO STDOUT for another one")
    if copy.file is None and file is None:
        raise UnsupportedExpression(
            "STDIN and STDOUT are files of cursor.copy(statement, file); or name a file in quotes"
        )
    ((time_zone,),) = connection.execute("show time zone").fetchall()  # by which instants are written and read
    zone = ZONE.set(time_zone)
    try:
        return _from(connection, copy, file) if copy.is_from else _to(connection, copy, file)
    finally:
        ZONE.reset(zone)


def _columns(connection: Connection, copy: _Copy) -> list[str]:
    """The columns of the table that are copied: those that are listed, or all that are not generated."""
    try:
        cursor = connection.execute(f"select * from {copy.source} limit 0")
    except SchemaError as error:
        said = _PLACE.sub("", str(error), count=1)
        raise type(error)(f"{copy.place}{said}") from None
    every = [one[0] for one in cursor.description or ()]
    name = "'" + copy.source.replace("'", "''") + "'"
    if connection.execute(f"select 1 from pg_class where oid = to_regclass({name}) and relkind = 'v'").fetchone():
        hint = "Change its tables" if copy.is_from else f"Write copy (select * from {copy.source}) to"
        raise UnsupportedExpression(f"{copy.place}COPY takes tables, and {copy.source} is a view", hint=hint)
    found = connection.execute(
        f"select attname from pg_attribute where attrelid = to_regclass({name}) and attgenerated <> ''"
    )
    generated = {row[0] for row in found}
    for n, column in enumerate(copy.columns):
        if column not in every:
            raise NoSuchColumn(f"{copy.place}there is no column {column}; there are {', '.join(every)}")
        if column in generated:
            raise GeneratedAlways(f"{copy.place}column {column} is generated, which COPY does not take")
        if column in copy.columns[:n]:
            raise SchemaError(f"{copy.place}column {column} is named twice")
    return copy.columns or [column for column in every if column not in generated]


def _to(connection: Connection, copy: _Copy, file: IO[Any] | None) -> Result:
    with connection.all_or_nothing() if copy.is_change else nullcontext():
        query = copy.source
        if not copy.is_query:
            query = f"select {', '.join(map(_quoted, _columns(connection, copy)))} from {copy.source}"
        cursor = connection.cursor()
        cursor.read_document = str
        cursor.execute(query)
        if cursor.description is None:
            raise UnsupportedExpression(f"{copy.place}a change that COPY takes has RETURNING")
        names = [one[0] for one in cursor.description]
        lines = _lines(_format(copy, names), names, cursor.types, cursor, copy.options.get("header", False))
        if file is not None:
            return Result(rowcount=_written(lines, file))
        assert copy.file is not None
        try:
            return Result(rowcount=_written_whole(lines, Path(copy.file).resolve()))
        except OSError as error:
            raise OperationalError(f"copy to {copy.file}: {error.strerror or error}") from None


def _written_whole(lines: Iterator[str], path: Path) -> int:
    """Write the lines; a file has all of them or is as it was, unless it is a device or a pipe."""
    if path.exists() and not path.is_file():
        with path.open("w", encoding="utf-8", newline="") as out:
            return _written(lines, out)
    part = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.part")
    try:
        with part.open("w", encoding="utf-8", newline="") as out:
            count = _written(lines, out)
        if path.exists():
            copymode(path, part)
        part.replace(path)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
    return count


def _lines(
    layout: Format, names: Sequence[str], types: Sequence[Any], rows: Iterable[Sequence[Any]], header: Any
) -> Iterator[str]:
    """First the header or nothing, then a line for each row."""
    yield layout.line(names) if header else ""
    writers = [_writer(type_) for type_ in types]
    for row in rows:
        yield layout.line([None if value is None else write(value) for write, value in zip(writers, row, strict=True)])


def _writer(type_: Any) -> Callable[[Any], str]:
    """What writes a value as PostgreSQL's output has it."""
    if type_ is None or type_.name in _TEXTS:
        return str
    return bytes_text if type_.name == "BLOB" else write_element(type_)


def _written(lines: Iterator[str], out: IO[Any]) -> int:
    """Write the lines; returns how many there were behind the first."""
    first = next(lines)
    encode: Callable[[str], Any] = str
    try:
        out.write(first)
    except TypeError:  # it takes bytes
        encode = str.encode
        out.write(encode(first))
    count = 0
    while some := list(islice(lines, 1000)):
        out.write(encode("".join(some)))
        count += len(some)
    return count


def _from(connection: Connection, copy: _Copy, file: IO[Any] | None) -> Result:
    columns = _columns(connection, copy)
    layout = _format(copy, columns)
    cursor = connection.execute(f"select {', '.join(map(_quoted, columns))} from {copy.source} limit 0")
    loading = _Loading(connection, copy, columns, [_reader(type_) for type_ in cursor.types])
    if file is not None:
        return Result(rowcount=loading.run(layout, _texts(file)))
    assert copy.file is not None
    try:
        with Path(copy.file).open(encoding="utf-8", newline="\n") as opened:
            return Result(rowcount=loading.run(layout, opened))
    except OSError as error:
        raise OperationalError(f"copy from {copy.file}: {error.strerror or error}") from None


def _texts(file: Iterable[Any]) -> Iterator[str]:
    for line in file:
        yield line if isinstance(line, str) else bytes(line).decode()


def _reader(type_: Any) -> Callable[[str], Any] | None:
    """What reads a value of a column; None: its text is the value.  What is too long is for the column to refuse."""
    if type_ is None or type_.name in _TEXTS:
        return None
    if type_.name in _BYTES:
        return read_bytes
    return read_text(ColumnType(type_.name) if type_.name in _LONG_ARRAYS else type_)


class _Loading:
    """Rows on their way into a table."""

    def __init__(
        self,
        connection: Connection,
        copy: _Copy,
        columns: Sequence[str],
        readers: Sequence[Callable[[str], Any] | None],
    ) -> None:
        self._connection, self._columns, self._readers = connection, columns, readers
        self._name, self._header = copy.source.replace('"', ""), copy.options.get("header", False)
        marks, listed = ", ".join("?" * len(columns)), ", ".join(map(_quoted, columns))
        self._insert = f"insert into {copy.source} ({listed}) overriding system value values ({marks})"

    def run(self, layout: Format, lines: Iterable[str]) -> int:
        """All rows, or none; returns their number."""
        count = 0
        try:
            with self._connection.all_or_nothing():
                rows = layout.rows(lines)
                self._skip_header(rows)
                while some := list(islice(rows, BATCH_ROWS)):
                    self._require_even(some)
                    self._put(some)
                    count += len(some)
        except UnicodeDecodeError as error:
            raise InvalidText(f"copy {self._name}: the file is not UTF-8: {error.reason}") from None
        except InvalidText as error:
            raise _placed(error, f"copy {self._name}, ", "line ") from None
        return count

    def _skip_header(self, rows: Iterator[tuple[int, list[str | None]]]) -> None:
        if not self._header:
            return
        first = next(rows, None)
        if self._header == "match" and (first is None or first[1] != list(self._columns)):
            raise InvalidText(f"line 1: the header is not {', '.join(self._columns)}")

    def _require_even(self, rows: Sequence[tuple[int, list[str | None]]]) -> None:
        width = len(self._columns)
        for number, values in rows:
            if len(values) != width:
                raise InvalidText(f"line {number}: {len(values)} values for {width} columns")

    def _put(self, rows: Sequence[tuple[int, list[str | None]]]) -> None:
        columns = []
        for n, values in enumerate(zip(*(values for _, values in rows), strict=True)):
            read = self._readers[n]
            try:
                columns.append(values if read is None else [None if value is None else read(value) for value in values])
            except Error:
                self._blame_value(rows, n)
                raise
        sets = list(zip(*columns, strict=True))
        try:
            with self._connection.all_or_nothing():
                self._connection.executemany(self._insert, sets)
        except Error as error:
            self._blame_row(rows, sets)
            raise _placed(error, f"copy {self._name}, lines {rows[0][0]} to {rows[-1][0]}: ") from None

    def _blame_value(self, rows: Sequence[tuple[int, list[str | None]]], n: int) -> None:
        """Raise the error of the first value of a column that cannot be read, with its place."""
        read = self._readers[n]
        assert read is not None
        for number, values in rows:
            try:
                read(values[n] or "") if values[n] is not None else None
            except Error as error:
                place = f"copy {self._name}, line {number}, column {self._columns[n]}: "
                raise _placed(error, place) from None

    def _blame_row(self, rows: Sequence[tuple[int, list[str | None]]], sets: Sequence[Sequence[Any]]) -> None:
        """Raise the error of the first row that cannot be inserted, with its place; some are known only at the end."""
        for (number, _), values in zip(rows, sets, strict=True):
            try:
                self._connection.execute(self._insert, values)
            except Error as error:
                raise _placed(error, f"copy {self._name}, line {number}: ") from None


def _placed(error: Error, place: str, before: str = "") -> Error:
    """An error with the place in the file before what it says; ``before``: only if it begins so."""
    if error.args and isinstance(error.args[0], str) and error.args[0].startswith(before):
        error.args = (place + error.args[0], *error.args[1:])
    return error
