"""Expressions are bound with PostgreSQL's types, strictly, and their constants are computed."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from sqlglot import exp

from gmdb import errors
from gmdb.format.columns import ColumnType
from gmdb.sql import tree
from gmdb.sql.bind import calls, expressions
from gmdb.sql.bind.binder import Binder
from gmdb.sql.bind.coercion import fold, fold_relation, settled
from gmdb.sql.bind.scope import Scope, output_name
from gmdb.sql.casts import write_text
from gmdb.sql.dialect import parse_expression
from gmdb.sql.tree import Call, Case, Coalesce, Column, Constant, Expression, Junction, Parameter, Reference
from gmdb.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTEA,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    numeric,
    pg_name,
)

ANSWERS = Path(__file__).with_name("postgres_answers.tsv")
SAME_TYPES = {"character varying": "text", "unknown": "text", "regtype": "text"}
STATES: dict[str, tuple[type[errors.Error], ...]] = {
    "22": (errors.DataError,),
    "0A": (errors.UndefinedResult,),
    "42": (errors.IllTyped, errors.InvalidSyntax, errors.NoSuchFunction),
    "54": (errors.ValueOutOfRange,),
}
MONEY = ColumnType("DECIMAL", 10, 2)
COLUMNS = tuple(
    Column(name, type_)
    for name, type_ in {
        "i": INT,
        "b": BIGINT,
        "d": DOUBLE,
        "n": MONEY,
        "t": TEXT,
        "v": ColumnType("VARCHAR", 10),
        "c": ColumnType("CHAR", 5),
        "o": BOOLEAN,
        "x": BYTEA,
        "day": DATE,
        "ts": TIMESTAMP,
    }.items()
)
assert calls.SPECIAL  # its handlers are registered
Types = Mapping[int | str, ColumnType | None]


def bound(text: str, parameters: Types | None = None) -> Expression:
    binder = Binder(None, parameters or {})  # type: ignore[arg-type]
    return expressions.bind(binder, parse_expression(text), Scope.of_table("t1", COLUMNS))


def folded(text: str, parameters: Types | None = None) -> Expression:
    return fold(settled(bound(text, parameters)))


def column(name: str) -> Reference:
    return next(Reference(one.type, one) for one in COLUMNS if one.name == name)


def assigned(text: str, target: ColumnType, parameters: Types | None = None) -> Expression:
    binder = Binder(None, parameters or {})  # type: ignore[arg-type]
    node = parse_expression(text)
    return fold(expressions.bind_assigned(binder, node, Scope.of_table("t1", COLUMNS), target))


# ---- PostgreSQL's answers


def answers() -> Iterator[tuple[str, str, str]]:
    for line in ANSWERS.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            text, type_, value = line.split("\t")
            quote = '"' if "'" in value else "'"
            yield text, type_, ast.literal_eval(f"{quote}{value}{quote}")


def shown(constant: Constant) -> str:
    value = constant.value
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "t", False: "f"}[value]
    return value if constant.type.name == "CHAR" else str(write_text(constant.type)(value))


def is_same_number(one: str, other: str) -> bool:
    """Whether decimals are equal but for the digits that each has behind the point."""
    if "NULL" in (one, other):
        return one == other
    a, b = Decimal(one), Decimal(other)
    return abs(a - b) <= max(Decimal(1), abs(b)) * Decimal("1e-15")


def test_constants_have_the_types_and_values_that_postgres_gives() -> None:
    differences = []
    for text, type_, value in answers():
        try:
            constant = folded(text)
        except errors.Error as error:
            is_too_long = type_ == "numeric" and isinstance(error, errors.ValueOutOfRange) and "38 digits" in str(error)
            if not is_too_long and (type_ != "error" or not isinstance(error, STATES[value[:2]])):
                differences.append((text, type_, value, repr(error)))
            continue
        assert isinstance(constant, Constant), text
        found, name = shown(constant), pg_name(constant.type)
        same_type = SAME_TYPES.get(name, name) == SAME_TYPES.get(type_, type_)
        if not same_type or not (found == value or (name == "numeric" and is_same_number(found, value))):
            differences.append((text, type_, value, f"{name} {found}"))
    assert differences == []


# ---- types


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("i + 1", INT),
        ("i + b", BIGINT),
        ("i + 1.5", ColumnType("DECIMAL", 12, 1)),
        ("n * 1.5", ColumnType("DECIMAL", 12, 3)),
        ("n / 3", numeric(16)),
        ("n + d", DOUBLE),
        ("t || i", TEXT),
        ("ts - ts", INTERVAL),
        ("day - day", INT),
        ("day + interval '1 day'", TIMESTAMP),
        ("round(n, 1)", ColumnType("DECIMAL", 10, 1)),
        ("sqrt(n)", numeric(16)),
        ("sqrt(i)", DOUBLE),
        ("extract(second from ts)", ColumnType("DECIMAL", 8, 6)),
        ("case when o then 1 else 2.5 end", ColumnType("DECIMAL", 11, 1)),
        ("case when o then null end", TEXT),
        ("coalesce(n, 0)", ColumnType("DECIMAL", 12, 2)),
        ("greatest(v, 'x')", TEXT),
        ("nullif(v, 'x')", TEXT),
        ("n::numeric", MONEY),
        ("i::numeric", ColumnType("DECIMAL", 10, 0)),
        ("d::numeric", numeric(16)),
        ("'1.25'::numeric", numeric(2)),
        ("t::varchar(3)", ColumnType("VARCHAR", 3)),
        ("-2147483648", INT),
        ("2147483648", BIGINT),
        ("9223372036854775808", ColumnType("DECIMAL", 19, 0)),
        ("1.50", ColumnType("DECIMAL", 3, 2)),
        ("now()", TIMESTAMPTZ),
        ("current_date", DATE),
        ("x'00ff'", BYTEA),
    ],
)
def test_an_expression_has_the_type_that_postgres_gives_it(text: str, type_: ColumnType) -> None:
    assert folded(text).type == type_


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("i = '1'", 1),
        ("n = '1.234'", Decimal("1.234")),
        ("c = 'ab '", "ab "),
        ("o = 'yes'", True),
        ("ts > '2020-01-01'", None),
    ],
)
def test_an_open_literal_is_read_as_what_it_stands_beside(text: str, value: Any) -> None:
    comparison = bound(text)
    assert isinstance(comparison, Call)
    literal = comparison.arguments[1]
    assert isinstance(literal, Constant)
    assert literal.type.name == comparison.arguments[0].type.name
    assert value is None or literal.value == value


def test_literals_of_a_list_have_the_type_that_the_list_shares_and_numbers_their_own() -> None:
    junction = bound("i in (1, 2.5, '3.5')")
    assert isinstance(junction, Junction)
    items = [one.arguments[1] for one in junction.parts if isinstance(one, Call)]
    assert [one.value for one in items if isinstance(one, Constant)] == [1, Decimal("2.5"), Decimal("3.5")]
    assert items[0].type == INT


def test_a_number_that_no_decimal_holds_is_a_double_or_nothing() -> None:
    assert folded("1e300::double precision") == Constant(DOUBLE, 1e300)
    assert isinstance(bound("d < 1e300"), Call)
    for text in ("1e300", "i < 1e300", "n + 1e300", "1e300 * 1e300", "abs(1e300)", "1e300::text", "1e300 is null"):
        with pytest.raises(errors.ValueOutOfRange, match="line 1, column"):
            folded(text)


# ---- parameters


def test_a_parameter_has_the_type_of_its_value_and_an_open_one_that_of_its_surroundings() -> None:
    known = bound("d < :p", {"p": INT})
    assert isinstance(known, Call)
    assert isinstance(known.arguments[1], Call)  # widened
    assert known.arguments[1].arguments == (Parameter(INT, "p", INT),)
    opened = bound("d < :p", {"p": None})
    assert isinstance(opened, Call)
    assert opened.arguments[1] == Parameter(DOUBLE, "p")
    assert bound("?::int", {0: None}) == Parameter(INT, 0)
    assert bound("?::numeric", {0: numeric(3)}) == Parameter(numeric(3), 0, numeric(3))
    assert folded("?", {0: None}) == Parameter(TEXT, 0)
    assert bound("n = ?", {0: numeric(5)}).type == BOOLEAN


def test_a_parameter_that_is_not_there_is_told_by_name() -> None:
    with pytest.raises(errors.InterfaceError, match="the parameter :b"):
        bound(":b", {"a": INT})
    with pytest.raises(errors.InterfaceError, match=r"the parameter \? number 2"):
        bound("? + ?", {0: INT})


def test_the_binder_notes_which_types_of_parameters_it_asked_for_and_whether_it_needs_the_time() -> None:
    binder = Binder(None, {"a": INT, "b": INT})  # type: ignore[arg-type]
    scope = Scope.of_table("t1", COLUMNS)
    expressions.bind(binder, parse_expression(":a + 1"), scope)
    assert expressions.bind_assigned(binder, parse_expression("(:b)"), scope, MONEY) == Parameter(MONEY, "b")
    assert binder.used_parameters == {"a"}
    assert not binder.uses_time
    expressions.bind(binder, parse_expression("current_date"), scope)
    assert binder.uses_time


# ---- strictness


@pytest.mark.parametrize(
    "text",
    [
        "cast(i as int format 'x')",
        "abs(distinct i)",
        "abs(*)",
        "abs(i, 2)",
        "abs(variadic i)",
        "abs(i order by i)",
        "lower(t => 'x')",
        "i in ()",
        "i::int[]",
        "ts::timetz",
        "ts::timestamp(3)",
        "i::varchar(10, 2)",
        "t at time zone 'utc'",
        't collate "de_DE"',
        'i collate "C"',
        "position('a', t, 2)",
        "current_timestamp(3)",
        "now(6)",
        "s.abs(i)",
        "t1.*",
        "if(o, 1, 2)",
        "nvl(i, 1)",
        "is_null(i)",
        '"Abs"(i)',
        "i like '1'",
        "i is json",
        "b'101'",
        "u&'d'",
        "x'123'",
        "random() in (1, 2)",
        "case random() when 1 then 1 end",
        "(i, b)",
        "(i, b) = (1, 2, 3)",
        "%s",
        "@a",
        "i overlaps b",
        "t ->> 'a'",
        "i operator(pg_catalog.+) b",
        "interval (1 || ' day')",
        "extract(year + 1 from ts)",
    ],
)
def test_what_would_be_dropped_is_refused(text: str) -> None:
    with pytest.raises((errors.StatementError, errors.NotSupportedError)):
        bound(text)


def test_every_part_of_a_node_is_taken_or_refused() -> None:
    """For each kind of node that is handled here, a part that it does not have by itself is refused."""
    texts = ["i + 1", "i = 1", "t like 'a'", "i between 1 and 2", "i in (1)", "case when o then 1 end", "i::int", "-i"]
    texts += ["abs(i)", "trim(t)", "extract(year from ts)", "o and o", "not o", "i is null", "t || t", "'a'", "1", "i"]
    texts += ["t ~ 'a'", "interval '1 day'", "current_date", "(i)", "null", "true", 't collate "C"', ":p", "x'00'"]
    for text in texts:
        node = parse_expression(text)
        node.set("pivots", exp.Literal.string("unheard of"))
        with pytest.raises(errors.UnsupportedExpression, match=r"PIVOTS .*unheard of.* is not supported"):
            expressions.bind(Binder(None, {"p": INT}), node, Scope.of_table("t1", COLUMNS))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("i = 'x'", errors.InvalidText, "line 1, column 5: invalid input syntax for type integer"),
        ("t + 1", errors.IllTyped, r"line 1, column 1: there is no text \+ integer\. Texts are joined by \|\|"),
        ("i and o", errors.IllTyped, "line 1, column 1: .* must be boolean, not integer"),
        ("case when i then 1 end", errors.IllTyped, "line 1, column 11: .* must be boolean"),
        ("case when o then 1 else 'a'::text end", errors.IllTyped, "CASE mixes"),
        ("absx(i)", errors.NoSuchFunction, r"there is no function absx\. Did you mean abs\?"),
        ("abs(t)", errors.IllTyped, r"there is no abs\(text\)\. There is abs\(double precision\)"),
        ("nosuch", errors.NoSuchColumn, "line 1, column 1: there is no column nosuch"),
        ("t9.i", errors.NoSuchTable, "line 1, column 1: there is no table t9"),
        ("x::int", errors.IllTyped, "cannot cast bytea to integer"),
        ("null + null", errors.IllTyped, r"there is no a null \+ a null"),
        ("t is true", errors.IllTyped, "must be boolean"),
        ("i is unknown", errors.IllTyped, "must be boolean"),
    ],
)
def test_an_error_names_the_place_and_what_to_do(text: str, error: type[errors.Error], message: str) -> None:
    with pytest.raises(error, match=message):
        bound(text)


def test_long_chains_are_bound_without_recursion() -> None:
    assert isinstance(fold(bound(" || ".join("t" for _ in range(400)))), Call)
    assert folded(" + ".join("1" for _ in range(400))) == Constant(INT, 400)
    junction = bound(" or ".join(f"i = {n}" for n in range(3000)))
    assert isinstance(junction, Junction)
    assert len(junction.parts) == 3000


# ---- what columns are set to


@pytest.mark.parametrize(
    ("text", "target", "value"),
    [
        ("1.005", MONEY, Decimal("1.01")),
        ("'1.005'", MONEY, Decimal("1.01")),
        ("2.5", INT, 3),
        ("1", TEXT, "1"),
        ("true", TEXT, "true"),
        ("null", INT, None),
        ("date '2020-01-02'", ColumnType("VARCHAR", 20), "2020-01-02"),
        ("'abc  '", ColumnType("VARCHAR", 3), "abc"),
        ("'a'", ColumnType("CHAR", 3), "a  "),
        ("'a'", ColumnType("CLOB"), "a"),
    ],
)
def test_a_column_is_set_to_what_postgres_would_store(text: str, target: ColumnType, value: Any) -> None:
    constant = assigned(text, target)
    assert isinstance(constant, Constant)
    assert constant.value == value


def test_a_column_is_not_set_to_what_postgres_would_refuse() -> None:
    for text, target in (
        ("'1'::text", INT),
        ("true", INT),
        ("1", BOOLEAN),
        ("1", DATE),
        ("t", BYTEA),
        ("i", TIMESTAMP),
    ):
        with pytest.raises(errors.IllTyped, match="cannot be set to"):
            assigned(text, target)


# ---- folding


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("false and 1 / 0 = 1", False),
        ("true or 1 / 0 = 1", True),
        ("o and false", False),
        ("case when false then 1 / 0 else 2 end", 2),
        ("case when true then 2 else 1 / 0 end", 2),
        ("case 1 when 2 then 1 / 0 when 1 then 3 end", 3),
        ("coalesce(null, 1, 1 / 0)", 1),
        ("i + null", None),
        ("i = null", None),
        ("null and null", None),
        ("null is null", True),
        ("i in (null)", None),
        ("pg_typeof(n)", "numeric"),
        ("'a'\n'b'", "ab"),
    ],
)
def test_constants_are_computed_but_for_what_they_exclude(text: str, value: Any) -> None:
    constant = folded(text)
    assert isinstance(constant, Constant)
    assert constant.value == value


@pytest.mark.parametrize("text", ["1 / 0", "1 / 0 = 1 and false", "coalesce(i, 1 / 0)", "case when o then 1 / 0 end"])
def test_a_constant_that_cannot_be_computed_is_an_error_of_the_statement(text: str) -> None:
    with pytest.raises(errors.DivisionByZero):
        folded(text)


def test_folding_leaves_what_depends_on_rows() -> None:
    assert folded("o and true") == column("o")
    assert folded("coalesce(null, t)") == column("t")
    assert isinstance(folded("coalesce(t, 'x', v)"), Coalesce)
    half = folded("case when i = 1 then 1 when false then 2 end")
    assert isinstance(half, Case)
    assert len(half.branches) == 1
    assert isinstance(folded("random()"), Call)


def test_folding_a_relation_reaches_queries_in_expressions_and_shared_ones() -> None:
    output, row = Column("a", INT), Column("b", INT)
    inner = tree.Project(tree.One(), ((row, bound("1 + 1")),))
    shared = tree.Shared("w", inner, columns=(row,))
    cell = [shared]
    reading = tree.Reading(cell, (Column("b", INT),))
    query = tree.Project(reading, ((output, tree.ScalarQuery(INT, inner)),))
    result = fold_relation(tree.With((shared,), tree.Filter(query, bound("1 = 1 and true"))))
    assert isinstance(result, tree.With)
    values = [one for relation in tree.everything(result) for one in relation.expressions()]
    assert Constant(INT, 2) in values
    assert not any(isinstance(part, Call) for one in values for part in one.walk())
    assert [one.cell[0] for one in tree.everything(result) if isinstance(one, tree.Reading)] == [result.shared[0]]
    assert cell[0] is shared  # plans may share a tree: nothing is changed in place
    assert result.columns == (output,)


# ---- names


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("i", "i"),
        ("t1.i", "i"),
        ("i + 1", "?column?"),
        ("i::bigint", "i"),
        ("1::int", "int4"),
        ("(i + 1)::numeric(5, 2)", "numeric"),
        ("'x'::char(3)", "bpchar"),
        ("true", "?column?"),
        ("abs(i)::text", "abs"),
        ("ceiling(d)", "ceiling"),
        ("case when o then 1 end", "case"),
        ("case when o then 1 else i end", "i"),
        ("trim(leading from t)", "ltrim"),
        ("trim(t)", "btrim"),
        ("position('a' in t)", "position"),
        ("extract(year from ts)", "extract"),
        ("current_date", "current_date"),
        ("interval '1 day'", "interval"),
        ("date '2020-01-01'", "date"),
        ("(select max(i) from t1)", "max"),
        ("(select 1)::int", "?column?"),
        ("exists (select 1)", "exists"),
        ("count(*)", "count"),
        ("sum(i) over ()", "sum"),
        ("t ^@ 'x'", "?column?"),
    ],
)
def test_a_column_without_a_name_is_called_as_postgres_calls_it(text: str, name: str) -> None:
    assert output_name(parse_expression(text)) == name
