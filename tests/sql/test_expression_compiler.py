"""What the compiler of expressions asks for and refuses: parameters, names, types, places in the text."""

from __future__ import annotations

import timeit
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from gmdb import errors
from gmdb.format.columns import ColumnType, parse_column
from gmdb.sql.dialect import parse, parse_expression
from gmdb.sql.expressions import (
    Compiled,
    EvaluationContext,
    compile_assignment,
    compile_expression,
    has_subquery,
    is_aggregate,
)
from gmdb.sql.scope import Scope
from gmdb.sql.types import TEXT, numeric

ACCOUNT = [
    parse_column("id", "int not null"),
    parse_column("bal", "int"),
    parse_column("credit", "decimal(10,2)"),
    parse_column("name", "varchar(10)"),
    parse_column("code", "char(5)"),
    parse_column("rate", "double"),
    parse_column("opened", "date"),
    parse_column("seen", "timestamp"),
    parse_column("big", "bigint"),
    parse_column("open", "boolean"),
    parse_column("Mixed", "int"),
]
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
NOTHING = (None,) * len(ROW)
SCOPE = Scope.of("account", ACCOUNT)


def compiled(text: str, scope: Scope = SCOPE) -> Compiled:
    return compile_expression(parse_expression(text), scope)


def value(text: str, parameters: Any = (), row: tuple[Any, ...] = ROW) -> Any:
    return compiled(text).evaluate(row, parameters)


# ---- parameters


@pytest.mark.parametrize(
    ("text", "parameter", "type_"),
    [
        ("bal - ?", 5, "INT"),
        ("? + big", 5, "BIGINT"),
        ("credit * ?", Decimal("1.5"), "DECIMAL(38,2)"),
        ("rate / ?", 2.0, "DOUBLE"),
        ("name = ?", "x", "VARCHAR(4000)"),
        ("code = ?", "x", "CHAR(5)"),
        ("opened < ?", date(2024, 1, 1), "DATE"),
        ("seen < ?", datetime(2024, 1, 1), "TIMESTAMP"),
        ("seen + ?", timedelta(days=1), "INTERVAL"),
        ("bal in (1, ?)", 5, "INT"),
        ("bal between 1 and ?", 5, "INT"),
        ("coalesce(?, name)", "x", "VARCHAR(4000)"),
        ("case when ? then 1 else 2 end", True, "BOOLEAN"),
        ("substr(name, ?)", 2, "INT"),
        ("name || ?", "x", "VARCHAR(4000)"),
        ("name like ?", "h%", "VARCHAR(4000)"),
        ("round(credit, ?)", 1, "INT"),
        ("? and open", True, "BOOLEAN"),
        ("cast(? as decimal(5,2))", "1.555", "DECIMAL(5,2)"),
    ],
)
def test_parameter_has_the_type_that_its_surroundings_give_it(text: str, parameter: Any, type_: str):
    made = compiled(text)
    assert {key: str(one) for key, one in made.parameters.items()} == {0: type_}
    made.evaluate(ROW, (parameter,))
    made.evaluate(ROW, (None,))
    made.evaluate(NOTHING, (parameter,))


def test_parameters_are_counted_in_the_order_of_the_text():
    assert value("position(? in ?)", ("c", "abc")) == 3
    assert value("trim(both ? from ?) || ?", ("x", "xax", "b")) == "ab"
    tree = parse("UPDATE account SET bal = bal + ?, name = ? WHERE id = ? AND credit > ?")[0]
    where = compile_expression(tree.args["where"].this, SCOPE)
    assert list(where.parameters) == [2, 3]


def test_named_parameter_may_be_used_twice_with_two_types():
    made = compiled(":amount < bal or :amount < credit")
    assert made.evaluate(ROW, {"amount": 5}) is True
    assert made.evaluate(ROW, {"amount": 500}) is False


def test_parameter_beside_nothing_has_no_type_and_comes_back_as_it_is():
    assert compiled("?").type is None
    assert value("?", (5,)) == 5
    assert value("? is null", (None,)) is True
    assert value("? is not null", ("x",)) is True


@pytest.mark.parametrize(
    ("text", "parameter", "error"),
    [
        ("bal - ?", 1.5, errors.TypeMismatch),
        ("bal - ?", True, errors.TypeMismatch),
        ("bal - ?", 2**31, errors.ValueOutOfRange),
        ("bal - ?", "abc", errors.InvalidText),
        ("name = ?", 5, errors.TypeMismatch),
        ("opened = ?", datetime(2024, 1, 1, 12), errors.TypeMismatch),
        ("seen = ?", datetime.fromisoformat("2024-01-01T12:00:00+01:00"), errors.TypeMismatch),
        ("credit = ?", Decimal("NaN"), errors.TypeMismatch),
        ("open = ?", 1, errors.TypeMismatch),
        ("cast(? as int)", "1.5", errors.InvalidText),
    ],
)
def test_parameter_of_another_type_is_refused_when_it_comes(text: str, parameter: Any, error: type[Exception]):
    with pytest.raises(error):
        value(text, (parameter,))


@pytest.mark.parametrize(
    ("text", "parameter", "expected"),
    [
        ("bal - ?", "5", 95),
        ("credit + ?", 1, Decimal("13.50")),
        ("credit + ?", 0.1, Decimal("12.60")),
        ("rate + ?", 1, 2.5),
        ("rate + ?", Decimal("0.5"), 2.0),
        ("opened = ?", "2024-01-31", True),
        ("seen > ?", date(2024, 1, 31), True),
        ("cast(? as int)", 2.5, 2),
        ("cast(? as int)", Decimal("2.5"), 3),
        ("cast(? as text)", 5, "5"),
        ("cast(? as bytea)", bytearray(b"a"), b"a"),
        ("cast(? as boolean)", 1, True),
    ],
)
def test_parameter_is_converted_where_nothing_is_lost(text: str, parameter: Any, expected: Any):
    found = value(text, (parameter,))
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("text", "parameters"), [("? + bal", ()), (":a + bal", {}), (":a + bal", (1,)), ("?+bal", None)]
)
def test_missing_parameters_are_named(text: str, parameters: Any):
    with pytest.raises(errors.InterfaceError, match=r"needs the parameters (:a|\? number 1)"):
        value(text, parameters)


# ---- names


def test_columns_are_found_by_folded_names_and_tables():
    assert value("BAL") == 100
    assert value("Account.bal") == 100
    assert value('"Mixed"') == 11
    with pytest.raises(errors.NoSuchColumn, match='must be quoted: "Mixed"'):
        compiled("mixed")
    with pytest.raises(errors.NoSuchColumn, match=r"line 1, column 5: .* did you mean bal\?"):
        compiled("1 + ball")
    with pytest.raises(errors.NoSuchTable, match=r"did you mean account\?"):
        compiled("acount.bal")


def test_tables_side_by_side_have_their_rows_behind_each_other():
    scope = Scope.side_by_side(("a", ACCOUNT[:2]), ("b", ACCOUNT[:3]))
    assert compiled("a.bal + b.bal", scope).evaluate((1, 10, 2, 20, None)) == 30
    assert compiled("credit", scope).columns == {4}
    with pytest.raises(errors.AmbiguousColumn, match=r"Write one of a\.bal, b\.bal"):
        compiled("bal", scope)


def test_hidden_columns_give_way_to_columns():
    scope = Scope.of("t", ACCOUNT[:1], {"rowid": (1, TEXT), "id": (2, TEXT)})
    assert compiled("rowid", scope).evaluate((1, "4:7:0", "x")) == "4:7:0"
    assert compiled("id", scope).evaluate((1, "4:7:0", "x")) == 1


# ---- refusals


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("name + 1", errors.IllTyped, r"line 1, column 1: there is no character varying \+ integer. Texts are joined"),
        ("1 +\n  bal * (name - 2)", errors.IllTyped, "line 2, column 10: "),
        ("name = 5", errors.IllTyped, "character varying = integer"),
        ("not bal", errors.IllTyped, "NOT takes a boolean, not integer"),
        ("bal and open", errors.IllTyped, "AND takes a boolean"),
        ("? + ?", errors.IllTyped, r"CAST\(\? AS INT\)"),
        ("opened + ?", errors.IllTyped, "Cast it to INT for days"),
        ("open + 1", errors.IllTyped, r"boolean \+ integer"),
        ("rate % 2", errors.IllTyped, "Cast both to DECIMAL"),
        ("case when open then 1 else name end", errors.IllTyped, "CASE mixes"),
        ("coalesce(bal, opened)", errors.IllTyped, "COALESCE mixes"),
        ("bal in (1, opened)", errors.IllTyped, "IN mixes"),
        ("substr(bal, 1)", errors.IllTyped, r"there is no substring\(integer, integer\). There is substring\(text"),
        ("opened::int", errors.IllTyped, "cannot cast date to integer"),
        ("bal like 'x'", errors.IllTyped, "LIKE takes texts, not integer"),
        ("substrin(name, 1)", errors.NoSuchFunction, r"line 1, column 1: .* Did you mean substring\?"),
        ("bal + sum(bal)", errors.UnsupportedExpression, "needs more than one row"),
        ("bal = (select 1)", errors.UnsupportedExpression, "a query cannot stand"),
        ("bal in (select 1)", errors.UnsupportedExpression, "IN takes a list"),
        ("name::json", errors.UnsupportedExpression, "there is no type JSON. The types are INT"),
        ("seen - opened", errors.IllTyped, "an interval is no value"),
        ("opened < '2024-13-01'", errors.ValueOutOfRange, "line 1, column 10: date/time field value out of range"),
        ("bal = 'x'", errors.InvalidText, "line 1, column 7: invalid input syntax for type integer"),
        ("bal +", errors.InvalidSyntax, "line 1, column"),
        ("'abc", errors.InvalidSyntax, "quote"),
        ("1, 2", errors.InvalidSyntax, "not one expression"),
    ],
)
def test_expression_is_refused_with_its_place_and_a_hint(text: str, error: type[Exception], message: str):
    with pytest.raises(error, match=message) as raised:
        compiled(text)
    assert type(raised.value) is error


def test_errors_of_statements_carry_their_place():
    with pytest.raises(errors.IllTyped) as raised:
        compiled("1 +\n  bal * (name - 2)")
    assert (raised.value.line, raised.value.column, raised.value.hint) == (
        2,
        10,
        "Cast one of them, such as CAST(... AS INT)",
    )
    with pytest.raises(errors.InvalidSyntax) as syntax:
        parse("SELECT *\nFROM t WHERE ORDER BY x")
    assert syntax.value.line == 2


# ---- constants and the time


def test_what_has_no_columns_is_computed_once():
    made = compiled("round(2.5 * 3) + length('abc')")
    assert (made.constant, made.value, made.type) == (True, Decimal(11), ColumnType("DECIMAL", 38, 0))
    assert not compiled("bal + 1").constant
    assert not compiled("cast(? as int)").constant
    assert not compiled("now()").constant
    assert compiled("open or true").value is True
    assert compiled("null + bal").constant


def test_a_constant_that_cannot_be_computed_is_an_error_at_once_unless_it_is_not_needed():
    with pytest.raises(errors.DivisionByZero):
        compiled("open and 1 / 0 = 1")
    assert value("case when bal > 0 then 1 else 1 / (bal - bal) end") == 1
    assert value("case when false then 1 / 0 else 2 end") == 2
    assert value("coalesce(name, 'x', (1 / 0)::text)") == "hello"


def test_the_time_is_that_of_the_context():
    context = EvaluationContext(datetime(2024, 5, 6, 7, 8, 9))
    for text in ("now()", "current_timestamp", "localtimestamp"):
        assert compiled(text).evaluate(ROW, (), context) == context.now
    assert compiled("current_date - opened").evaluate(ROW, (), context) == 96
    with pytest.raises(errors.InterfaceError, match="EvaluationContext"):
        compiled("now()").evaluate(ROW)


def test_aggregates_and_queries_are_told():
    assert is_aggregate(parse_expression("1 + sum(a)"))
    assert is_aggregate(parse_expression("row_number() over ()"))
    assert not is_aggregate(parse_expression("a + (select sum(b) from t)"))
    assert has_subquery(parse_expression("a + (select sum(b) from t)"))
    assert has_subquery(parse_expression("a in (select 1)"))
    assert has_subquery(parse_expression("exists (select 1)"))
    assert not has_subquery(parse_expression("a in (1, 2)"))


# ---- types


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("credit + credit", ColumnType("DECIMAL", 11, 2)),
        ("credit + bal", ColumnType("DECIMAL", 13, 2)),
        ("credit * credit", ColumnType("DECIMAL", 20, 4)),
        ("credit / 3", numeric(16)),
        ("bal + big", ColumnType("BIGINT")),
        ("credit + rate", ColumnType("DOUBLE")),
        ("name", ColumnType("VARCHAR", 10)),
        ("name || 'x'", TEXT),
        ("coalesce(name, 'a longer text')", TEXT),
        ("code", ColumnType("CHAR", 5)),
        ("null", None),
        ("'x'", TEXT),
    ],
)
def test_static_types(text: str, type_: ColumnType | None):
    assert compiled(text).type == type_


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
        ("?", "varchar(3)", ("too long",), "too long"),  # the column refuses it
        ("'too long'", "varchar(3)", (), "too long"),
        ("null", "int", (), None),
        ("?", "int", (None,), None),
        ("'2024-01-31'", "date", (), date(2024, 1, 31)),
        ("'\\x01'", "varbinary(10)", (), b"\x01"),
        ("credit - ?", "decimal(10,2)", (Decimal("0.501"),), Decimal("12.00")),
    ],
)
def test_assignment_turns_a_value_into_the_columns_type(text: str, spelling: str, parameters: Any, expected: Any):
    target = parse_column("target", spelling).type
    found = compile_assignment(parse_expression(text), SCOPE, target).evaluate(ROW, parameters)
    assert (found, type(found), str(found)) == (expected, type(expected), str(expected))


@pytest.mark.parametrize(("text", "spelling"), [("name", "int"), ("bal", "boolean"), ("bal", "date"), ("open", "int")])
def test_assignment_refuses_what_only_a_cast_would_convert(text: str, spelling: str):
    with pytest.raises(errors.IllTyped, match=r"line 1, column 1: a column of type .* Write CAST"):
        compile_assignment(parse_expression(text), SCOPE, parse_column("target", spelling).type)


def test_assignment_out_of_range_is_refused_when_it_comes():
    made = compile_assignment(parse_expression("big"), SCOPE, ColumnType("INT"))
    with pytest.raises(errors.ValueOutOfRange):
        made.evaluate(ROW)


# ---- size and speed


def test_thousands_of_conditions_are_compiled():
    many = " or ".join(f"bal = {n} and name = 'x{n}'" for n in range(1000))
    assert value(many) is False
    branches = " ".join(f"when bal = {n} then {n}" for n in range(300))
    assert value(f"case {branches} end") == 100
    assert value(f"bal in ({', '.join(map(str, range(5000)))})") is True


def test_deep_nesting_is_refused_with_an_error_of_ours():
    with pytest.raises(errors.StatementError, match="nested too deeply"):
        value("case when open then 1 else " * 120 + "2" + " end" * 120)


@pytest.mark.parametrize(
    "text", ["9" * 5000, "1e5000", "1e-5000", f"'{'9' * 5000}'::int", f"'{'9' * 5000}'::decimal(38,2)"]
)
def test_numbers_of_thousands_of_digits_are_refused_with_an_error_of_ours(text: str):
    with pytest.raises((errors.IllTyped, errors.ValueOutOfRange)):
        compiled(text)


def test_leading_zeros_do_not_make_a_number_large():
    assert value(f"'{'0' * 5000}7'::int") == 7


def test_a_pattern_with_many_wildcards_is_matched_in_reasonable_time():
    pattern = "%a" * 30 + "%b"
    assert compiled(f"name like '{pattern}'").evaluate((0, 0, 0, "a" * 4000)) is False


def test_a_balance_is_changed_in_well_under_a_microsecond():
    evaluate = compiled("bal - ?").evaluate
    count = 1000
    best = min(timeit.repeat(lambda: [evaluate(ROW, (5,)) for _ in range(count)], number=1, repeat=50)) / count
    assert best < 1e-6
