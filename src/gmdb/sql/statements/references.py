"""Foreign keys, as CREATE TABLE and ALTER TABLE write them: ``references p (id) on delete cascade deferrable``."""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot import exp

from gmdb.errors import InvalidSyntax, UnsupportedExpression
from gmdb.process.late_dataclasses import replace
from gmdb.process.late_patterns import late_pattern
from gmdb.sql.dialect import GmdbSql, place
from gmdb.sql.syntax import Syntax, Written, column_names, reading, table_name_alone
from gmdb.tables.catalog.schema import FOREIGN_KEY, Constraint

_ACTION = late_pattern(r"on (delete|update) (no action|restrict|cascade|set null|set default)(?: \((.*)\))?", re.I)
_NAME = late_pattern(r'"((?:[^"]|"")*)"|([^\s,"]+)')
_MATCH = {"match simple": False, "match full": True}
_WHEN = {
    "deferrable": ("deferrable", True),
    "not deferrable": ("deferrable", False),
    "initially deferred": ("deferred", True),
    "initially immediate": ("deferred", False),
}


Meaning = Callable[[Written, exp.Expr], str]  # the full name of the table that a name means


def read_foreign_key(syntax: Syntax, own: tuple[str, ...], name: str, meaning: Meaning) -> Constraint:
    """A foreign key of a table, or of the column with which it was written."""
    node, columns = syntax.node, own
    if isinstance(node, exp.ForeignKey):
        columns = tuple(column_names(syntax.list("expressions")))
        if own:
            raise InvalidSyntax("syntax error: behind a column stands REFERENCES alone", *place(node))
        with reading(syntax.need("reference", "REFERENCES")) as reference:
            return _read(reference, columns, name, meaning)
    return _read(syntax, columns, name, meaning)


def _read(syntax: Syntax, columns: tuple[str, ...], name: str, meaning: Meaning) -> Constraint:
    key: tuple[str, ...] = ()
    target = syntax.need("this", "a table")
    if isinstance(target, exp.Schema):
        with reading(target) as schema:
            key = tuple(column_names(schema.list("expressions")))
            target = schema.need("this", "a table")
    parent = meaning(table_name_alone(target), target)
    constraint = Constraint(FOREIGN_KEY, columns, name=name, references=parent, key=key)
    given: set[str] = set()
    for option in syntax.list("options"):
        text = " ".join(str(option).split())
        constraint, what = _with(constraint, text, syntax.node)
        if what in given:
            raise InvalidSyntax(f"syntax error: {text} says what was said before", *place(syntax.node))
        given.add(what)
    if constraint.deferred and "deferrable" not in given:
        constraint = replace(constraint, deferrable=True)
    if constraint.deferred and not constraint.deferrable:
        raise InvalidSyntax("syntax error: what is INITIALLY DEFERRED must be DEFERRABLE", *place(syntax.node))
    return constraint


def _with(constraint: Constraint, text: str, node: exp.Expr) -> tuple[Constraint, str]:
    """The constraint with an option, and which one that is."""
    low = text.lower()
    if low in _MATCH:
        return replace(constraint, match_full=_MATCH[low]), "match"
    if low in _WHEN:
        field, value = _WHEN[low]
        return (
            replace(constraint, deferrable=value) if field == "deferrable" else replace(constraint, deferred=value)
        ), field
    action = _ACTION.fullmatch(text)
    if action is None:
        raise UnsupportedExpression(f"{text} is not supported for foreign keys", *place(node))
    event, what, listed = action.groups()
    if event.lower() == "update":
        if listed is not None:
            raise InvalidSyntax(f"syntax error: {text}: columns are listed for ON DELETE only", *place(node))
        return replace(constraint, on_update=what.lower()), "on update"
    names = tuple(quoted.replace('""', '"') or word.lower() for quoted, word in _NAME.findall(listed or ""))
    return replace(constraint, on_delete=what.lower(), sets=names), "on delete"


def shown(constraint: Constraint) -> str:
    """What a foreign key says, as SQL writes it."""

    def names(columns: tuple[str, ...]) -> str:
        return ", ".join(exp.to_identifier(column).sql(dialect=GmdbSql) for column in columns)

    parts = [f"REFERENCES {names((constraint.references,))} ({names(constraint.key)})"]
    parts += ["MATCH FULL"] if constraint.match_full else []
    for event, action in (("DELETE", constraint.on_delete), ("UPDATE", constraint.on_update)):
        if action != "no action":
            sets = f" ({names(constraint.sets)})" if event == "DELETE" and constraint.sets else ""
            parts.append(f"ON {event} {action.upper()}{sets}")
    if constraint.deferrable:
        parts.append("DEFERRABLE INITIALLY DEFERRED" if constraint.deferred else "DEFERRABLE")
    return " ".join([*parts, *([] if constraint.valid else ["NOT VALID"])])
