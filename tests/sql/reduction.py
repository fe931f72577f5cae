"""A question made shorter, as long as what is wrong with it stays wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tests.sql.questions import Question

_TRIES = 400
_DIALECT = "postgres"
_REFUSAL = re.compile(r"\b(?:[A-Z][a-z]+[A-Z]\w+(?=: )|[0-9A-Z]{5}(?=: ))")  # the class of an error, or its SQLSTATE
_OPTIONAL = ("where", "joins", "order", "limit", "offset", "having", "distinct", "group", "returning", "conflict")


def reduced(question: Question, told: str, difference: Callable[[Question], str]) -> Question:
    """The shortest question that was found which differs in the same way as ``told`` says of this one."""
    kind = _kind(told)
    tries = 0
    shorter = True
    while shorter:
        shorter = False
        for text in _shorter_texts(question):
            tries += 1
            if tries > _TRIES:
                return question
            candidate = replace(question, text=text, ordered=question.ordered and "ORDER BY" in text)
            if _differs_so(candidate, kind, difference):
                question, shorter = candidate, True
                break
    return question


def _kind(told: str) -> tuple[str, ...]:
    """Which ways differ, and which errors there are."""
    ways, _, what = told.partition(": ")
    return ways, "type" if what.startswith("type") else "", *_REFUSAL.findall(what)


def _differs_so(question: Question, kind: tuple[str, ...], difference: Callable[[Question], str]) -> bool:
    told = difference(question)
    return bool(told) and _kind(told) == kind


def _tells_nothing(tree: exp.Expr) -> bool:
    """Some rows of others, without an order: which ones is not told."""
    cut = [one.parent for one in tree.find_all(exp.Limit, exp.Offset)]
    return any(query is not None and query.args.get("order") is None for query in cut)


def _shorter_texts(question: Question) -> Iterator[str]:
    """The statement without one of its parts, or with one of its parts instead of another: the shortest first."""
    marked = question.text.replace("«", "mark_begins_").replace("»", "_mark")
    try:
        tree = sqlglot.parse_one(marked, read=_DIALECT)
    except SqlglotError:
        return
    texts = set()
    for place in range(sum(1 for _ in tree.walk())):
        for change in range(8):
            copy = tree.copy()
            node = list(copy.walk())[place]
            with suppress(ValueError, AttributeError):  # of sqlglot, of a tree that nobody could have written
                if _changed(node, change) and not _tells_nothing(copy):
                    texts.add(copy.sql(dialect=_DIALECT))
    for text in sorted(texts, key=len):
        if len(text) < len(marked):
            yield text.replace("mark_begins_", "«").replace("_mark", "»")


def _changed(node: exp.Expr, change: int) -> bool:
    """Make the node smaller in the way of this number; whether there is that."""
    if change == 0:
        optional = [name for name in _OPTIONAL if node.args.get(name)]
        if (optional and node.parent is None) or (isinstance(node, exp.Select) and optional):
            node.set(optional[0], None)
            return True
        return False
    if change == 1 and isinstance(node, exp.Where | exp.Join | exp.Order | exp.Limit | exp.With) and node.parent:
        node.pop()
        return True
    if change == 2 and len(node.expressions) > 1:
        node.set("expressions", node.expressions[:1])
        return True
    if change == 3 and len(node.expressions) > 1:
        node.set("expressions", node.expressions[1:])
        return True
    parts = [one for one in node.iter_expressions() if isinstance(one, exp.Condition | exp.Query)]
    if change >= 4 and node.parent is not None and isinstance(node, exp.Condition) and change - 4 < len(parts):
        node.replace(parts[change - 4].copy())
        return True
    return False
