"""Views in random statements: what a statement reads, or changes, is put behind views, which must mean the same.

A table becomes a view of it, a query in FROM a view of that query, a whole query ``select * from`` a view, and the
table that a statement changes an updatable view, perhaps one over another, with a condition and with a check option.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import sqlglot
from sqlglot import exp

from tests.sql.questions import Question
from tests.sql.random_lookups import TABLES
from tests.sql.tables import COLUMNS

_DIALECT = "postgres"
_NAMES = [*COLUMNS, "k"]


class Views:
    """The views of one question."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.made: list[str] = []

    def view(self, query: str, end: str = "", columns: int = 0) -> str:
        name = f"w{len(self.made) + 1}"
        listed = f" ({', '.join(f'c{n}' for n in range(columns))})" if columns else ""
        self.made.append(f"CREATE VIEW {name}{listed} AS {query}{end}")
        return name

    def of_table(self, table: str, updatable: bool = False) -> str:
        """A view of a table's rows; perhaps of a view of them."""
        names = list(_NAMES)
        self._random.shuffle(names)
        columns = self._random.choice(["*", "*", ", ".join(names)])
        conditions = ["", "", " WHERE k % 3 <> 0", " WHERE i > 0 OR f"]
        if not updatable:
            conditions += [f" WHERE k IN (SELECT k FROM {table} AS same WHERE j IS NOT NULL)", " ORDER BY i LIMIT 1000"]
        end = self._random.choice(["", " WITH CHECK OPTION", " WITH LOCAL CHECK OPTION"]) if updatable else ""
        name = self.view(f"SELECT {columns} FROM {table} AS x{self._random.choice(conditions)}", end)
        return self.of_table(name, updatable) if self._random.random() < 0.3 else name


def with_views(question: Question, random: Random) -> Question:
    """The question with views in it; the same if it has no place for any."""
    marked = question.text.replace("«", "mark_begins_").replace("»", "_mark")
    tree, views, ordered = sqlglot.parse_one(marked, read=_DIALECT), Views(random), question.ordered
    for table in list(tree.find_all(exp.Table)):
        if table.name in TABLES and not _is_changed(table) and random.random() < 0.5:
            _put(table, views.of_table(table.name), table.alias_or_name)
    for derived in list(tree.find_all(exp.Subquery)):
        inner = derived.this.sql(dialect=_DIALECT)
        is_table = isinstance(derived.parent, exp.From | exp.Join) and derived.alias
        if is_table and not derived.args["alias"].columns and "mark_begins_" not in inner:
            _put(derived, views.view(inner), derived.alias)
    if question.table and tree.args.get("conflict") is None and random.random() < 0.8:
        target = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
        _put(target, views.of_table(target.name, updatable=True), target.name)
    text = tree.sql(dialect=_DIALECT) if views.made else marked
    width = _width(tree)
    if width and "mark_begins_" not in text and random.random() < 0.4:
        text, ordered = f"SELECT * FROM {views.view(text, columns=width)}", False
    text = text.replace("mark_begins_", "«").replace("_mark", "»")
    return replace(question, text=text, ordered=ordered, before=tuple(views.made))


def _width(tree: exp.Expression) -> int:
    """How many columns a query has, for each to get a name of its own; 0 if it is none, or that is not told."""
    while isinstance(tree, exp.SetOperation | exp.Subquery):
        tree = tree.this
    is_told = isinstance(tree, exp.Select) and not any(one.is_star for one in tree.expressions)
    return len(tree.expressions) if is_told else 0


def _is_changed(table: exp.Table) -> bool:
    above = table.parent if not isinstance(table.parent, exp.Schema) else table.parent.parent
    return isinstance(above, exp.Insert | exp.Update | exp.Delete) and table.arg_key == "this"


def _put(node: exp.Expression, name: str, alias: str) -> None:
    """A view instead of a table or a query in FROM, under the same name."""
    new = exp.Table(this=exp.to_identifier(name), alias=exp.TableAlias(this=exp.to_identifier(alias)))
    if node.args.get("joins"):
        new.set("joins", node.args["joins"])
    node.replace(new)
