"""JSON and JSONB: by rows, by DuckDB and in PostgreSQL, over documents of all kinds."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from bench.postgres import Connection as Postgres
from bench.postgres import PostgresError, available, server

import gmdb
from gmdb import errors
from gmdb.database.connection import Connection
from gmdb.format.json_text import DEPTH_MAX, check, key_of, normal, parse
from gmdb.sql.plan.estimates import DUCK, ROWS

DOCUMENTS = [
    "{}",
    "[]",
    "null",
    "true",
    "false",
    '""',
    '"a"',
    "0",
    "-0",
    "1",
    "1.0",
    "-1.50",
    "1e3",
    "12e-1",
    "0e-3",
    "123456789012345678901234567890.1234567890",
    "1E+2",
    '"1"',
    '"\\u00e9\\t\\"\\\\ \\ud83d\\ude00"',
    '"\\u001f\\u007f/\\/"',
    "[1]",
    "[1.00]",
    "[[]]",
    "[{}]",
    "[null]",
    '["a", "b", "a"]',
    "[1, [2, [3, {}]]]",
    "[3,2,1,0,-1]",
    '{"a": 1}',
    '{"a":1.0}',
    '{"a": null}',
    '{"b": 1, "a": 2, "aa": 3, "": 4}',
    '{"a": 1, "a": {"a": 2}}',
    '{"a": {"b": [1, {"c": null}]}, "b": [null, "x"]}',
    ' { "z" : [ ] , "y" : { } , "ä" : "ö" , "yy" : "" } ',
    '{"a": [{"b": 1}, {"b": 2}], "c": "x\\ny"}',
    '{"1": "one", "-1": "minus", "a b": {"c,d": 5}}',
    '["a", {"a": 1}, ["a"], 1, null, true]',
]
BAD = [
    *("", " ", "{", "[1,]", "[1 2]", '{"a"}', '{"a":}', '{"a":1,}', "{a:1}", "nul", "NaN", "Infinity", "[-Infinity]"),
    *("01", "1.", ".5", "+1", "1e", "-", '"', '"\t"', '"\\x"', '"\\u12"', "[1]x", "'a'", "tru", "[1}", '{"a":1]'),
]
ONLY_JSON = ['"\\u0000"', '"\\ud800"', '{"a": "\\udc00"}', '["\\ud800\\u0041"]', '{"\\u0000": 1}']

# Of {j}, a JSONB, and {k}, the JSON that it was made of.
PATHS = (
    "{}",
    "{a}",
    "{a,b}",
    "{a,b,1,c}",
    "{0}",
    "{-1}",
    "{1,1}",
    "{9}",
    "{-9}",
    '{"a b","c,d"}',
    '{""}',
    "{a,NULL}",
    "{x,0}",
)
# ? is either.
OF_EITHER = (
    *("? -> 'a'", "? -> 'zz'", "? -> ''", "? -> 0", "? -> -1", "? -> 7", "? ->> 'a'", "? ->> 0", "? ->> -2"),
    *("? -> 'a' -> 'b'", "? -> 'a' ->> 'b'", "? -> 1 -> 1 ->> 0", "?::text"),
    *(f"? #> '{path}'" for path in PATHS),
    *(f"? #>> '{path}'" for path in PATHS),
)
OF_NAMED = (  # {0}: json or jsonb
    *("{0}_typeof({1})", "{0}_array_length({1})", "{0}_strip_nulls({1})", "{0}_extract_path({1}, 'a', 'b')"),
    *("{0}_extract_path_text({1}, 'a')", "{0}_extract_path({1}, '0')", "{0}_build_array({1}, 1, null, 'x', true)"),
    *("{0}_build_object('k', {1}, 'n', n, 'd', date '2020-02-29')", "to_{0}({1})", "{0}_object_field({1}, 'a')"),
    *("(select {0}_agg(value) from {0}_array_elements({1}))", "(select {0}_agg(e) from {0}_array_elements({1}) e)"),
    *(
        "(select count(value) from {0}_array_elements_text({1}))",
        "(select {0}_object_agg(key, value) from {0}_each({1}))",
    ),
    *("(select string_agg(key || '=' || coalesce(value, '~'), ';') from {0}_each_text({1}))",),
    *(
        "(select string_agg(k, ',') from {0}_object_keys({1}) k)",
        "(select {0}_agg(x order by x) from {0}_object_keys({1}) x)",
    ),
)
OF_JSONB = (
    *("j || '{\"a\": 5}'", "j || '[7]'", "j || '8'", "'{\"q\": 1}' || j", "'[]' || j", "j || j", "j || 'x'::text"),
    *("j - 'a'", "j - 0", "j - -1", "j - 9", "jsonb_pretty(j)", "j::json", "k::jsonb", "j = k::jsonb"),
    *(f"j #- '{path}'" for path in PATHS),
    *(f"jsonb_set(j, '{path}', '\"new\"')" for path in PATHS),
    *(f"jsonb_set(j, '{path}', '[1]', false)" for path in PATHS),
    *(f"jsonb_insert(j, '{path}', '9')" for path in PATHS),
    *(f"jsonb_insert(j, '{path}', '9', true)" for path in PATHS),
    *("j::int", "j::bigint", "j::numeric(20,3)", "j::float8", "j::boolean", "j::text::jsonb = j", "to_json(j)"),
    *(
        "nullif(j, '[1.0]')",
        "greatest(j, '2')",
        "least(j, '\"a\"', '[]')",
        "case j when '1' then 'one' when '{}' then 'o' end",
    ),
    *(f"j {symbol} '1'" for symbol in ("=", "<>", "<", "<=", ">", ">=", "is distinct from")),
    *(
        "j < '[]'",
        "j > '{}'",
        "j between '\"a\"' and '[1, 2]'",
        "j in ('1', '[1]', '{\"a\": 1}')",
        "coalesce(j -> 'a', j)",
    ),
    *("jsonb_exists(j, 'a')", "jsonb_exists_any(j, '{a,b}')", "jsonb_exists_all(j, '{a,b}')", "jsonb_delete(j, 'a')"),
)
PARTS = (
    "{}",
    "[]",
    "1",
    "1.000",
    '"a"',
    "null",
    '["a"]',
    '["a", "a"]',
    '{"a": 1}',
    '{"a": {}}',
    "[[]]",
    "[{}]",
    '{"a": {"b": [{}]}}',
)
OF_PARTS = tuple(f"j {symbol} '{part}'" for part in PARTS for symbol in ("@>", "<@"))
EXPRESSIONS = (
    *(one.replace("?", name) for one in OF_EITHER for name in ("j", "k")),
    *(one.format(kind, name) for one in OF_NAMED for kind, name in (("json", "k"), ("jsonb", "j"))),
    *OF_JSONB,
    *OF_PARTS,
)
QUERIES = (
    "select n, j from d order by j, n",
    "select n, j from d order by j desc nulls last, n",
    "select count(*), min(n) from d group by j order by 2",
    "select count(*) from (select distinct j from d) x",
    "select count(distinct j) from d",
    "select distinct on (j) n from d order by j, n",
    "select a.n, b.n from d a join d b on a.j = b.j order by 1, 2",
    "select a.n, b.n from d a left join d b on b.j = a.j -> 'a' order by 1, 2",
    "select count(*) from (select j from d union select j -> 'a' from d) x",
    "select count(*) from (select j -> 'a' from d intersect select j from d) x",
    "select count(*) from (select j from d except select j -> 'a' from d) x",
    "select n from d where j in (select j -> 'a' from d) order by n",
    "select n from d where j not in (select j -> 'a' from d where j -> 'a' is not null) order by n",
    "select n, rank() over (order by j), count(*) over (partition by j) from d order by n",
    "select n, j -> 'a' as a, count(*) from d group by grouping sets ((n), (j -> 'a')) order by 1, a",
    "select jsonb_agg(j order by j desc, n), json_agg(k order by n) from d where n % 3 = 0",
    "select jsonb_object_agg(n % 5, j order by n), json_object_agg(n, k order by n) from d",
    "select json_agg(d order by n)::jsonb, jsonb_agg(d order by n) from d",
    "select row_to_json(d), to_jsonb(x) from d, (values (1, 'a', true)) as x(i, t, b) order by n",
    "select n, e.key, e.value from d, jsonb_each(j) as e where jsonb_typeof(j) = 'object' order by n, 2",
    "select n, e from d left join lateral jsonb_array_elements(case jsonb_typeof(j) when 'array' then j end) as e "
    "on true order by n, e",
    "select n from d where j @> '{\"a\": 1}' and j ->> 'a' = '1' order by n",
)
Rows = list[tuple[str | None, ...]]


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    if not available():
        pytest.skip("needs PostgreSQL")
    with server() as connection:
        _fill(connection.ask)
        yield connection


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Connection]]:
    path: Path = tmp_path_factory.mktemp("json") / "db"
    connections = {executor: gmdb.connect(path) for executor in (ROWS, DUCK)}
    for executor, connection in connections.items():
        connection.autocommit = True
        connection._statements.executor = executor  # type: ignore[attr-defined]
    _fill(connections[ROWS].execute)
    yield connections
    for connection in connections.values():
        connection.close()


def _fill(run: Any) -> None:
    run("create table d (n int, j jsonb, k json)")
    for n, text in enumerate(DOCUMENTS):
        literal = text.replace("'", "''")
        run(f"insert into d values ({n}, '{literal}', '{literal}')")
    run("insert into d values (1000, null, null)")


def _as_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return ("t" if value else "f") if isinstance(value, bool) else str(value)


def _ours(connection: Connection, query: str, *values: Any) -> Rows | type[BaseException]:
    try:
        cursor = connection.cursor()
        cursor.read_document = str
        return [tuple(map(_as_text, row)) for row in cursor.execute(query, values)]
    except errors.DataError as error:
        return type(error)


def _theirs(postgres: Postgres, query: str) -> Rows | None:
    try:
        return [tuple(row) for row in postgres.ask(query).rows]
    except PostgresError:
        return None


def _differences(ways: dict[str, Connection], postgres: Postgres, expression: str) -> Iterator[str]:
    def text(first: Any, last: Any) -> str:
        return f"select n, ({expression})::text from d where n between {first} and {last} order by n"

    spans = [(0, 1000)]
    if _theirs(postgres, text(0, 1000)) is None:  # it fails for some: one by one, then
        spans = [(n, n) for n in range(len(DOCUMENTS))]
    for first, last in spans:
        theirs = _theirs(postgres, text(first, last))
        for way, connection in ways.items():
            ours = _ours(connection, text("?", "?"), first, last)
            if isinstance(ours, type) or theirs is None:
                if not (isinstance(ours, type) and theirs is None):
                    yield f"{expression} of {first}, by {way}: {ours}, not {theirs}"
                continue
            for row, other in zip(ours, theirs, strict=True):
                if row != other:
                    yield f"{expression}, by {way}: {row}, not {other}"


def test_every_expression_gives_what_postgresql_gives(ways: dict[str, Connection], postgres: Postgres) -> None:
    wrong = [one for expression in EXPRESSIONS for one in _differences(ways, postgres, expression)]
    assert not wrong, "\n".join(wrong[:40])


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_gives_what_postgresql_gives(ways: dict[str, Connection], postgres: Postgres, query: str) -> None:
    theirs = postgres.ask(query).rows
    for way, connection in ways.items():
        assert _ours(connection, query) == [tuple(row) for row in theirs], way


def test_texts_are_read_as_postgresql_reads_them(postgres: Postgres) -> None:
    for text in (
        *DOCUMENTS,
        *BAD,
        *ONLY_JSON,
        "1e131071",
        "1e131072",
        "1e-16383",
        "1e-16384",
        "[" * DEPTH_MAX + "]" * DEPTH_MAX,
    ):
        literal = text.replace("'", "''")
        for type_, read in (("json", check), ("jsonb", normal)):
            theirs = _theirs(postgres, f"select '{literal}'::{type_}::text")
            try:
                ours = [(str(read(text)),)]
            except errors.DataError:
                ours = None
            assert ours == theirs, (type_, text)


def test_keys_are_ordered_as_values_are(postgres: Postgres) -> None:
    texts = [normal(text) for text in DOCUMENTS]
    rows = postgres.ask("select a.n, b.n, a.j < b.j, a.j = b.j from d a, d b where a.n < 1000 and b.n < 1000").rows
    for first, second, is_less, is_equal in rows:
        a, b = texts[int(str(first))], texts[int(str(second))]
        assert (key_of(a) < key_of(b), key_of(a) == key_of(b)) == (is_less == "t", is_equal == "t"), (a, b)


@pytest.mark.parametrize("text", BAD)
def test_bad_text_is_refused_with_its_place(text: str) -> None:
    for read in (parse, normal):
        with pytest.raises(errors.InvalidText, match=r"no value of JSON|character \d+"):
            read(text)


def test_nesting_has_a_limit_that_is_told() -> None:
    assert normal("[" * DEPTH_MAX + "]" * DEPTH_MAX)
    assert normal('["' + "[" * DEPTH_MAX + '"]')
    with pytest.raises(errors.InvalidText, match=f"at most {DEPTH_MAX}"):
        normal("[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1))


VALUES: list[tuple[Any, Any]] = [
    ({"b": [1, 2.5, None, True], "a": {"x": "ü"}},) * 2,
    ([1, "two", {"three": 3}],) * 2,
    ('{"a": 1}', {"a": 1}),
    ('"text"', "text"),
    ("null", None),
    (None, None),
    ({"d": Decimal("1.10")}, {"d": 1.1}),
    ({"long": "x" * 50_000},) * 2,
]


@pytest.mark.parametrize(("value", "result"), VALUES)
def test_python_has_documents_as_json_loads_gives_them(db: Connection, value: Any, result: Any) -> None:
    db.execute("create table t (i int primary key, j jsonb, k json)")
    db.execute("insert into t values (?, ?, ?)", (1, value, value))
    assert db.execute("insert into t values (?, :v, :v) returning j, k".replace("?", "2"), {"v": value}).fetchall() == [
        (result, result)
    ]
    for query in ("select j, k from t where i = 1", "select j, k from t order by i limit 1"):
        assert db.execute(query).fetchone() == (result, result)
        assert list(db.execute(query)) == [(result, result)]
    texts = db.execute("select j, k from t where i = 1").arrow().to_pylist()[0]
    assert all(one is None or isinstance(one, str) for one in texts.values())


def test_a_parameter_is_json_where_json_is_needed(db: Connection) -> None:
    for value in ({"a": [1, None]}, [1, "a"], [[1], [2]]):
        assert db.execute("select ?", (value,)).fetchone() == (value,)
    for value in ([], [1, 2], [1, "a"], ["a"], {"a": 1}):
        assert db.execute("select ?::jsonb, cast(? as json)", (value, value)).fetchone() == (value, value)
    assert db.execute('select \'{"a": {"b": 1}}\'::jsonb #> ?', (["a", "b"],)).fetchone() == (1,)
    assert db.execute("select '[1]'::jsonb @> ?, '{\"a\": 1}'::jsonb ?? ?", ("1", "a")).fetchone() == (True, True)
    for bad in ({"a": object()}, {1: 2}, {"a": float("nan")}):
        with pytest.raises(errors.TypeMismatch):
            db.execute("select ?", (bad,))


def test_a_question_mark_alone_is_no_operator(db: Connection) -> None:
    for text in ("select '{}'::jsonb ? 'a'", "select '{}'::jsonb ?| '{a}'", "select '{}'::jsonb ?& '{a}'"):
        with pytest.raises(errors.InvalidSyntax):
            db.execute(text, ("x",))


def test_json_is_in_no_index_and_is_not_compared(db: Connection) -> None:
    db.execute("create table t (i int primary key, j jsonb, k json)")
    for text in ("create index on t (j)", "create index on t (k)", "create table u (j jsonb primary key)"):
        with pytest.raises(errors.SchemaError, match="cannot be part of a key"):
            db.execute(text)
    for text in (
        *(
            "select k = k from t",
            "select k from t group by k",
            "select distinct k from t",
            "select i from t order by k",
        ),
        *("select k from t union select k from t", "select count(distinct k) from t", "select max(j) from t"),
        *("select rank() over (partition by k) from t", "select j + 1 from t", "select j -> true from t"),
        "select j from t intersect all select j from t",
    ):
        with pytest.raises((errors.IllTyped, errors.UnsupportedExpression)):
            db.execute(text)


def test_the_row_api_and_arrow_check_what_they_take(db: Connection) -> None:
    db.execute("create table t (i int primary key, j jsonb, k json)")
    heap = db.heap("t")
    row_id = heap.insert((1, '{"b":1,"a":2}', ' {"b":1} '))
    assert heap.fetch(row_id) == (1, '{"a": 2, "b": 1}', ' {"b":1} ')
    heap.update(row_id, {"j": {"long": "x" * 50_000}})
    assert heap.fetch(row_id)[1] == '{"long": "' + "x" * 50_000 + '"}'
    table = pa.table({"i": [2], "j": ['{"b":[1.0],"a":2}'], "k": ["[1,2]"]})
    db.append("t", table)
    assert db.execute("select j, k from t where i = 2").arrow().to_pylist() == [
        {"j": '{"a": 2, "b": [1.0]}', "k": "[1,2]"}
    ]
    for change in (
        lambda: heap.insert((3, "{", None)),
        lambda: heap.insert((3, None, {"a": object()})),
        lambda: heap.update(row_id, {"k": "[1"}),
        lambda: db.append("t", pa.table({"i": [3], "j": ["{"], "k": [None]})),
        lambda: db.execute("insert into t values (3, ?, null)", ("{",)),
        lambda: db.executemany("insert into t values (?, ?, null)", [(3, "1"), (4, "{")]),
    ):
        with pytest.raises(errors.DataError):
            change()
    assert db.execute("select count(*) from t").fetchone() == (2,)


def test_conversions_of_arrays(db: Connection) -> None:
    row = db.execute("select to_json(array[1, null]), to_jsonb(array['a', 'b']), json_build_object('a', array[1.5])")
    assert row.arrow().to_pylist()[0] == dict(
        zip(("to_json", "to_jsonb", "json_build_object"), ("[1,null]", '["a", "b"]', '{"a" : [1.5]}'), strict=True)
    )


def test_a_cursor_forgets_the_documents_of_the_statement_before(db: Connection) -> None:
    cursor = db.execute("select '[1]'::jsonb as j union all select '[2]'")
    assert cursor.fetchone() is not None
    assert cursor.execute("select 5 as i").arrow().to_pylist() == [{"i": 5}]
    cursor.execute("select '{\"a\": 1.0}'::jsonb as j")
    assert "1.0" in cursor._repr_html_()
    assert cursor.fetchall() == [({"a": 1.0},)]
    db.execute("create table t (i int primary key, j jsonb)")
    new = "merge into t using (values (1)) as v(i) on false when not matched then insert values (v.i, '{}')"
    assert cursor.execute(f"{new} returning t.j").fetchall() == [({},)]
    assert cursor.execute("with d as (delete from t returning j) select * from d").fetchall() == [({},)]
