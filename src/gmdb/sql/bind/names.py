"""What PostgreSQL calls a column of a query that was given no name."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from gmdb.sql.names import folded

NAMELESS = "?column?"
_CALLED: dict[type, str] = {exp.Exists: "exists", exp.StrPosition: "position", exp.Tuple: "row"}
_TRIMS = {"LEADING": "ltrim", "TRAILING": "rtrim"}
_TYPE_NAMES = {
    **{"INT": "int4", "SMALLINT": "int2", "BIGINT": "int8", "DECIMAL": "numeric", "FLOAT": "float4"},
    **{"DOUBLE": "float8", "BOOLEAN": "bool", "CHAR": "bpchar", "NCHAR": "bpchar", "NVARCHAR": "varchar"},
    **{"VARBINARY": "bytea", "BINARY": "bytea", "TIMESTAMPNTZ": "timestamp", "LONGTEXT": "clob"},
}
_TRANSPARENT = (exp.Paren, exp.Filter, exp.Window, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls, exp.Collate)


def output_name(node: exp.Expr) -> str:
    """What a query calls the column that an item of its select list is."""
    return folded(node.args["alias"]) if isinstance(node, exp.Alias) else _figured(node)[0]


def _figured(node: exp.Expr) -> tuple[str, bool]:
    """A name, and whether it is a good one: a cast or CASE around it keeps it then."""
    if isinstance(node, exp.Column | exp.Dot):
        name = node.this if isinstance(node, exp.Column) else node.expression
        return (folded(name), True) if isinstance(name, exp.Identifier) else (NAMELESS, False)
    if isinstance(node, _TRANSPARENT):
        return _figured(node.this)
    if isinstance(node, exp.Cast):
        name, is_good = _figured(node.this)
        return (name, True) if is_good else (_type_name(node.args["to"]), False)
    if isinstance(node, exp.Subquery):
        query = node.unnest()
        return _of_query(query)
    if isinstance(node, exp.Case):
        default = node.args.get("default")
        name, is_good = _figured(default) if default is not None else (NAMELESS, False)
        return (name, True) if is_good else ("case", False)
    if isinstance(node, exp.Trim):
        return _TRIMS.get(str(node.args.get("position") or "").upper(), "btrim"), True
    if isinstance(node, exp.Anonymous):
        name = node.this
        return (name.name if isinstance(name, exp.Identifier) else str(name).lower()), True
    if isinstance(node, exp.Interval):
        return "interval", False
    if type(node) in _CALLED:
        return _CALLED[type(node)], True
    if isinstance(node, exp.Func) and not isinstance(node, exp.Binary | exp.Concat | exp.StartsWith):
        return node.sql_name().lower(), True
    return NAMELESS, False


def _of_query(query: Any) -> tuple[str, bool]:
    """A query that stands for a value is called as its only column."""
    while isinstance(query, exp.SetOperation | exp.Subquery):
        query = query.this
    if isinstance(query, exp.Select) and query.expressions:
        return output_name(query.expressions[0]), True
    return NAMELESS, False


def _type_name(node: exp.Expr) -> str:
    kind = node.this
    name = kind.value if isinstance(kind, exp.DType) else "interval" if isinstance(kind, exp.Interval) else str(kind)
    return _TYPE_NAMES.get(name, name.lower())
