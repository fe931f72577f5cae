"""Random queries, asked of gmdb and of PostgreSQL: the same rows, the same order where there is one, the same types."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
import sqlglot
from bench.postgres import Connection, PostgresError, available, server

from gmdb.errors import Error
from gmdb.sql.duck import run
from tests.sql.differences import difference
from tests.sql.random_queries import Queries
from tests.sql.tables import COLUMNS, ArrowSource, create_statements, random_rows, rows_of

pytestmark = pytest.mark.skipif(not available(), reason="needs PostgreSQL's programs")
QUERIES_PER_SEED = 100
SIZES = {"t1": 12, "t2": 7, "t3": 4}


@pytest.fixture(scope="module")
def postgres() -> Iterator[Connection]:
    with server() as connection:
        yield connection


def fill(postgres: Connection, seed: int) -> dict[str, ArrowSource]:
    """The same random tables on both sides."""
    random = Random(seed)
    tables = {}
    for name in (*SIZES, "t4"):
        columns = dict(COLUMNS) if name != "t4" else {**COLUMNS, "k": "int"}
        rows = random_rows(random, SIZES.get(name, 25))
        if name == "t4":
            rows = [(*row, number) for number, row in enumerate(rows)]
        tables[name] = ArrowSource(columns, rows)
        postgres.ask(f"DROP TABLE IF EXISTS {name}")
        postgres.ask(create_statements(name, tables[name].columns, rows))
    return tables


def check(postgres: Connection, tables: dict[str, ArrowSource], text: str, ordered: bool) -> str:
    """What differs between the two answers, or nothing; an error is the same as an error."""
    try:
        theirs = postgres.ask(text)
    except PostgresError as error:
        with pytest.raises(Error):
            rows_of(run(sqlglot.parse_one(text, read="postgres"), tables).reader.read_all())
        return "" if error.state.startswith("22") else f"PostgreSQL: {error}"
    answer = run(sqlglot.parse_one(text, read="postgres"), tables)
    return difference(answer.types, rows_of(answer.reader.read_all()), theirs, ordered)


@pytest.mark.parametrize("seed", range(5))
def test_random_queries_have_postgresqls_answers(postgres: Connection, seed: int):
    tables = fill(postgres, seed)
    for number in range(QUERIES_PER_SEED):
        text, ordered = Queries(Random(f"{seed}-{number}")).query()
        assert check(postgres, tables, text, ordered) == "", text


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM t1 JOIN t2 USING (i, f)",
        "SELECT * FROM t1 LEFT JOIN t2 USING (c)",
        "SELECT i, count(*) FROM t1 FULL JOIN t2 USING (i) GROUP BY i",
        "SELECT count(*) FROM t1 NATURAL JOIN t1 AS other",
        "SELECT q.i, z.n FROM t1 AS q, LATERAL (SELECT sum(p.n) AS n FROM t2 AS p WHERE p.i < q.i) AS z",
        "SELECT q.i, z.s FROM t1 AS q LEFT JOIN LATERAL (SELECT s FROM t2 WHERE t2.i = q.i) AS z ON true",
        "SELECT s, f, count(*), sum(n) FROM t1 GROUP BY ROLLUP (s, f)",
        "SELECT s, f, avg(n) FROM t1 GROUP BY CUBE (s, f)",
        "SELECT s, f, max(d) FROM t1 GROUP BY GROUPING SETS ((s), (f), ())",
        "SELECT DISTINCT ON (f) f, i, n FROM t1 ORDER BY f, i, n, m",
        "SELECT (i, s) IN (SELECT i, s FROM t2) FROM t1",
        "SELECT i FROM t1 WHERE (i, j) NOT IN (SELECT i, j FROM t2 WHERE i IS NOT NULL)",
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY x) FROM t1",
        "SELECT percentile_disc(0.25) WITHIN GROUP (ORDER BY i) FROM t1",
        "SELECT corr(x, i), covar_pop(i, j), bit_or(i), bit_and(j) FROM t1",
        "SELECT k, sum(n) OVER (ORDER BY i RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) FROM t4",
        "SELECT k, count(*) OVER (PARTITION BY f ORDER BY d GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t4",
        "SELECT f, sum(count(*)) OVER (ORDER BY f), rank() OVER (ORDER BY count(*) DESC) FROM t1 GROUP BY f",
        "SELECT nth_value(k, 2) OVER (ORDER BY k), lead(s, 1, 'none') OVER (ORDER BY k) FROM t4",
        "WITH RECURSIVE r(a, b) AS (SELECT 1, '' UNION ALL SELECT a + 1, b || a FROM r WHERE a < 5) SELECT * FROM r",
        "WITH a AS (SELECT i FROM t1), b AS (SELECT i FROM a WHERE i > 0) SELECT count(*) FROM a, b",
        "SELECT extract(epoch FROM t - timestamp '2020-01-01'), extract(day FROM t - timestamp '2020-01-01') FROM t1",
        "SELECT x::text, m::text, t::text, (x * 3)::numeric(12,3) FROM t1",
        "SELECT max(i) FILTER (WHERE f), string_agg(DISTINCT s, '|' ORDER BY s), count(DISTINCT c) FROM t1",
        "SELECT count(*) FROM t1 HAVING sum(n) / count(*) > -1000 AND avg(m) / avg(n) * avg(n) IS NOT NULL",
        "SELECT avg(n) * avg(m) / nullif(avg(m) - 1, 0), sum(n) * sum(m) FROM t1",
        "VALUES (1, 'a'), (2.5, NULL) ORDER BY 1 DESC",
        "SELECT i FROM t1 UNION ALL SELECT NULL UNION ALL SELECT 1.5 ORDER BY 1 NULLS FIRST LIMIT 3",
        "SELECT CASE i WHEN 1 THEN 'one' WHEN j THEN s END, nullif(c, 'ab'), coalesce(s, c) FROM t1",
        "SELECT c = s, c || '.', c::text || '.', length(c), c LIKE 'ab', c IN ('ab', 'a '), c > 'a' FROM t1",
        "SELECT i FROM t1 WHERE d BETWEEN SYMMETRIC '2020-02-20' AND '2020-02-01' OR t < '2020-02-28'",
        "SELECT g, g * 2 FROM generate_series(3, 1, -1) AS g",
        "SELECT y, length(y), y || '\\x00'::bytea, y > '\\x61'::bytea FROM t1",
        "SELECT trunc(m, -2), round(m, -3), m % 7, div(m, 3), mod(i, 3), sign(n), n ^ 2 FROM t1",
        "SELECT s ~ '^a', s ~* '^A', s !~ 'b', regexp_replace(s, '[ab]', '<\\&>', 'g') FROM t1",
        "SELECT s FROM t1 WHERE s NOT LIKE '%\\_%'",
    ],
)
def test_clauses_that_the_grammar_lacks_have_postgresqls_answers(postgres: Connection, text: str):
    tables = fill(postgres, 1)
    assert check(postgres, tables, text, "ORDER BY 1" in text) == ""
