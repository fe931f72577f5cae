"""Names as statements write them: what is not quoted is in lower case, and there are no schemas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from gmdb.errors import InvalidSyntax, UnsupportedExpression
from gmdb.sql.dialect import GmdbSql, place
from gmdb.sql.syntax import reading


def folded(identifier: Any) -> str:
    """A name as the catalog has it.  Raises InvalidSyntax for what is no name."""
    if not isinstance(identifier, exp.Identifier):
        if not isinstance(identifier, exp.Expr):
            raise InvalidSyntax("syntax error: a name is missing")
        raise InvalidSyntax(f"syntax error: {identifier.sql()} is no name", *place(identifier))
    with reading(identifier) as syntax:
        name, quoted = str(syntax.need("this", "a name")), syntax.flag("quoted")
    return name if quoted else name.lower()


def table_name(node: Any) -> str:
    """The name of a table; what else there is of the node, an alias for instance, is the caller's to take."""
    if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
        raise UnsupportedExpression(f"{node.sql()} is no table", *place(node))
    if node.args.get("db") is not None or node.args.get("catalog") is not None:
        said = f"there are no schemas: write {node.name} for {node.sql()}"
        raise UnsupportedExpression(said, *place(node))
    return folded(node.this)


def name_alone(node: Any) -> str:
    """The name of a table, an index or a constraint, where nothing else may stand."""
    if not isinstance(node, exp.Table):
        return column_name(node)
    name = table_name(node)
    with reading(node) as syntax:
        syntax.ignore("this", "only")  # no table inherits from another
    return name


def column_name(node: Any) -> str:
    """The name of a column, where nothing else may stand."""
    if not isinstance(node, exp.Column):
        return folded(node)
    with reading(node) as syntax:
        return folded(syntax.need("this", "a name"))


def column_names(nodes: Sequence[exp.Expr]) -> list[str]:
    """The columns of a key or an index, in ascending order, NULLs last."""
    names = []
    for node in nodes:
        inner = node
        if isinstance(node, exp.Ordered):
            with reading(node) as syntax:
                inner = syntax.need("this", "a column")
        if not isinstance(inner, exp.Column | exp.Identifier):
            raise InvalidSyntax(f"{inner.sql(dialect=GmdbSql)} is no name of a column", *place(inner))
        names.append(column_name(inner))
    return names
