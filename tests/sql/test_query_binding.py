"""Queries become relations: names are resolved, types shared, rows numbered and grouped, and nothing is passed over."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlglot import exp

import gmdb
from gmdb import errors
from gmdb.database.connection import Connection
from gmdb.sql import dialect, parser, tree
from gmdb.sql.bind.binder import Binder, Bound, Catalog
from gmdb.sql.bind.scope import Scope
from gmdb.sql.tree import Constant, Reference, Relation
from gmdb.sql.types import type_of_value

PARAMETERS = {0: None, 1: type_of_value(3), "n": type_of_value(2.5)}


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    database = gmdb.connect(tmp_path_factory.mktemp("binding") / "test.gmdb")
    columns = {"i": "INT NOT NULL", "a": "INT", "b": "VARCHAR(10)", "d": "DECIMAL(10,2)", "x": "DOUBLE", "on_": "DATE"}
    database.create_table("t", columns)
    database.create_table("u", {"i": "BIGINT", "k": "INT", "n": "DECIMAL(12,4)"})
    database.create_table("w", {"i": "INT", "rownum": "INT", "rowid": "INT"})
    yield database
    database.close()


@pytest.fixture
def binder(connection: Connection) -> Binder:
    return Binder(Catalog(connection), PARAMETERS)


def bound(binder: Binder, text: str) -> Bound:
    return binder.statement(dialect.parse(text)[0])


def types(binder: Binder, text: str) -> list[str]:
    return [str(column.type) for column in bound(binder, text).relation.columns]


def shape(relation: Relation) -> str:
    """The kinds of relations, from the top: Project(Filter(Table))."""
    inner = ", ".join(map(shape, relation.sources()))
    return type(relation).__name__ + (f"({inner})" if inner else "")


def parts(relation: Relation, kind: type) -> list:
    return [one for one in tree.everything(relation) if isinstance(one, kind)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select 1 where false", "Project(Filter(One))"),
        ("select a from t where b = 'x' order by i limit 2", "Project(Limit(Sort(Filter(Table))))"),
        ("select a * 2 as z from t order by z", "Sort(Project(Table))"),
        ("select a * 2 as z from t order by z, b", "Project(Sort(Project(Table)))"),
        ("select distinct a from t order by a limit 1", "Limit(Sort(Distinct(Project(Table))))"),
        ("select distinct on (a) a, b from t order by a, i", "Project(Sort(Distinct(Sort(Project(Table)))))"),
        ("select count(*) from t having count(*) > 1", "Project(Filter(Group(Table)))"),
        ("select rownum from t where rownum < 3 and a = 1 order by a", "Project(Sort(Number(Limit(Filter(Table)))))"),
        ("select count(*) from t where rownum < 3", "Project(Group(Limit(Table)))"),
        ("select sum(a) over () from t", "Project(Window(Table))"),
        ("select a from t union all select k from u order by 1", "Sort(SetOperation(Project(Table), Project(Table)))"),
        ("with c as (select a from t) select * from c", "With(Project(Reading))"),
        ("values (1), (2)", "Values"),
        ("select * from t, lateral (select t.a) z", "Project(Join(Table, Project(One)))"),
        ("select * from t, u right join w using (i)", "Project(Join(Table, Join(Table, Table)))"),
        ("select * from generate_series(1, 3)", "Project(Series)"),
        ("select * from sys_tables", "Project(Listing)"),
        ("select * from gm_pages('t')", "Project(Listing)"),
    ],
)
def test_clauses_become_relations_in_the_order_in_which_they_are_carried_out(
    binder: Binder, text: str, expected: str
) -> None:
    assert shape(bound(binder, text).relation) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select 1, 'a', null, ?, :n", ["INT", "TEXT", "TEXT", "TEXT", "DOUBLE"]),
        ("select d, d + 1, cast(d as numeric(5,1)) from t", ["DECIMAL(10,2)", "DECIMAL(38,2)", "DECIMAL(5,1)"]),
        ("select d from (select d from t) s", ["DECIMAL(10,2)"]),
        ("select null union select 1", ["INT"]),
        ("select d from t union select n from u", ["DECIMAL(38,4)"]),
        ("select d from t union all select d from t", ["DECIMAL(10,2)"]),
        ("values (1, 'a'), (2.5, null)", ["DECIMAL(38,1)", "TEXT"]),
        ("select i from t join u using (i)", ["BIGINT"]),
        ("select i from t left join u using (i)", ["BIGINT"]),
        ("select count(*), sum(a), avg(a), max(b) from t", ["BIGINT", "BIGINT", "DECIMAL(38,16)", "TEXT"]),
        ("with recursive c(n) as (select 1 union all select n + 1 from c where n < 5) select n from c", ["INT"]),
        ("with recursive c(n) as (select 1.5 union all select n * 1.25 from c) select n from c", ["DECIMAL(38,19)"]),
        ("select rownum, rowid from t", ["BIGINT", "VARCHAR(40)"]),
        ("select rownum, rowid from w", ["INT", "INT"]),
        ("select lag(a, 1, 0) over (order by i), ntile(2) over () from t", ["INT", "INT"]),
    ],
)
def test_columns_have_the_types_that_postgresql_gives_them(binder: Binder, text: str, expected: list[str]) -> None:
    assert types(binder, text) == expected


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("select *, t.a as z, a + 1, count from t, (select 1 as count) s", "i a b d x on_ count z ?column? count"),
        ("select s.* from t as s(p, q)", "p q b d x on_"),
        ("select * from t join u using (i)", "i a b d x on_ k n"),
        ('select sum(a) as "Sum", max(b) from t', "Sum max"),
        ("select * from (values (1, 2)) as v(p)", "p column2"),
    ],
)
def test_columns_have_the_names_that_postgresql_gives_them(binder: Binder, text: str, names: str) -> None:
    assert " ".join(bound(binder, text).names) == names


def test_a_query_within_a_query_over_groups_refers_to_the_groups_key(binder: Binder) -> None:
    relation = bound(binder, "select a, (select max(k) from u where u.i = t.a) from t group by a").relation
    group = next(one for one in parts(relation, tree.Group) if one.keys)
    query = next(one.query for one in relation.outputs[1][1].walk() if isinstance(one, tree.ScalarQuery))  # type: ignore[attr-defined]
    assert tree.outer_columns(query) == {group.keys[0][0]}


def test_whole_keys_are_recognized_in_expressions_over_groups(binder: Binder) -> None:
    relation = bound(binder, "select (a + 1) * 2, count(*) from t group by a + 1 order by a + 1").relation
    group = parts(relation, tree.Group)[0]
    outputs = parts(relation, tree.Project)[0].outputs
    assert tree.columns_of(outputs[0][1]) == {group.keys[0][0]}


def test_equal_aggregates_are_worked_out_once(binder: Binder) -> None:
    relation = bound(binder, "select sum(a), sum(a) + 1 from t having sum(a) > 1 order by sum(a)").relation
    assert len(parts(relation, tree.Group)[0].aggregates) == 1


@pytest.mark.parametrize(
    ("text", "sets"),
    [
        ("rollup (a, b)", ((0, 1), (0,), ())),
        ("cube (a, b)", ((0, 1), (0,), (1,), ())),
        ("grouping sets ((a, b), a, ())", ((0, 1), (0,), ())),
        ("grouping sets (rollup (a), b), x", ((0, 2), (2,), (1, 2))),
        ("rollup ((a, b))", ((0, 1), ())),
        ("distinct rollup (a), rollup (a)", ((0,), ())),
        ("(a, b)", None),
        ("a, b, a", None),
    ],
)
def test_grouping_sets_are_written_out(binder: Binder, text: str, sets: tuple | None) -> None:
    assert parts(bound(binder, f"select count(*) from t group by {text}").relation, tree.Group)[0].sets == sets


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        ("rownum < 2.5", 2),
        ("rownum <= 2.5", 2),
        ("3 >= rownum", 3),
        ("rownum = 1", 1),
        ("rownum = 2", 0),
        ("rownum > 0 and rownum <= 4", 4),
        ("rownum between 1 and 7", 7),
        ("rownum between 2 and 7", 0),
        ("rownum < null", 0),
        ("rownum <= -1", 0),
        ("rownum <= 1e30", 1 << 62),
    ],
)
def test_conditions_on_rownum_are_a_limit(binder: Binder, condition: str, count: int) -> None:
    limit = parts(bound(binder, f"select a from t where {condition}").relation, tree.Limit)[0]
    assert isinstance(limit.count, Constant)
    assert limit.count.value == count


def test_open_columns_stay_open_for_whoever_asks_for_that(binder: Binder) -> None:
    query = binder.query(dialect.parse("select 'a', i, ? from t order by i limit 1")[0], None, open_types=True)
    assert [value.type is None for value in query.values] == [True, False, True]
    assert query.relation.columns[0] == query.values[1].column  # type: ignore[attr-defined]


def test_the_rows_of_a_change_come_with_their_ids_and_the_tables_beside_them(binder: Binder) -> None:
    node = dialect.parse("with c as (select k from u) update t as z set a = 1 from c, w where z.i = w.i")[0]
    source = binder.change_source(node.this, [node.args["from_"]], node.args["where"], node.args["with_"])
    assert shape(source.relation) == "Filter(Join(Table, Join(Reading, Table)))"
    assert source.table.row_id in source.relation.columns
    assert [one.name for one in source.shared] == ["c"]
    value = source.scope.resolve("k", "c", node)
    assert isinstance(value, Reference)


def test_a_statement_knows_what_it_depends_on(binder: Binder) -> None:
    bound(binder, "select a + ? from t where exists (select 1 from u where k = ? and now() > on_)")
    assert set(binder.tables) == {"t", "u"}
    assert binder.used_parameters == {0, 1}
    assert binder.uses_time


def test_locks_name_their_tables(binder: Binder) -> None:
    locks = bound(binder, "select a from t as z for update of z skip locked").locks
    assert [(lock.table.alias, lock.wait) for lock in locks] == [("z", None)]
    assert [lock.wait for lock in bound(binder, "select a from t for update nowait").locks] == [False]
    for text in ("select * from t, u for update", "select * from t, u for no key update"):
        assert [(lock.table.alias, lock.wait) for lock in bound(binder, text).locks] == [("t", True), ("u", True)]
    outer = bound(binder, "select * from t left join u on true for update of t").locks
    assert [lock.table.alias for lock in outer] == ["t"]


REFUSED = [
    ("select a from nosuch", errors.NoSuchTable, "no table nosuch"),
    ("select t.aa from t", errors.NoSuchColumn, "did you mean a"),
    ('select "A" from t', errors.NoSuchColumn, "must be quoted"),
    ("select z.a from t", errors.NoSuchTable, "no table z"),
    ("select i from t, u", errors.AmbiguousColumn, "t.i, u.i"),
    ("select * from t a, u a", errors.ProgrammingError, "two tables"),
    ("select * from t, u join w on t.i = w.i", errors.NoSuchTable, "no table t"),
    ("select * from (t as q join (u cross join w) on true) join t on q.i = z.i", errors.NoSuchTable, "no table z"),
    ("select * from t join (select t.a) s on true", errors.NoSuchTable, "no table t"),
    ("select * from t right join lateral (select t.i) z on true", errors.UnsupportedExpression, "LATERAL"),
    ("select a, count(*) from t", errors.StatementError, "neither in GROUP BY"),
    ("select * from t group by a", errors.StatementError, "neither in GROUP BY"),
    ("select a from t where count(*) > 1", errors.IllTyped, "an aggregate cannot stand here"),
    ("select sum(sum(a)) from t", errors.IllTyped, "within another"),
    ("select (select sum(t.a) from u) from t", errors.UnsupportedExpression, "another query's columns"),
    ("select a from t where row_number() over () = 1", errors.IllTyped, "window function cannot stand"),
    ("select row_number() from t", errors.IllTyped, "needs OVER"),
    ("select abs(a) over () from t", errors.IllTyped, "not a window function"),
    ("select sum(a) over nosuch from t", errors.IllTyped, "no window nosuch"),
    ("select sum(a) over (range 1 preceding) from t", errors.IllTyped, "ORDER BY of one value"),
    ("select sum(a) over (rows between 1 following and current row) from t", errors.InvalidSyntax, "start"),
    ("select percentile_cont(0.5) from t", errors.IllTyped, "percentile_cont"),
    ("select string_agg(b) from t", errors.IllTyped, "separator"),
    ("select a from t order by 7", errors.StatementError, "no column 7"),
    ("select a from t order by 'x'", errors.InvalidSyntax, "constant"),
    ("select distinct a from t order by b", errors.StatementError, "with DISTINCT"),
    ("select distinct on (a) a from t order by b", errors.StatementError, "DISTINCT ON"),
    ("select a from t union select a, b from t", errors.IllTyped, "equally many columns"),
    ("select a from t union select b from t", errors.IllTyped, "UNION mixes"),
    ("select a from t where a in (select i, k from u)", errors.IllTyped, "one column"),
    ("select a from t where rownum = a", errors.NoSuchColumn, "no column a"),
    ("select a from t where rownum < 3 or a = 1", errors.UnsupportedExpression, "rownum"),
    ("select a from t limit a", errors.NoSuchColumn, "no column a"),
    ("with a as (select 1), a as (select 2) select 1", errors.TableExists, "twice"),
    ("with recursive c as (select 1 union all select 1 from c, c d) select 1", errors.UnsupportedExpression, "twice"),
    ("with recursive c(n) as (select 1 union all select sum(n) from c) select 1", errors.UnsupportedExpression, "aggr"),
    ("with recursive c(n) as (select 1 union all select n * 1.5 from c) select 1", errors.IllTyped, "recursive"),
    ("with c as (insert into t values (1) returning i) select 1", errors.UnsupportedExpression, "within a statement"),
    ("select 1 from t as t(a, b, c, d, e, f, g)", errors.StatementError, "7 names for 6 columns"),
    ("select * from t for update of nosuch", errors.NoSuchTable, "nosuch"),
    ("select * from t, (select 1) s for update", errors.UnsupportedExpression, "s is none"),
    ("select * from t left join u on true for update", errors.UnsupportedExpression, "lock u, .* nullable side"),
    ("select max(a) from t for update", errors.UnsupportedExpression, "rows of tables"),
    ("select * from (select a from t for update) s", errors.UnsupportedExpression, "within another"),
    ("select a from t for share", errors.UnsupportedExpression, "FOR SHARE"),
    ("select a from t for key share", errors.UnsupportedExpression, "FOR SHARE"),
    ("select a from t limit 10 percent", errors.UnsupportedExpression, "PERCENT"),
    ("select a from t fetch first 2 rows with ties", errors.UnsupportedExpression, "TIES"),
    ("select a from t group by a with rollup", errors.UnsupportedExpression, "ROLLUP"),
    ("select a from t group by all", errors.UnsupportedExpression, "GROUP BY ALL"),
    ("select a from t tablesample bernoulli (10)", errors.UnsupportedExpression, "TABLESAMPLE"),
    ("select a into x from t", errors.UnsupportedExpression, "INTO"),
    ("select * except (a) from t", errors.UnsupportedExpression, "EXCEPT"),
    ("select * from t semi join u on true", errors.UnsupportedExpression, "SEMI"),
    ("select a from t lateral view explode(x) y", errors.UnsupportedExpression, "LATERAL"),
    ("select a from t start with a = 1 connect by prior a = i", errors.UnsupportedExpression, "CONNECT"),
    ("with recursive c(n) as (select 1 union all select n from c) cycle n set p using q select 1",
     errors.UnsupportedExpression, "CYCLE"),
    ("select * from generate_series(1, 2) with ordinality", errors.UnsupportedExpression, "ORDINALITY"),
    ("select * from gm_nosuch()", errors.NoSuchFunction, "gm_nosuch"),
    ("select 1 from (t, u)", errors.InvalidSyntax, "commas"),
    ("select a from t group by a window w as (order by b)", errors.StatementError, "neither in GROUP BY"),
    ("select * from t natural join u on true", errors.InvalidSyntax, "NATURAL"),
    ("select * from t cross join u using (i)", errors.InvalidSyntax, "CROSS"),
    ("select a from t window w as (order by nosuch)", errors.NoSuchColumn, "nosuch"),
    ("select a from t union select k from u order by a + 1", errors.UnsupportedExpression, "set operation"),
    ("select a from other.t", errors.NoSuchTable, "no schema other"),
    ("select first_value(a) ignore nulls over () from t", errors.UnsupportedExpression, "IGNORE"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "error", "message"), REFUSED, ids=[text for text, _, _ in REFUSED])
def test_what_has_no_meaning_is_refused_by_name(
    binder: Binder, text: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=f"(?i){message}"):
        bound(binder, text)


DROPPED = [
    "rollback and chain",
    "rollback to",
    "begin immediate",
    "select * from t pivot (sum(a) for b in ('x'))",
    "select * from t dec with ordinality",
    "create table n (i int comment 'x')",
    "create table n (i int) row partition by range (i)",
    "select a from t qualify row_number() over () = 1",
    "select * exclude (a) from t",
    "select * from t for system_time as of now()",
    "select a from t cluster by a",
    "select count(a ignore nulls) from t",
    "select a from t where (a, i as ) in ((1, 2))",
    "select a from t limit 1, 2",
    "select a from t order by a natural join u",
    "select a from t order by a where a = 1",
    "select a from t order by a offset 1, u",
    "select a from t for update order by a",
    "select a from t limit 3 rows only",
    "select a from t order by a union select k from u",
    "select a from t order by a not null",
    "select as (a + 1) b from t",
    "select a from t as asc",
    "select 1x",
    "select 'a' 'b'",
    "select double 1",
    "select cast(a as varchar('9')) from t",
    "insert into only t values (1)",
    "insert into t * values (1)",
    "create table n (i int) ()",
    "with x(analyze) as (select 1) select 1",
]


@pytest.mark.parametrize("text", DROPPED)
def test_what_the_parser_passes_over_is_refused(binder: Binder, text: str) -> None:
    with pytest.raises(errors.StatementError):
        binder.statement(parser.parse(text).statement)  # type: ignore[arg-type]


KEPT = [
    "select all a, count(all i) from t limit all",
    "select a from t union distinct select k from u",
    "select a isnull, a notnull, b is unknown, interval '1' year, trim(both from b), trim(leading 'x' from b) from t",
    "select a from t offset 1 row fetch next 1 row only",
    "select cast(a as character varying(3)), a::double precision, a::int4, timestamp without time zone '2020-01-01'",
    "create table n (a timestamp without time zone, b character varying(10), c numeric(3,2), d integer null)",
    "alter table t add column c clob",
    "insert into t as z (a) values (default), (null) on conflict (i) do update set a = excluded.a returning *",
    "rollback to savepoint a",
    "rollback work",
    "select a from t order by a asc nulls last, b desc",
    "select a from t where a = some (select k from u) and $$x$$ = b and b <> e'y' and b > x'ff'",
    "select a from t limit 1 for update",
    "select a from t for update limit 1 offset 2",
    "insert into t select * from u limit 1 on conflict (i) where a > 0 do update set a = 1 where t.a = 2 returning a",
    "select a from t where a is distinct from i and not null and b is not null group by a union select 1 order by 1",
    "select 'a'\n'b'",
    'select "select", "of" as "limit" from t as "from"',
]


@pytest.mark.parametrize("text", KEPT)
def test_words_that_the_tree_says_otherwise_are_no_dropped_ones(text: str) -> None:
    parser.parse(text)


def test_a_text_that_breaks_the_parser_is_a_syntax_error() -> None:
    for text in ("else end", "alter table t rename a blockcompression to b", "select " + "(" * 3000):
        with pytest.raises(errors.InvalidSyntax):
            parser.parse(text)


def test_scopes_of_given_tables_have_their_columns_and_row_ids() -> None:
    column, row_id = tree.Column("a", type_of_value(1)), tree.Column("rowid", type_of_value(1))  # type: ignore[arg-type]
    scope = Scope.of_tables([("t", [column], row_id), ("excluded", [tree.Column("a", column.type)], None)])
    node = exp.column("a")
    assert scope.resolve("a", "t", node) == Reference(column.type, column)
    assert scope.resolve("rowid", None, node) == Reference(row_id.type, row_id)
    with pytest.raises(errors.AmbiguousColumn):
        scope.resolve("a", None, node)
