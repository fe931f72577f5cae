"""PEP 249: cursors.

A cursor has its connection run a statement and hands out the result, as tuples or as Arrow.
Not here: type objects (database/pep249.py), what statements mean (sql/), or where they run (in this process, or in
an owner).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from gmdb.errors import InterfaceError, ProgrammingError
from gmdb.format.columns import ColumnType
from gmdb.process.late_imports import pyarrow as pa
from gmdb.process.signals import Flattened, HeldIterator, held
from gmdb.tables.arrow.arrow_types import arrow_type, python_columns

if TYPE_CHECKING:
    import pandas
    import polars

Parameters = Sequence[Any] | Mapping[str, Any]
Row = tuple[Any, ...]
SHOWN_ROWS, SHOWN_TEXT = 20, 200  # rows that a notebook shows, and characters of a value


class Connected(Protocol):
    """A connection, as far as its cursors need it."""

    @property
    def closed(self) -> bool: ...


class Statements(Protocol):
    """What runs SQL on a connection.

    ``quick``: of some texts, a function that may run them at once; if it returns None, it has done nothing.
    """

    @property
    def quick(self) -> Mapping[str, Callable[[Parameters], Result | None]]: ...

    def run(self, text: str, parameters: Parameters) -> Result: ...

    def run_many(self, text: str, sets: Any) -> Result: ...

    def split(self, script: str) -> list[str]: ...

    def copy(self, connection: Any, text: str, file: Any) -> Result: ...


def run_at_once(statements: Statements, text: str, parameters: Parameters) -> Result:
    """Run a statement, by its quick way if that does; ``Cursor.execute`` has this in place."""
    quick = statements.quick.get(text)
    result = None if quick is None else quick(parameters)
    return statements.run(text, parameters) if result is None else result


class Result(NamedTuple):
    """The result of a statement: the number of rows that it changed, or rows, one by one or as batches."""

    names: tuple[str, ...] = ()
    types: tuple[ColumnType | None, ...] = ()
    rowcount: int = -1
    rows: Iterator[Row] | None = None
    reader: pa.RecordBatchReader | None = None
    last_id: int | None = None  # the number of the last row that an INSERT added
    documents: tuple[int, ...] | None = None  # the columns of JSON, whose texts ``rows`` has; None: its types say it

    @property
    def has_rows(self) -> bool:
        return self.rows is not None or self.reader is not None

    def as_reader(self) -> pa.RecordBatchReader:
        """The rows as batches."""
        if self.reader is not None:
            return self.reader
        return _batched(self.schema, self.rows if self.rows is not None else iter(()))

    @property
    def schema(self) -> pa.Schema:
        types = [pa.null() if type_ is None else arrow_type(type_) for type_ in self.types]
        return pa.schema(list(zip(self.names, types, strict=True)))


_NOTHING = Result()


def documents_in(types: Iterable[ColumnType | None]) -> tuple[int, ...]:
    """Which columns are documents of JSON."""
    return tuple(n for n, type_ in enumerate(types) if type_ is not None and type_.is_json)


def _with_documents(documents: Sequence[int], read: Callable[[str], Any] | None) -> Callable[[Row], Row]:
    """A function that has documents as ``read`` gives them, or as json.loads does, instead of their texts."""
    if read is None:
        from gmdb.format.json_text import value_of_text

        read = value_of_text
    value_of = read

    def convert(row: Row) -> Row:
        values = list(row)
        for n in documents:
            if values[n] is not None:
                values[n] = value_of(values[n])
        return tuple(values)

    return convert


def rows_of(reader: pa.RecordBatchReader) -> Iterator[Row]:
    """Batches, row by row."""
    return Flattened.of(HeldIterator(map(rows_in, reader), held))


def rows_in(batch: pa.RecordBatch) -> Iterable[Row]:
    """A batch, row by row."""
    columns = python_columns(batch)
    return zip(*columns, strict=True) if columns else iter([()] * len(batch))


class Cursor:
    """One statement at a time, and its result."""

    arraysize = 1
    read_document: Callable[[str], Any] | None = None  # what makes values of texts of JSON, instead of json.loads
    _closed = False
    _result = _NOTHING
    _rows: Iterator[Row] | None = None
    _texts: Iterator[Row] | None = None  # what ``_rows`` makes documents of, if there are some

    def __init__(self, connection: Connected, statements: Statements) -> None:
        self.connection = connection
        self._statements = statements
        self._quick = statements.quick

    def __repr__(self) -> str:
        if self._closed:
            what = "closed"
        elif self._result.has_rows:
            what = ", ".join(
                f"{name} {type_}" for name, type_ in zip(self._result.names, self._result.types, strict=True)
            )
        else:
            what = "no rows" if self.rowcount < 0 else f"{self.rowcount} rows changed"
        return f"<gmdb.Cursor: {what}>"

    def _repr_html_(self) -> str:
        """The rows that come next as a table, for notebooks; they can be fetched as before."""
        if self._closed or self.connection.closed or not self._result.has_rows:
            from html import escape

            return f"<pre>{escape(repr(self))}</pre>"
        self._fetched()
        rows = self._rows if self._texts is None else self._texts
        assert rows is not None
        shown = list(islice(rows, SHOWN_ROWS + 1))
        self._take(chain(shown, rows))
        return _html(self._result.names, shown)

    def _forget(self) -> None:
        self._result = _NOTHING
        self._rows = self._texts = None

    def _take(self, rows: Iterator[Row]) -> None:
        """Let these rows be the next ones."""
        documents = self._result.documents
        if documents is None:
            documents = documents_in(self._result.types)
        self._rows = map(_with_documents(documents, self.read_document), rows) if documents else rows
        self._texts = rows if documents else None

    def _require_open(self) -> None:
        if self._closed:
            raise InterfaceError("the cursor is closed")
        if self.connection.closed:
            raise InterfaceError("the connection is closed")

    # ---- statements

    def execute(self, statement: str, parameters: Parameters | None = ()) -> Cursor:
        """Run a statement; ``?`` stands for the parameters in order, ``:name`` for those of a mapping."""
        if self._closed:
            self._require_open()
        self._result, self._rows = _NOTHING, None
        if statement.__class__ is not str:
            statement = _text_of(statement)
        if parameters.__class__ is not tuple:
            parameters = parameters_of(parameters)
        quick = self._quick.get(statement)
        result = None if quick is None else quick(parameters)
        if result is None:
            result = self._statements.run(statement, parameters)
        self._result, self._rows, self._texts = result, result.rows, None
        if result.documents != ():
            self._rows = None  # they are made when they are fetched
        return self

    def copy(self, statement: str, file: Any = None) -> Cursor:
        """Carry out a COPY, which may read or write the file that it names: no other statement does such things.

        ``file`` is what ``FROM STDIN`` reads or ``TO STDOUT`` writes to, an open file of texts or of bytes.
        """
        self._require_open()
        self._forget()
        self._result = self._statements.copy(self.connection, _text_of(statement), file)
        return self

    def executemany(self, statement: str, parameters: Iterable[Parameters] | Any) -> Cursor:
        """Run a statement for each of many sets of parameters, which may be the rows of Arrow data."""
        self._require_open()
        self._forget()
        self._result = self._statements.run_many(_text_of(statement), _require_sets(parameters))
        return self

    def executescript(self, script: str) -> Cursor:
        """Run several statements, one after the other."""
        self._require_open()
        self._forget()
        script = _text_of(script)
        for statement in self._statements.split(script):
            self._result = self._statements.run(statement, ())
        return self

    # ---- the result

    @property
    def description(self) -> list[tuple[Any, ...]] | None:
        if not self._result.has_rows:
            return None
        return [_described(name, type_) for name, type_ in zip(self._result.names, self._result.types, strict=True)]

    @property
    def rowcount(self) -> int:
        return self._result.rowcount

    @property
    def lastrowid(self) -> int | None:
        """The number that the last row of an INSERT has in its identity column, or else in its primary key.

        None if the table has no such column, or the last statement was not an INSERT.
        """
        return self._result.last_id

    @property
    def types(self) -> tuple[ColumnType | None, ...]:
        """The types of the result's columns."""
        return self._result.types

    def _fetched(self) -> Iterator[Row]:
        if self._closed or self.connection.closed:
            self._require_open()
        if self._rows is None:
            if self._result.rows is not None:
                self._take(self._result.rows)
            elif self._result.reader is not None:
                self._take(rows_of(self._result.reader))
            else:
                raise ProgrammingError("the last statement returned no rows: there is nothing to fetch")
            assert self._rows is not None
        return self._rows

    def fetchone(self) -> Row | None:
        rows = self._rows
        if rows is None or self._closed or self.connection.closed:
            rows = self._fetched()
        return next(rows, None)

    def fetchmany(self, size: int | None = None) -> list[Row]:
        wanted = self.arraysize if size is None else size
        if wanted < 0:
            raise ProgrammingError(f"{wanted} rows cannot be fetched")
        return list(islice(self._fetched(), wanted))

    def fetchall(self) -> list[Row]:
        rows = self._rows
        return list(self._fetched() if rows is None or self._closed or self.connection.closed else rows)

    def __iter__(self) -> Iterator[Row]:
        return self._fetched()

    def __next__(self) -> Row:
        return next(self._fetched())

    def fetch_record_batch(self) -> pa.RecordBatchReader:
        """The result as a stream of Arrow record batches."""
        self._require_open()
        if self._result.reader is not None and self._rows is None:
            return self._result.reader
        rows = self._fetched()
        return _batched(self._result.schema, rows if self._texts is None else self._texts)

    def arrow(self) -> pa.Table:
        """The result as an Arrow table."""
        return self.fetch_record_batch().read_all()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The result, for a library that takes Arrow data: ``pl.DataFrame(cursor)``, ``pa.table(cursor)``."""
        return self.fetch_record_batch().__arrow_c_stream__(requested_schema)

    def df(self) -> pandas.DataFrame:
        """The result as a pandas DataFrame."""
        return self.arrow().to_pandas()

    def pl(self) -> polars.DataFrame:
        """The result as a polars DataFrame."""
        import polars  # gmdb does without it otherwise

        return polars.DataFrame(self.arrow())

    def close(self) -> None:
        """Drop the result.  Closing twice does nothing."""
        counted = Result(rowcount=self._result.rowcount, last_id=self._result.last_id)
        self._forget()
        self._result = counted
        self._closed = True

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """PEP 249 asks for it; there is nothing to prepare."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """PEP 249 asks for it; there is nothing to prepare."""

    def __enter__(self) -> Cursor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _html(names: Sequence[str], rows: list[Row]) -> str:
    from html import escape

    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    lines = ["".join(f"<td>{_html_of(value)}</td>" for value in row) for row in rows[:SHOWN_ROWS]]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    more = "<p>There are more rows.</p>" if len(rows) > SHOWN_ROWS else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _html_of(value: Any) -> str:
    if value is None:
        return "<i>NULL</i>"
    from html import escape

    text = value.hex() if isinstance(value, bytes) else str(value)
    return escape(text if len(text) <= SHOWN_TEXT else f"{text[:SHOWN_TEXT]}…")


def _text_of(statement: Any) -> str:
    if not isinstance(statement, str):
        raise ProgrammingError(f"a statement is a str, not {type(statement).__name__}")
    return statement


def parameters_of(parameters: Any) -> Parameters:
    """A statement's parameters, checked; None stands for none."""
    if isinstance(parameters, tuple | list | Mapping):
        return parameters
    if parameters is None:
        return ()
    if isinstance(parameters, str | bytes) or not isinstance(parameters, Sequence):
        message = f"parameters are a sequence, such as a tuple, or a mapping; this is a {type(parameters).__name__}"
        raise ProgrammingError(message)
    return parameters


def sets_of(parameters: Any) -> list[Any]:
    """Sets of parameters as they were given, or the rows of Arrow data."""
    if hasattr(parameters, "__arrow_c_stream__"):
        return list(zip(*python_columns(pa.table(parameters)), strict=True))
    return [parameters_of(one) for one in parameters]


def _require_sets(parameters: Any) -> Any:
    """Many sets of parameters, checked."""
    is_one = isinstance(parameters, str | bytes | Mapping)
    if is_one or not (isinstance(parameters, Iterable) or hasattr(parameters, "__arrow_c_stream__")):
        message = "many sets of parameters are a list of tuples or mappings, or Arrow data"
        raise ProgrammingError(f"{message}, not a {type(parameters).__name__}")
    return parameters


def _described(name: str, type_: ColumnType | None) -> tuple[Any, ...]:
    if type_ is None:
        return (name, None, None, None, None, None, None)
    is_decimal = type_.name == "DECIMAL"
    size = None if is_decimal else type_.length or None
    precision, scale = (type_.length, type_.scale) if is_decimal else (None, None)
    return (name, type_.name, size, size, precision, scale, None)


def _batched(schema: pa.Schema, rows: Iterator[Row]) -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        while some := list(islice(rows, 4096)):
            columns = zip(*some, strict=True)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, HeldIterator(batches(), held))
