"""Random questions about arrays of the tables of random_queries: functions, operators, ANY, unnest, array_agg."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.sql.questions import Question

_COLUMNS = {"int": ("i", "j", "k"), "text": ("s::text",), "boolean": ("f",), "date": ("d",), "bigint": ("b",)}
_LITERALS = {
    "int": ("0", "1", "-2", "7", "2147483647"),
    "text": ("''::text", "'a'::text", "'NULL'::text", "'a,b'::text", "'x \"y'::text", "'\\'::text", "'{0}'::text"),
    "boolean": ("true", "false"),
    "date": ("date '2020-02-01'", "date '2020-02-29'"),
    "bigint": ("0::bigint", "4294967296", "-1::bigint"),
}
_WRITTEN = {
    "int": ("{}", "{1,2,3}", "{1,NULL,-2}", "{NULL}", " { 7 , 1 } ", "[1:2]={0,1}"),
    "text": ("{}", "{a,b}", '{"",a}', '{NULL,"NULL"}', '{"a,b","x \\"y"}', "{a b , c}"),
    "boolean": ("{t,f,NULL}", "{true}"),
    "date": ("{2020-02-01,NULL}", "{2020-02-29}"),
    "bigint": ("{}", "{4294967296,-1}", "{NULL,0}"),
}
_TEXT = "::text"
_COMMA = "','"
_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")


class Arrays:
    """A stream of questions."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.values: list[Any] = []

    def question(self) -> Question:
        self.values = []
        makers = (self.listed, self.listed, self.by_elements, self.unnested, self.grouped, self.distinct, self.keyed)
        text = self.random.choice(makers)()
        return Question(text, tuple(self.values), True)

    def pick(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def type(self) -> str:
        return self.pick("int", "int", "text", "text", "boolean", "date", "bigint")

    # ---- statements

    def listed(self) -> str:
        shown = ", ".join(f"({self.any_value()}){self.pick(_TEXT, '')}" for _ in range(self.random.randint(1, 4)))
        return f"SELECT k, {shown} FROM t1 WHERE {self.condition(2)} ORDER BY k"

    def by_elements(self) -> str:
        type_ = self.type()
        right = self.array(type_, 2)
        if self.random.random() < 0.5:
            right = self.given(type_)
        word = self.pick("ANY", "ANY", "ALL", "SOME")
        return f"SELECT k FROM t1 WHERE {self.element(type_, 1)} {self.pick(*_COMPARISONS)} {word} ({right}) ORDER BY k"

    def keyed(self) -> str:
        """By a key, as IN has it."""
        column, type_ = self.pick(("k", "int"), ("i", "int"), ("b", "bigint"), ("s", "text"), ("d", "date"))
        test = f"{column} = ANY ({self.given(type_) if self.random.random() < 0.7 else self.literal(type_)})"
        more = self.pick("", f" AND {self.condition(1)}", " AND j > 0", f" OR {self.condition(1)}")
        return f"SELECT k, {column} FROM t1 WHERE {test}{more} ORDER BY k"

    def unnested(self) -> str:
        type_ = self.type()
        other = self.type()
        join = self.pick(", ", " CROSS JOIN LATERAL ")
        if self.random.random() < 0.5:
            source = f"unnest({self.array(type_, 2)}) WITH ORDINALITY AS u(x, o)"
            return f"SELECT k, x, o FROM t1{join}{source} ORDER BY k, o"
        source = f"unnest({self.array(type_, 1)}, {self.array(other, 1)}) WITH ORDINALITY AS u(x, y, o)"
        if self.random.random() < 0.5:
            source = source.replace("t1.", "")
            return f"SELECT k, x, y, o FROM t1 LEFT JOIN {source} ON o < 3 ORDER BY k, o"
        return f"SELECT k, x, y, o FROM t1{join}{source} ORDER BY k, o"

    def grouped(self) -> str:
        type_ = self.type()
        inner = self.element(type_, 1)
        order = self.pick("k", "k DESC", "i DESC NULLS LAST, k")
        values = f"array_agg({inner} ORDER BY {order})"
        if self.random.random() < 0.3:
            values = f"array_agg(DISTINCT {inner})"
        where = f" FILTER (WHERE {self.condition(1)})" if self.random.random() < 0.3 else ""
        return f"SELECT f, ({values}{where})::text, count(*) FROM t1 GROUP BY f ORDER BY f"

    def distinct(self) -> str:
        array = self.array(self.type(), 1)
        if self.random.random() < 0.5:
            return f"SELECT a::text, count(*) FROM (SELECT {array} AS a FROM t1) AS q GROUP BY a ORDER BY a"
        return f"SELECT a::text FROM (SELECT DISTINCT {array} AS a FROM t1) AS q ORDER BY a {self.pick('', 'DESC')}"

    # ---- values

    def given(self, type_: str) -> str:
        """A list as a parameter."""
        choices: dict[str, list[Any]] = {
            "int": [0, 1, 2, 5, None],
            "text": ["a", "ab", "", "NULL", None],
            "boolean": [True, False],
            "bigint": [0, 2**32, -1, None],
        }
        if type_ not in choices:
            return self.literal(type_)
        count = self.random.randint(1, 4)
        value = [*self.random.choices(choices[type_], k=count), choices[type_][1]]
        self.values.append(value)
        return f"«{len(self.values) - 1}»"

    def any_value(self) -> str:
        type_ = self.type()
        return self.pick(self.array, self.array, self.element)(type_, 3)

    def element(self, type_: str, depth: int) -> str:
        plain = self.pick(*_COLUMNS[type_], *_LITERALS[type_][:2], f"NULL::{type_}")
        if depth < 1 or self.random.random() < 0.4:
            return str(plain)
        array, of = self.array(type_, depth - 1), self.type()
        other = self.array(of, depth - 1)
        choices = [f"({array})[{self.number()}]", f"CASE WHEN {self.condition(1)} THEN {plain} END"]
        if type_ == "int":
            choices += [
                f"cardinality({other})",
                f"array_length({other}, {self.pick(1, 1, 2)})",
                f"array_upper({other}, 1)",
                f"array_lower({other}, 1)",
                f"array_ndims({other})",
                f"array_position({other}, {self.element(of, 0)})",
                f"array_position({other}, {self.element(of, 0)}, 2)",
            ]
        if type_ == "text":
            choices += [
                f"array_to_string({other}, {self.pick('s', _COMMA)})",
                f"array_to_string({other}, '-', '*')",
                f"array_dims({other})",
                f"({other})::text",
            ]
        if type_ == "boolean":
            choices += [self.condition(depth - 1)] * 2
        return str(self.pick(*choices))

    def number(self) -> str:
        return str(self.pick("1", "2", "3", "0", "-1", "i", "NULL::int", "k"))

    def literal(self, type_: str) -> str:
        return f"'{self.pick(*_WRITTEN[type_])}'::{type_}[]"

    def array(self, type_: str, depth: int) -> str:
        if depth < 1:
            elements = ", ".join(self.element(type_, 0) for _ in range(self.random.randint(1, 3)))
            query = f"ARRAY(SELECT {_COLUMNS[type_][0]} FROM t2 WHERE t2.k < 4 ORDER BY k {self.pick('', 'DESC')})"
            made = f"ARRAY[{elements}]::{type_}[]" if type_ != "text" else f"ARRAY[{elements}]"
            return str(self.pick(made, made, self.literal(type_), f"NULL::{type_}[]", query))
        one, other = self.array(type_, depth - 1), self.array(type_, depth - 1)
        element = self.element(type_, depth - 1)
        choices = [
            one,
            f"({one} || {other})",
            f"({one} || {element})",
            f"({element} || {one})",
            f"array_append({one}, {element})",
            f"array_prepend({element}, {one})",
            f"array_cat({one}, {other})",
            f"array_remove({one}, {element})",
            f"array_replace({one}, {element}, {self.element(type_, 0)})",
            f"({one})[{self.number()}:{self.number()}]",
            f"({one})[:{self.pick(0, 1, 2)}]",
            f"({one})[{self.number()}:]",
            f"coalesce({one}, {other})",
            f"CASE WHEN {self.condition(1)} THEN {one} ELSE {other} END",
            f"greatest({one}, {other})",
            f"nullif({one}, {other})",
        ]
        if type_ == "int":
            of = self.type()
            choices += [
                f"array_positions({self.array(of, depth - 1)}, {self.element(of, 0)})",
                f"trim_array({one}, {self.pick(0, 1)})",
            ]
        if type_ == "text":
            choices += [
                f"string_to_array({self.element('text', 0)}, {self.pick(*_LITERALS['text'][:2], 'NULL')})",
                "string_to_array(s, 'b', 'a')",
                f"({self.array(self.pick('int', 'bigint', 'date'), depth - 1)})::text[]",
            ]
        if type_ == "bigint":
            choices.append(f"({self.array('int', depth - 1)})::bigint[]")
        return str(self.pick(*choices))

    def condition(self, depth: int) -> str:
        type_ = self.type()
        one, other = self.array(type_, depth - 1), self.array(type_, depth - 1)
        element = self.element(type_, depth - 1)
        return str(
            self.pick(
                f"({one} {self.pick(*_COMPARISONS)} {other})",
                f"({one} {self.pick('@>', '<@', '&&')} {other})",
                f"({element} {self.pick(*_COMPARISONS)} {self.pick('ANY', 'ALL')} ({one}))",
                f"(NOT {element} {self.pick(*_COMPARISONS)} {self.pick('ANY', 'ALL')} ({one}))",
                f"({one} IS {self.pick('', 'NOT ')}NULL)",
                f"({one} IS {self.pick('', 'NOT ')}DISTINCT FROM {other})",
                f"({one} IN ({other}, {self.literal(type_)}))",
            )
        )
