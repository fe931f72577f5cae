"""Rows: the bytes of the worked example, and that every value of every type reads back."""

from __future__ import annotations

import contextlib
from datetime import date, datetime
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gmdb.errors import (
    Corruption,
    DataError,
    NullNotAllowed,
    SchemaError,
    TypeMismatch,
    ValueOutOfRange,
    ValueTooLong,
)
from gmdb.format.columns import parse_column
from gmdb.format.row import MAX_COLUMNS, ROW_HEAD, check, decode_row, encode_row, header_size
from gmdb.tables.catalog.schema import make_columns

TBL = make_columns("tbl", {"i": "INT", "s": "VARCHAR(10)"})

WORKED = [
    ((1, "2"), 20, "01 00 00 00 02 00 32 00"),
    ((2, "3"), 20, "02 00 00 00 02 00 33 00"),
    ((0, "hello"), 24, "00 00 00 00 06 00 68 65 6c 6c 6f 00"),
    ((231, "hello"), 24, "e7 00 00 00 06 00 68 65 6c 6c 6f 00"),
]

DIGITS = st.integers(-(10**38) + 1, 10**38 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
VALUES = {
    "INT": st.integers(-(2**31), 2**31 - 1),
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
    "DOUBLE": st.floats(allow_nan=False),
    "BOOLEAN": st.booleans(),
    "DATE": st.dates(),
    "TIMESTAMP": st.datetimes(),
    "DECIMAL(9,2)": st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: Decimal(n).scaleb(-2)),
    "DECIMAL(18,0)": st.integers(-(10**18) + 1, 10**18 - 1).map(Decimal),
    "DECIMAL(38,10)": DIGITS.map(lambda n: Decimal(f"{n}E-10")),
    "VARCHAR(200)": TEXT,
    "VARBINARY(40)": st.binary(max_size=40),
    "CHAR(8)": st.text("abc", min_size=8, max_size=8),
    "BINARY(4)": st.binary(min_size=4, max_size=4),
}


@st.composite
def typed_rows(draw):
    spellings = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=40))
    columns = [parse_column(f"c{n}", spelling) for n, spelling in enumerate(spellings)]
    return columns, tuple(draw(st.none() | VALUES[spelling]) for spelling in spellings)


@pytest.mark.parametrize(("values", "size", "raw"), WORKED, ids=[str(values) for values, _, _ in WORKED])
def test_a_row_of_the_worked_example_has_its_bytes(values, size, raw):
    row = encode_row(TBL, values)
    head = ROW_HEAD.at(row)
    assert (head.size, head.col_count, head.bit_array, len(row)) == (size, 2, 13, size)
    assert head.lock_id == 0x00FFFFFF
    assert row[12:] == bytes.fromhex(raw)
    assert decode_row(TBL, row) == values


@settings(max_examples=150, deadline=None)
@given(typed_rows())
def test_any_row_reads_back(case):
    columns, values = case
    row = encode_row(columns, values)
    assert decode_row(columns, row) == values
    assert list(check(row, 0, len(row), "row")) == []


@settings(max_examples=200, deadline=None)
@given(st.binary(min_size=12, max_size=200), st.integers(0, 60))
def test_decoding_noise_gives_values_or_an_error_of_ours(noise, offset):
    offset = min(offset, len(noise) - 12)
    list(check(noise, offset, len(noise), "row"))
    with contextlib.suppress(Corruption, DataError):
        decode_row(TBL, noise, offset)


def test_null_and_the_empty_string_differ():
    assert encode_row(TBL, (None, None))[12:] == b""
    assert encode_row(TBL, (None, ""))[12:] == b"\x01\x00\x00"
    assert decode_row(TBL, encode_row(TBL, (None, ""))) == (None, "")


def test_a_header_grows_by_four_bytes_for_each_sixteen_columns():
    assert [header_size(n) for n in (1, 16, 17, 32, 33, 1024)] == [12, 12, 16, 16, 20, 264]


def test_a_row_of_1024_columns_reads_back():
    columns = make_columns("wide", {f"c{n}": "INT" for n in range(MAX_COLUMNS)})
    values = tuple(None if n % 3 == 0 else n for n in range(MAX_COLUMNS))
    row = encode_row(columns, values)
    assert decode_row(columns, row) == values


def test_a_row_from_before_a_column_was_added_reads_it_as_null():
    longer = make_columns("tbl", {"i": "INT", "s": "VARCHAR(10)", "d": "DATE"})
    assert decode_row(longer, encode_row(TBL, (1, "2"))) == (1, "2", None)


def test_char_and_binary_are_filled_up_to_their_length():
    columns = make_columns("t", {"c": "CHAR(4)", "b": "BINARY(4)"})
    assert decode_row(columns, encode_row(columns, ("ab", b"\1"))) == ("ab  ", b"\1\0\0\0")


@pytest.mark.parametrize(
    ("spelling", "value", "error"),
    [
        ("INT", 2**31, ValueOutOfRange),
        ("INT", True, TypeMismatch),
        ("INT", "1", TypeMismatch),
        ("BIGINT", -(2**63) - 1, ValueOutOfRange),
        ("DOUBLE", "1", TypeMismatch),
        ("BOOLEAN", 1, TypeMismatch),
        ("DATE", datetime(2024, 1, 1), TypeMismatch),
        ("TIMESTAMP", date(2024, 1, 1), TypeMismatch),
        ("DECIMAL(4,2)", Decimal("100.00"), ValueOutOfRange),
        ("DECIMAL(4,2)", Decimal("1.001"), ValueOutOfRange),
        ("DECIMAL(4,2)", Decimal("NaN"), ValueOutOfRange),
        ("DECIMAL(4,2)", 1.5, TypeMismatch),
        ("VARCHAR(3)", "hell", ValueTooLong),
        ("VARCHAR(3)", "ää", ValueTooLong),
        ("VARCHAR(3)", b"abc", TypeMismatch),
        ("VARCHAR(3)", "\ud800", TypeMismatch),
        ("VARBINARY(2)", b"abc", ValueTooLong),
        ("INT NOT NULL", None, NullNotAllowed),
    ],
)
def test_a_value_that_does_not_fit_its_column_is_refused_by_name(spelling, value, error):
    with pytest.raises(error, match="column amount"):
        encode_row([parse_column("amount", spelling)], [value])


def test_a_row_larger_than_any_page_is_refused():
    columns = make_columns("t", {f"b{n}": "VARBINARY(32602)" for n in range(3)})
    with pytest.raises(DataError, match="no page is that large"):
        encode_row(columns, [bytes(32602)] * 3)


@pytest.mark.parametrize(
    "spelling",
    [
        "",
        "INTEGERS",
        "VARCHAR(0)",
        "VARCHAR(10485761)",
        "CHAR(4001)",
        "BINARY(32603)",
        "INT(4)",
        "DECIMAL(39)",
        "DECIMAL(3,4)",
    ],
)
def test_a_type_that_does_not_exist_is_refused_by_the_columns_name(spelling):
    with pytest.raises(SchemaError, match="column c"):
        parse_column("c", spelling)


@pytest.mark.parametrize(
    ("spelling", "shown", "nullable"),
    [
        ("integer", "INT", True),
        ("varchar ( 10 ) not null", "VARCHAR(10)", False),
        ("numeric(10, 2)", "DECIMAL(10,2)", True),
        ("double precision NULL", "DOUBLE", True),
        ("char", "CHAR(1)", True),
    ],
)
def test_types_may_be_written_the_ways_sql_allows(spelling, shown, nullable):
    column = parse_column("c", spelling)
    assert (str(column.type), column.nullable) == (shown, nullable)


@pytest.mark.parametrize("columns", [{}, {f"c{n}": "INT" for n in range(1025)}, [("a", "INT"), ("A", "INT")]])
def test_a_table_has_1_to_1024_columns_of_different_names(columns):
    with pytest.raises(SchemaError):
        make_columns("t", columns)
