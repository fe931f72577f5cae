"""Functions, operators, casts and aggregates: declared once, for both executors."""

from __future__ import annotations

from gmdb.sql.operations.aggregates import aggregation
from gmdb.sql.operations.conversions import assignment, cast, read_literal, widen
from gmdb.sql.operations.registry import Aggregation, Operation, apply, function_of, written
from gmdb.sql.operations.resolution import COMPARISONS, names, operator, overloads, resolve, row_function, unary

__all__ = [
    "COMPARISONS",
    "Aggregation",
    "Operation",
    "aggregation",
    "apply",
    "assignment",
    "cast",
    "function_of",
    "names",
    "operator",
]
__all__ += ["overloads", "read_literal", "resolve", "row_function", "unary", "widen", "written"]
