"""Expressions that definitions keep as texts: which columns they name, and what they say after a name has changed.

They are read and written by the parsed tree, so that a text within quotes, or a function of the same name, is left
alone.  All columns of such an expression are its own table's, and stand there without the table's name, so that a
table gets another name without any of them changing.  Instants stand there with their zone, so that they are the same
in all sessions: an expression is bound before it is written.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from gmdb.sql.dialect import INSTANT, GmdbSql, parse_expression
from gmdb.sql.syntax import folded


def written(node: exp.Expr) -> str:
    """An expression as SQL writes it, for the catalog to keep."""
    return node.transform(_with_zone).sql(dialect=GmdbSql)


def _with_zone(node: exp.Expr) -> exp.Expr:
    return exp.Literal.string(node.meta[INSTANT]) if INSTANT in node.meta else node


def columns_named(text: str) -> set[str]:
    """The columns that an expression asks for."""
    return {folded(column.this) for column in parse_expression(text).find_all(exp.Column)}


def renamed(text: str, names: Mapping[str, str]) -> str:
    """An expression after columns have got other names, given by their old ones.

    RENAME COLUMN calls it for every CHECK of the table.  Whatever else comes to keep an expression over the columns of
    one table (a generated column, the condition or a key of an index) has it called there, too.
    """
    node = parse_expression(text)
    for column in list(node.find_all(exp.Column)):
        new = names.get(folded(column.this))
        if new is not None:
            column.set("this", exp.to_identifier(new, quoted=True))
    return written(node)
