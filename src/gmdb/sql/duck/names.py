"""What a query's column is called when no name is given, as PostgreSQL calls it."""

from __future__ import annotations

from sqlglot import exp

from gmdb.sql.duck.scope import folded

_NAMELESS = "?column?"
_CALLED: dict[type[exp.Expr], str] = {
    exp.GroupConcat: "string_agg",
    exp.LogicalAnd: "bool_and",
    exp.LogicalOr: "bool_or",
    exp.Pow: "power",
    exp.StrPosition: "strpos",
    exp.Extract: "extract",
    exp.TimestampTrunc: "date_trunc",
    exp.TimeToStr: "to_char",
    exp.CurrentTimestamp: "now",
    exp.Variance: "variance",
    exp.VariancePop: "var_pop",
    exp.Rand: "random",
    exp.Trim: "btrim",
    exp.Chr: "chr",
}
_TYPE_NAMES = {
    "INT": "int4",
    "SMALLINT": "int2",
    "BIGINT": "int8",
    "DECIMAL": "numeric",
    "DOUBLE": "float8",
    "BOOLEAN": "bool",
    "VARCHAR": "varchar",
    "CHAR": "bpchar",
    "VARBINARY": "bytea",
}


def output_name(node: exp.Expr) -> str:
    if isinstance(node, exp.Alias):
        return folded(node.args["alias"])
    if isinstance(node, exp.Column):
        return folded(node.this)
    if isinstance(node, exp.Paren | exp.Filter | exp.Window | exp.WithinGroup | exp.Collate):
        return output_name(node.this)
    if isinstance(node, exp.Cast):
        inner = output_name(node.this)
        type_ = node.args["to"].this
        kind = type_.value if isinstance(type_, exp.DType) else str(type_)
        return inner if inner != _NAMELESS else _TYPE_NAMES.get(kind, kind.lower())
    if isinstance(node, exp.Subquery):
        inner_query = node.unnest()
        return output_name(inner_query.expressions[0]) if isinstance(inner_query, exp.Select) else _NAMELESS
    if isinstance(node, exp.Case):
        default = node.args.get("default")
        inner = output_name(default) if isinstance(default, exp.Column | exp.Cast) else _NAMELESS
        return inner if inner != _NAMELESS else "case"
    if isinstance(node, exp.Exists):
        return "exists"
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower()
    if isinstance(node, exp.Boolean):
        return "bool"
    if type(node) in _CALLED:
        return _CALLED[type(node)]
    if isinstance(node, exp.Func) and not isinstance(node, exp.Binary | exp.Connector):
        return node.sql_name().lower()
    return _NAMELESS


LISTING_PREFIX = "gm_"  # of table functions that the inspector answers


def is_listing(node: object) -> bool:
    """Whether something in FROM is a call of such a function."""
    return isinstance(node, exp.Anonymous) and str(node.this).lower().startswith(LISTING_PREFIX)


def listing_name(node: exp.Expr) -> str:
    """What a call is known by among the tables of a query: itself."""
    return node.sql(dialect="postgres", normalize_functions="lower")
