"""Plans that are one row, found by its whole key: what programs ask for and change most."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from gmdb.catalog.schema import TableDefinition
from gmdb.format.columns import ColumnType
from gmdb.sql.plan.paths import Access
from gmdb.sql.plan.terms import has_queries
from gmdb.sql.rows.expressions import compile_row
from gmdb.sql.tree import Expression, Output, Parameter, Project, Relation, Table


@dataclass(frozen=True, slots=True)
class Point:
    """``key`` gives, for parameters, the values of the index's columns; None among them: there is no row.

    It may give values that are none of the columns' types: encoding them raises DataError.  ``outputs``: what the plan
    makes of the row; None: its columns.
    """

    table: TableDefinition
    index: str
    key: Callable[[Any], tuple[Any, ...]]
    table_node: Table
    outputs: tuple[Output, ...] | None


def point_of(tree: Relation) -> Point | None:
    outputs = tree.outputs if isinstance(tree, Project) else None
    tree = tree.source if isinstance(tree, Project) else tree
    if not isinstance(tree, Access) or not tree.path.is_single or tree.path.index is None:
        return None
    (span,) = tree.path.spans
    if any(map(has_queries, span.equal)):
        return None
    key = _key(span.equal, tree.path.fits(), [column.type for column in tree.path.columns])
    return Point(tree.table.definition, tree.path.index.name, key, tree.table, outputs)


def _key(
    values: tuple[Expression, ...], fits: tuple[Callable[[Any], Any] | None, ...], types: list[ColumnType]
) -> Callable[[Any], tuple[Any, ...]]:
    """The key as a function of the parameters."""
    if not any(fits) and all(
        isinstance(value, Parameter) and _is_plain(value, t) for value, t in zip(values, types, strict=True)
    ):
        names = [value.key for value in values if isinstance(value, Parameter)]
        if len(names) == 1:
            (only,) = names
            return lambda parameters: (parameters[only],)
        get: Callable[[Any], tuple[Any, ...]] = itemgetter(*names)
        return get
    evaluate = compile_row(values, ())
    if not any(fits):
        return lambda parameters: tuple(evaluate((), parameters))

    def key(parameters: Any) -> tuple[Any, ...]:
        found = zip(fits, evaluate((), parameters), strict=True)
        return tuple([value if fit is None or value is None else fit(value) for fit, value in found])

    return key


def _is_plain(value: Parameter, type_: ColumnType) -> bool:
    """Whether the parameter's value is the key's as it is given, or refused by the key's encoder."""
    return value.type == type_ and (value.given == type_ or (value.given is None and type_.name == "VARCHAR"))
