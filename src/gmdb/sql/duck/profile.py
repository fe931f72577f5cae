"""What DuckDB did for a query: EXPLAIN ANALYZE, a line for each of its operators."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from gmdb.sql.duck.answer import Watch
from gmdb.sql.duck.text import Written
from gmdb.sql.duck.text import run as run_written
from gmdb.sql.run import Run
from gmdb.sql.tree import Relation
from gmdb.sql.types import TEXT

_EXPLAIN = "EXPLAIN (ANALYZE, FORMAT json) "


@dataclass(frozen=True, slots=True)
class Profile:
    """``rows``: of the result.  ``read``: how many were read of each relation that DuckDB is handed."""

    rows: int
    lines: tuple[str, ...]
    read: tuple[tuple[Relation, int], ...]


def profile(written: Written, run: Run, watch: Watch | None = None) -> Profile:
    """Run a query to its end, without its rows."""
    explained = replace(written, sql=_EXPLAIN + written.sql, names=("key", "value"), types=(TEXT, TEXT))
    with run_written(explained, run, watch) as answer:
        text = answer.reader.read_all().column("value")[0].as_py()
        read = answer.rows_read()
    (top,) = _operators(json.loads(text)["operator"])
    return Profile(
        _rows(top), tuple(_lines(top, 0)), tuple((one.relation, read.get(one.alias, 0)) for one in written.reads)
    )


def _operators(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of the query itself."""
    (node,) = nodes
    return _operators(node["children"]) if node["type"] in ("RESULT_COLLECTOR", "EXPLAIN_ANALYZE") else nodes


def _rows(node: dict[str, Any]) -> int:
    return int(node.get("intermediate_rows", 0))


def _lines(node: dict[str, Any], depth: int) -> Iterator[str]:
    name = node["type"].lower().replace("_", " ")
    kind = node["extra_info"].get("Join Type", "").lower()
    yield f"{'  ' * depth}{f'{kind} ' if kind else ''}{name}: {_rows(node)} rows, {node['timing'] * 1000:.3f} ms"
    for child in node.get("children", ()):
        yield from _lines(child, depth + 1)
