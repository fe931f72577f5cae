"""Expressions of statements: what parameters mean, how names are found, what is refused where, types, assignments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

import gmdb
from gmdb import errors
from gmdb.database.connection import Connection

COLUMNS = {
    "id": "int not null",
    "bal": "int",
    "credit": "decimal(10,2)",
    "name": "varchar(10)",
    "code": "char(5)",
    "rate": "double precision",
    "opened": "date",
    "seen": "timestamp",
    "big": "bigint",
    "open": "boolean",
    "Mixed": "int",
}
ROW = (
    7,
    100,
    Decimal("12.50"),
    "hello",
    "ab   ",
    1.5,
    date(2024, 1, 31),
    datetime(2024, 1, 31, 12, 30),
    1 << 40,
    True,
    11,
)


@pytest.fixture(scope="module", params=["rows", "duck"])
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    with gmdb.connect(tmp_path_factory.mktemp("expressions") / "d.gmdb") as connection:
        listed = ", ".join(f'"{name}" {type_}' for name, type_ in COLUMNS.items())
        connection.execute(f"create table account ({listed})")
        connection.execute(f"insert into account values ({', '.join('?' * len(ROW))})", ROW)
        connection.commit()
        connection._statements.executor = request.param  # type: ignore[attr-defined]
        yield connection


@pytest.fixture
def db(opened: Connection) -> Iterator[Connection]:
    yield opened
    opened.rollback()


def value(db: Connection, text: str, parameters: Any = ()) -> Any:
    ((found,),) = db.execute(f"select {text} from account", parameters).fetchall()
    return found


def static_type(db: Connection, text: str) -> str:
    return str(db.execute(f"select {text} from account where false")._result.types[0])


# ---- parameters


@pytest.mark.parametrize(
    ("text", "parameter", "expected"),
    [
        ("bal - ?", "5", 95),
        ("? + big", "5", (1 << 40) + 5),
        ("credit * ?", "1.5", Decimal("18.75")),
        ("rate / ?", "2.0", 0.75),
        ("name = ?", "hello", True),
        ("code = ?", "ab", True),
        ("opened < ?", "2024-02-01", True),
        ("seen < ?", "2024-02-01", True),
        ("bal in (1, ?)", "100", True),
        ("bal between 1 and ?", "99", False),
        ("coalesce(?, name)", "x", "x"),
        ("case when ? then 1 else 2 end", "true", 1),
        ("substr(name, ?)", "2", "ello"),
        ("name || ?", "x", "hellox"),
        ("name like ?", "h%", True),
        ("round(credit, ?)", "1", Decimal("12.50")),
        ("? and open", "false", False),
        ("cast(? as decimal(5,2))", "1.555", Decimal("1.56")),
    ],
)
def test_a_text_as_a_parameter_is_read_as_its_surroundings_need_it(
    db: Connection, text: str, parameter: str, expected: Any
):
    found = value(db, text, (parameter,))
    assert (found, type(found)) == (expected, type(expected))
    value(db, text, (None,))


@pytest.mark.parametrize(
    ("text", "parameter", "expected"),
    [
        ("bal - ?", 5, 95),
        ("bal - ?", 1.5, 98.5),
        ("bal - ?", 2**31, 100 - 2**31),
        ("bal - ?", Decimal("0.5"), Decimal("99.5")),
        ("credit + ?", 1, Decimal("13.50")),
        ("credit + ?", 0.5, 13.0),
        ("rate + ?", 1, 2.5),
        ("rate + ?", Decimal("0.5"), 2.0),
        ("name || ?", 5, "hello5"),
        ("opened = ?", date(2024, 1, 31), True),
        ("opened = ?", datetime(2024, 1, 31, 12), False),
        ("seen > ?", date(2024, 1, 31), True),
        ("seen + ?", timedelta(days=1), datetime(2024, 2, 1, 12, 30)),
        ("cast(? as int)", 2.5, 2),
        ("cast(? as int)", Decimal("2.5"), 3),
        ("cast(? as text)", 5, "5"),
        ("cast(? as bytea)", bytearray(b"a"), b"a"),
        ("cast(? as boolean)", 1, True),
    ],
)
def test_a_parameter_has_the_type_of_its_value(db: Connection, text: str, parameter: Any, expected: Any):
    found = value(db, text, (parameter,))
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("text", "parameter", "expected"),
    [
        ("?", Decimal("1E+2"), "100"),
        ("?", Decimal("-0.0"), "0.0"),
        ("?", 10**20, "1" + "0" * 20),
        ("? * 1.5", Decimal("1E+2"), "150.0"),
        ("(? * 1.5)::text", -(10**20), "-150000000000000000000.0"),
        ("cast(? as text)", timedelta(1, 3600.5), "1 day 01:00:00.5"),
        ("? > interval '1 hour'", timedelta(minutes=61), "True"),
        ("extract(epoch from coalesce(null, ?))", timedelta(1), "86400.000000"),
        ("opened - ?", timedelta(-1), "2024-02-01 00:00:00"),
        ("bal in (?, 5)", Decimal("1E+2"), "True"),
        ("? in (cast('a' as bytea), cast('b' as bytea))", memoryview(b"a"), "True"),
        ("encode(? || cast('b' as bytea), 'hex')", bytearray(b"a"), "6162"),
    ],
)
def test_a_parameter_is_what_its_value_would_be_if_it_were_written_out(
    db: Connection, text: str, parameter: Any, expected: str
):
    assert str(value(db, text, (parameter,))) == expected


@pytest.mark.parametrize("parameter", [10**38, -(10**38), Decimal("1E+38"), Decimal("1.5E+300"), Decimal("1E-40")])
@pytest.mark.parametrize("text", ["?", "? + 1", "credit = ?"])
def test_a_parameter_with_more_digits_than_a_decimal_has_is_refused(db: Connection, text: str, parameter: Any):
    with pytest.raises(errors.ValueOutOfRange):
        value(db, text, (parameter,))


def test_a_timedelta_is_an_interval(db: Connection):
    assert str(value(db, "?", (timedelta(1, 1),))) == "1 day 00:00:01"
    with pytest.raises(errors.Error):
        db.execute("update account set seen = ?", (timedelta(1),))


def test_substr_takes_numbers_only_and_substring_patterns_too(db: Connection):
    assert value(db, "substring(name, ?)", ("l+",)) == "ll"
    assert value(db, "substring(name from ?)", ("l+",)) == "ll"
    assert value(db, "substr(name, ?, ?)", ("2", "3")) == "ell"
    assert value(db, "substr('hello', 2)") == "ello"
    assert value(db, "substr(cast(name as bytea), 2, 1)") == b"e"
    with pytest.raises(errors.InvalidText):
        value(db, "substr(name, ?)", ("l+",))


def test_parameters_are_counted_in_the_order_of_the_text(db: Connection):
    assert value(db, "position(? in ?)", ("c", "abc")) == 3
    assert value(db, "trim(both ? from ?) || ?", ("x", "xax", "b")) == "ab"
    text = "update account set bal = bal + ?, name = ? where id = ? and credit > ?"
    assert db.execute(text, (1, "x", 7, 12)).rowcount == 1
    assert db.execute("select bal, name from account").fetchall() == [(101, "x")]


def test_a_named_parameter_may_be_used_twice_beside_two_types(db: Connection):
    assert value(db, ":amount < bal or :amount < credit", {"amount": 5}) is True
    assert value(db, ":amount < bal or :amount < credit", {"amount": 500}) is False
    assert value(db, ":amount < bal or :amount < credit", {"amount": "50"}) is True


def test_a_parameter_beside_nothing_comes_back_as_it_is(db: Connection):
    assert value(db, "?", (5,)) == 5
    assert value(db, "? is null", (None,)) is True
    assert value(db, "? is not null", ("x",)) is True


@pytest.mark.parametrize(
    ("text", "parameter", "error"),
    [
        ("bal - ?", True, errors.IllTyped),
        ("bal - ?", "abc", errors.InvalidText),
        ("name = ?", 5, errors.IllTyped),
        ("credit = ?", Decimal("Infinity"), errors.DataError),
        ("open = ?", 1, errors.IllTyped),
        ("cast(? as int)", "1.5", errors.InvalidText),
        ("? is null", object(), errors.DatabaseError),
    ],
)
def test_a_parameter_of_a_type_that_does_not_fit_is_refused(
    db: Connection, text: str, parameter: Any, error: type[Exception]
):
    with pytest.raises(error):
        value(db, text, (parameter,))


@pytest.mark.parametrize(
    ("text", "parameters"), [("? + bal", ()), (":a + bal", {}), (":a + bal", (1,)), ("?+bal", None)]
)
def test_missing_parameters_are_named(db: Connection, text: str, parameters: Any):
    with pytest.raises(errors.ProgrammingError, match=r":a|give a mapping|1 parameter"):
        value(db, text, parameters)


# ---- names


def test_columns_are_found_by_folded_names_and_tables(db: Connection):
    assert value(db, "BAL") == 100
    assert value(db, "Account.bal") == 100
    assert value(db, '"Mixed"') == 11
    with pytest.raises(errors.NoSuchColumn, match='"Mixed"'):
        value(db, "mixed")
    with pytest.raises(errors.NoSuchColumn, match=r"line 1, column 12: .* did you mean bal\?"):
        value(db, "1 + ball")
    with pytest.raises(errors.NoSuchTable, match="acount"):
        value(db, "acount.bal")
    with pytest.raises(errors.AmbiguousColumn, match=r"a\.bal.*b\.bal|a or b"):
        db.execute("select bal from account as a, account as b")


# ---- refusals


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("name + 1", errors.IllTyped, r"line 1, column 8: there is no character varying \+ integer. Texts are joined"),
        ("1 +\n  bal * (name - 2)", errors.IllTyped, "line 2, column 10: "),
        ("name = 5", errors.IllTyped, "character varying = integer"),
        ("not bal", errors.IllTyped, "what NOT stands before must be boolean, not integer"),
        ("bal and open", errors.IllTyped, "must be boolean, not integer"),
        ("open + 1", errors.IllTyped, r"boolean \+ integer"),
        ("rate % 2", errors.IllTyped, "there is no double precision % integer"),
        ("case when open then 1 else name end", errors.IllTyped, "CASE mixes"),
        ("coalesce(bal, opened)", errors.IllTyped, "COALESCE mixes"),
        ("bal in (1, opened)", errors.IllTyped, "there is no integer = date"),
        ("substr(bal, 1)", errors.IllTyped, r"there is no substr\(integer, integer\). There is substr\(text"),
        ("opened::int", errors.IllTyped, "cannot cast date to integer"),
        ("bal like 'x'", errors.IllTyped, "LIKE takes texts, not integer"),
        ("substrin(name, 1)", errors.NoSuchFunction, r"line 1, column 8: .* Did you mean substring\?"),
        ("name::xml", errors.UnsupportedExpression, "line 1, column 8: there is no type XML. The types are SMALLINT"),
        ("opened < '2024-13-01'", errors.ValueOutOfRange, "line 1, column 17: date/time field value out of range"),
        ("bal = 'x'", errors.InvalidText, "line 1, column 14: invalid input syntax for type integer"),
        ("'abc", errors.InvalidSyntax, "quote"),
    ],
)
def test_an_expression_is_refused_with_its_place_and_a_hint(
    db: Connection, text: str, error: type[Exception], message: str
):
    with pytest.raises(error, match=message) as raised:
        value(db, text)
    assert type(raised.value) is error


def test_errors_of_statements_carry_their_place(db: Connection):
    with pytest.raises(errors.IllTyped) as raised:
        db.execute("select 1 +\n  bal * (name - 2) from account")
    assert (raised.value.line, raised.value.column) == (2, 10)
    with pytest.raises(errors.InvalidSyntax) as syntax:
        db.execute("select *\nfrom account where order by x")
    assert syntax.value.line == 2


# ---- constants and the time


def test_a_constant_that_cannot_be_computed_is_an_error_unless_it_is_not_needed(db: Connection):
    with pytest.raises(errors.DivisionByZero):
        value(db, "open and 1 / 0 = 1")
    assert value(db, "case when bal > 0 then 1 else 1 / (bal - bal) end") == 1
    assert value(db, "case when false then 1 / 0 else 2 end") == 2
    assert value(db, "coalesce(name, 'x', (1 / (bal - bal))::text)") == "hello"


def test_the_time_is_that_of_the_statements_beginning(db: Connection):
    times = "now(), current_timestamp, localtimestamp::timestamptz"
    for _ in range(2):
        ((one, two, three, today),) = db.execute(f"select {times}, current_date from account").fetchall()
        assert one == two == three
        assert abs(one - datetime.now(UTC)) < timedelta(minutes=10)
        assert today == one.date()
    assert value(db, "now() - now() = interval '0 days'") is True


# ---- types


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("credit", "DECIMAL(10,2)"),
        ("credit + credit", "DECIMAL(38,2)"),
        ("credit + bal", "DECIMAL(38,2)"),
        ("credit * credit", "DECIMAL(38,4)"),
        ("credit / 3", "DECIMAL(38,16)"),
        ("bal + big", "BIGINT"),
        ("credit + rate", "DOUBLE"),
        ("name", "VARCHAR(10)"),
        ("name || 'x'", "TEXT"),
        ("coalesce(name, 'a longer text')", "TEXT"),
        ("code", "CHAR(5)"),
        ("null", "TEXT"),
        ("'x'", "TEXT"),
    ],
)
def test_a_column_of_an_answer_has_the_type_of_its_expression(db: Connection, text: str, type_: str):
    assert static_type(db, text) == type_


# ---- assignments


@pytest.mark.parametrize(
    ("text", "spelling", "parameters", "expected"),
    [
        ("1.5", "int", (), 2),
        ("bal + 0.5", "int", (), 101),
        ("rate", "int", (), 2),
        ("credit", "decimal(5,1)", (), Decimal("12.5")),
        ("?", "decimal(5,1)", (Decimal("1.25"),), Decimal("1.3")),
        ("?", "decimal(5,1)", (3,), Decimal("3.0")),
        ("'1.25'", "decimal(5,1)", (), Decimal("1.3")),
        ("bal", "decimal(5,1)", (), Decimal("100.0")),
        ("bal", "varchar(10)", (), "100"),
        ("opened", "timestamp", (), datetime(2024, 1, 31)),
        ("seen", "date", (), date(2024, 1, 31)),
        ("null", "int", (), None),
        ("?", "int", (None,), None),
        ("'2024-01-31'", "date", (), date(2024, 1, 31)),
        ("'\\x01'", "varbinary(10)", (), b"\x01"),
        ("credit - ?", "decimal(10,2)", (Decimal("0.501"),), Decimal("12.00")),
    ],
)
def test_assignment_turns_a_value_into_the_columns_type(
    db: Connection, text: str, spelling: str, parameters: Any, expected: Any
):
    db.execute(f"alter table account add column target {spelling}")
    db.execute(f"update account set target = {text}", parameters)
    found = value(db, "target")
    assert (found, type(found), str(found)) == (expected, type(expected), str(expected))
    db.execute(f"create table other (target {spelling})")
    db.execute(f"insert into other select {text} from account", parameters)
    assert db.execute("select target from other").fetchall() == [(expected,)]


@pytest.mark.parametrize(
    ("text", "spelling", "parameters", "error"),
    [
        ("name", "int", (), errors.IllTyped),
        ("bal", "boolean", (), errors.IllTyped),
        ("bal", "date", (), errors.IllTyped),
        ("open", "int", (), errors.IllTyped),
        ("big", "int", (), errors.ValueOutOfRange),
        ("'too long'", "varchar(3)", (), errors.ValueTooLong),
        ("?", "varchar(3)", ("too long",), errors.ValueTooLong),
        ("?", "int", (1.5,), errors.TypeMismatch),
        ("?", "int", ("abc",), errors.InvalidText),
    ],
)
def test_assignment_refuses_what_would_be_lost(
    db: Connection, text: str, spelling: str, parameters: Any, error: type[Exception]
):
    db.execute(f"alter table account add column target {spelling}")
    with pytest.raises(error):
        db.execute(f"update account set target = {text}", parameters)


# ---- size


def test_thousands_of_conditions_are_compiled(db: Connection):
    many = " or ".join(f"bal = {n} and name = 'x{n}'" for n in range(1000))
    assert value(db, many) is False
    branches = " ".join(f"when bal = {n} then {n}" for n in range(300))
    assert value(db, f"case {branches} end") == 100
    assert value(db, f"bal in ({', '.join(map(str, range(5000)))})") is True


def test_deep_nesting_is_answered_or_refused_with_an_error_of_ours(db: Connection):
    for depth in (120, 1000, 5000):
        text = "case when open then 1 else " * depth + "2" + " end" * depth
        with suppress(errors.InvalidSyntax):
            assert value(db, text) == 1


@pytest.mark.parametrize("text", ["9" * 5000, "1e5000", f"'{'9' * 5000}'::int", f"'{'9' * 5000}'::decimal(38,2)"])
def test_numbers_of_thousands_of_digits_are_refused_with_an_error_of_ours(db: Connection, text: str):
    with pytest.raises((errors.IllTyped, errors.ValueOutOfRange)):
        value(db, text)


def test_leading_zeros_do_not_make_a_number_large(db: Connection):
    assert value(db, f"'{'0' * 5000}7'::int") == 7


def test_a_pattern_with_many_wildcards_is_matched_in_reasonable_time(db: Connection):
    pattern = "%a" * 30 + "%b"
    assert value(db, f"repeat('a', 4000 + bal - 100) like '{pattern}'") is False
