"""The clauses of MERGE, read and written: sqlglot's own lack OVERRIDING and DEFAULT VALUES, and read other dialects'.

when matched and t.n < s.n then update set n = s.n
when not matched [by target] then insert (id, n) overriding system value values (s.id, default)
when not matched by source then delete
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp
from sqlglot.tokens import TokenType  # type: ignore[attr-defined]


def read_clauses(parser: Any) -> exp.Whens:
    """All WHEN clauses; ``parser``: that of the statement, which stands behind the join's condition."""
    whens = []
    while parser._match(TokenType.WHEN):
        is_matched = not parser._match(TokenType.NOT)
        if not parser._match_text_seq("MATCHED"):
            parser.raise_error("WHEN takes MATCHED or NOT MATCHED")
        by_source = False
        if not is_matched and parser._match_text_seq("BY"):
            by_source = bool(parser._match_text_seq("SOURCE"))
            if not by_source and not parser._match_text_seq("TARGET"):
                parser.raise_error("NOT MATCHED BY takes SOURCE or TARGET")
        condition = parser._parse_disjunction() if parser._match(TokenType.AND) else None
        if not parser._match(TokenType.THEN):
            parser.raise_error("WHEN needs THEN")
        then = _action(parser)
        whens.append(parser.expression(exp.When(matched=is_matched, source=by_source, condition=condition, then=then)))
    return parser.expression(exp.Whens(expressions=whens))


def _action(parser: Any) -> exp.Expr:
    if parser._match(TokenType.UPDATE):
        if not parser._match(TokenType.SET):
            parser.raise_error("UPDATE needs SET")
        sets = parser._parse_csv(parser._parse_update_assignment)
        return parser.expression(exp.Update(expressions=sets))
    if parser._match(TokenType.DELETE):
        return exp.var("DELETE")
    if parser._match_text_seq("DO", "NOTHING"):
        return exp.var("DO NOTHING")
    if not parser._match(TokenType.INSERT):
        parser.raise_error("THEN takes UPDATE, DELETE, INSERT or DO NOTHING")
    if parser._match_text_seq("DEFAULT", "VALUES"):
        return parser.expression(exp.Insert(default=True))
    columns = parser._parse_wrapped_csv(parser._parse_id_var, optional=True) if _is_open(parser) else []
    words = parser._parse_overriding()
    if not parser._match_text_seq("VALUES"):
        parser.raise_error("INSERT needs VALUES or DEFAULT VALUES")
    if not _is_open(parser):
        parser.raise_error("VALUES needs a list of values in parentheses")
    values = parser._parse_wrapped_csv(parser._parse_assignment)
    target = exp.Tuple(expressions=columns) if columns else None
    settings = None if words is None else exp.var(words)
    row = exp.Tuple(expressions=values)
    return parser.expression(exp.Insert(this=target, expression=row, settings=settings))


def _is_open(parser: Any) -> bool:
    return parser._curr is not None and parser._curr.token_type == TokenType.L_PAREN


def written_clause(generator: Any, when: exp.When) -> str:
    """A WHEN clause as text."""
    kind = "MATCHED" if when.args["matched"] else "NOT MATCHED"
    kind += " BY SOURCE" if when.args.get("source") else ""
    condition = f" AND {generator.sql(when, 'condition')}" if when.args.get("condition") else ""
    then = when.args["then"]
    if isinstance(then, exp.Update):
        action = f"UPDATE SET {generator.expressions(then, flat=True)}"
    elif not isinstance(then, exp.Insert):
        action = generator.sql(then)
    elif then.args.get("default"):
        action = "INSERT DEFAULT VALUES"
    else:
        parts = ("INSERT", generator.sql(then, "this"), generator.sql(then, "settings"))
        action = " ".join([*filter(None, parts), "VALUES", generator.sql(then, "expression")])
    return f"WHEN {kind}{condition} THEN {action}"
