"""SELECT, clause by clause, in the order in which they are carried out.

FROM, WHERE (rownum's part last), GROUP BY, HAVING, windows; then ORDER BY and LIMIT over these rows, and the select
list of what is left.  If ORDER BY or DISTINCT asks for computed columns of the list, the list comes before them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from typing import TYPE_CHECKING

from sqlglot import exp

from gmdb.errors import InvalidSyntax, StatementError, UnsupportedExpression
from gmdb.process.late_dataclasses import dataclass
from gmdb.sql import tree
from gmdb.sql.bind.aggregates import has_aggregate, sort_key, window_values
from gmdb.sql.bind.binder import Bound, Lock
from gmdb.sql.bind.coercion import apply, assign, coerce, comparison, convert, is_open, operator, settled
from gmdb.sql.bind.equality import distinct, grouped, require_equality
from gmdb.sql.bind.expressions import bind, condition
from gmdb.sql.bind.from_clause import from_clause
from gmdb.sql.bind.scope import ROWNUM, Grouping, Scope, WindowCalls, output_name
from gmdb.sql.dialect import place
from gmdb.sql.syntax import Syntax, Written, folded, reading
from gmdb.sql.tree import Case, Coalesce, Column, Constant, Expression, Parameter, Reference, Relation, SortKey
from gmdb.sql.types import BIGINT, FLOATS, is_number

if TYPE_CHECKING:
    from gmdb.sql.bind.binder import Binder


# ---- rownum: the number of a row, in the order in which rows are found.
#
# A row gets its number when it has met all other conditions, and the numbers have no gaps.  So a condition on rownum
# says how many rows there are: ``rownum <= 3`` is a limit, and ``rownum = 2`` is never met, for no row is the first.

_MANY = 1 << 62  # rows, more than there ever are; a DOUBLE is exactly that
_MIRRORED: dict[type, type] = {exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE, exp.EQ: exp.EQ}


def names_rownum(node: exp.Expr) -> bool:
    """Whether an expression names rownum, not counting queries within it."""
    pending = [node]
    while pending:
        part = pending.pop()
        if _is_rownum(part):
            return True
        if not isinstance(part, exp.Column | exp.Query):
            pending += list(part.iter_expressions())
    return False


def _is_rownum(node: exp.Expr) -> bool:
    if not isinstance(node, exp.Column) or node.args.get("table") is not None:
        return False
    return isinstance(node.this, exp.Identifier) and folded(node.this) == ROWNUM


def split_rownum(binder: Binder, where: exp.Expr, scope: Scope) -> tuple[Expression | None, Expression]:
    """A WHERE as the conditions without rownum, and the number of rows that the others let through."""
    plain, amounts = [], []
    for term in _terms(where):
        if names_rownum(term):
            amounts.append(_limit_of(binder, term, scope))
        else:
            plain.append(condition(binder, term, scope))
    amount = amounts[0] if len(amounts) == 1 else apply("least", amounts, where)
    return tree.conjunction(plain), amount


def _terms(where: exp.Expr) -> list[exp.Expr]:
    """The parts that AND joins, from the left."""
    terms: list[exp.Expr] = []
    pending = [where]
    while pending:
        node = pending.pop()
        if isinstance(node, exp.Paren):
            pending.append(node.this)
        elif isinstance(node, exp.And):
            pending += [node.expression, node.this]
        else:
            terms.append(node)
    return terms


def _limit_of(binder: Binder, term: exp.Expr, scope: Scope) -> Expression:
    """How many rows a condition on rownum lets through: a BIGINT of at least 0."""

    def number(node: exp.Expr) -> Expression:
        value = bind(binder, node, Scope(None, scope.views))
        if is_open(value):
            value = coerce(value, BIGINT, node)
        return value if is_number(value.type) else coerce(value, BIGINT, node)

    if isinstance(term, exp.Between) and _is_rownum(term.this) and not term.args.get("symmetric"):
        last = _bound(exp.LTE, number(term.args["high"]), term)
        return _if(comparison("<=", number(term.args["low"]), Constant(BIGINT, 1), term), last)
    kind: type = type(term)
    if kind in _MIRRORED:
        left, right = term.this, term.expression
        if _is_rownum(right):
            left, right, kind = right, left, _MIRRORED[kind]
        if _is_rownum(left) and not names_rownum(right):
            return _bound(kind, number(right), term)
    hint = "Use it in a query in FROM"
    raise UnsupportedExpression(
        "rownum can be compared with a value by <, <=, =, >=, > and BETWEEN, joined with AND", *place(term), hint
    )


def _bound(kind: type, value: Expression, node: exp.Expr) -> Expression:
    """How many rows ``rownum < value`` and the like let through; of NULL, none."""
    one = Constant(BIGINT, 1)
    if kind is exp.EQ:
        return _if(comparison("=", value, one, node), one)
    if kind in (exp.GT, exp.GTE):
        symbol = "<" if kind is exp.GT else "<="
        return _if(comparison(symbol, value, one, node), Constant(BIGINT, _MANY))
    is_open_end = kind is exp.LT
    whole = value
    if value.type.name in ("DECIMAL", *FLOATS):
        whole = apply("ceil" if is_open_end else "floor", [value], node)
    low, high = Constant(BIGINT, int(is_open_end)), Constant(BIGINT, _MANY)
    whole = apply("least", [apply("greatest", [whole, low], node), high], node)
    count = convert(whole, BIGINT, node)
    if is_open_end:
        count = operator("-", count, one, node)
    zero = Constant(BIGINT, 0)
    # NULL is below nothing, though greatest and least pass over it.
    is_null = apply("is_null", [value], node)
    return Case(BIGINT, ((is_null, zero),), Coalesce(BIGINT, (count, zero)))


def _if(test: Expression, amount: Expression) -> Expression:
    return Case(BIGINT, ((test, amount),), Constant(BIGINT, 0))


# ---- SELECT, clause by clause, in the order in which they are carried out.

SETS_MAX = 4096  # of groups, that ROLLUP, CUBE and GROUPING SETS make
Choice = tuple[str, Expression, exp.Expr]  # of a select list: a name, a value, and where it is written


@dataclass(frozen=True, slots=True)
class _Order:
    """A key of ORDER BY: the column of the list that it is, if it is one."""

    position: int | None
    key: SortKey
    node: exp.Expr


@dataclass(slots=True)
class _Output:
    """The select list: columns with names and, behind them, those that only ORDER BY and DISTINCT ON need."""

    outputs: list[tree.Output]

    def column(self, binder: Binder, value: Expression) -> Expression:
        """A column that has a value; one more if there is none."""
        for column, one in self.outputs:
            if one == value:
                return Reference(column.type, column)
        self.outputs.append(binder.output("", value))
        return Reference(value.type, self.outputs[-1][0])


class Select:
    """One SELECT while it is bound."""

    def __init__(self, binder: Binder, syntax: Syntax, outside: Scope) -> None:
        self.binder = binder
        self.syntax = syntax
        self.scope = Scope(outside, outside.views)
        self.groups: frozenset[Column] = frozenset()  # the columns of the rows that are grouped

    def bound(self) -> Bound:
        syntax, scope = self.syntax, self.scope
        relation = from_clause(self.binder, syntax.take("from_"), syntax.list("joins"), scope)
        relation = self._where(relation)
        scope.numbers_rows = not scope.has(ROWNUM)
        nodes = syntax.list("expressions")
        if not nodes:
            raise InvalidSyntax("syntax error: SELECT needs a list of values", *place(syntax.node))
        order, having = syntax.take("order"), syntax.take("having")
        sets = self._group(nodes, having, order, relation)
        test = None
        if having is not None:
            with reading(having) as part:
                test = self._of_groups(condition(self.binder, part.need("this", "a condition"), scope), having)
        windows = scope.windows = WindowCalls(self._named_windows())
        choices = [
            (name, self._of_groups(value, node), node) for name, value, node in select_list(self.binder, nodes, scope)
        ]
        for value in window_values(self.binder, windows, scope):
            self._of_groups(value, syntax.node)  # they may stand there
        distinct = syntax.take("distinct")
        keys = self._order(order, choices)
        on = self._distinct_on(distinct, choices, keys)
        relation = self._rows(relation, sets, test, windows)
        count, offset = limits(self.binder, syntax, scope)
        locks = self._locks(distinct is not None or bool(windows.calls), relation)
        bound = self._output(relation, choices, keys, distinct is not None, on, count, offset)
        return Bound(bound.relation, bound.names, bound.values, locks)

    def _where(self, relation: Relation) -> Relation:
        where = self.syntax.take("where")
        if where is None:
            return relation
        with reading(where) as part:
            test = part.need("this", "a condition")
        return filtered(self.binder, relation, test, self.scope)

    # ---- groups

    def _group(
        self, nodes: Sequence[exp.Expr], having: exp.Expr | None, order: exp.Expr | None, relation: Relation
    ) -> tuple[tuple[int, ...], ...] | None:
        """GROUP BY; from here on the scope knows groups only, if there are any."""
        group = self.syntax.take("group")
        parts = [*nodes, *(one for one in (having, order) if one is not None)]
        if group is None and having is None and not any(map(has_aggregate, parts)):
            return None
        grouping, sets = Grouping(), None
        if group is not None:
            with reading(group) as part:
                items = part.list("expressions")
                if part.take("all") and not items:
                    raise UnsupportedExpression("GROUP BY ALL is not supported", *place(group), "Name the columns")
                sets = self._sets(items, nodes, grouping)
                if group.args.get("all") is False and sets is not None:  # DISTINCT
                    sets = tuple(dict.fromkeys(sets))
        self.groups = frozenset(relation.columns)
        self.scope.grouping = grouping
        return sets

    def _sets(
        self, items: Sequence[exp.Expr], nodes: Sequence[exp.Expr], grouping: Grouping
    ) -> tuple[tuple[int, ...], ...] | None:
        """The sets of keys that GROUP BY means; None if that is one, of all of them."""
        parts = [self._grouping_sets(item, nodes, grouping) for item in items]
        count = 1
        for part in parts:
            count *= len(part)
        if count > SETS_MAX:
            raise UnsupportedExpression(f"GROUP BY makes {count} sets of groups, and may make {SETS_MAX}")
        sets = tuple(tuple(dict.fromkeys(key for one in chosen for key in one)) for chosen in product(*parts))
        return None if len(sets) == 1 and len(sets[0]) == len(grouping.keys) else sets

    def _grouping_sets(self, item: exp.Expr, nodes: Sequence[exp.Expr], grouping: Grouping) -> list[tuple[int, ...]]:
        """The sets that one item of GROUP BY means: of a plain key, the one with it alone."""
        if isinstance(item, exp.Tuple | exp.Paren | exp.Rollup | exp.Cube | exp.GroupingSets):
            with reading(item) as part:
                inner = [part.need("this", "a key")] if isinstance(item, exp.Paren) else part.list("expressions")
            parts = [self._grouping_sets(one, nodes, grouping) for one in inner]
            if isinstance(item, exp.GroupingSets):
                return [one for sets in parts for one in sets]
            if any(len(sets) != 1 for sets in parts):
                raise InvalidSyntax("ROLLUP and CUBE can stand within GROUPING SETS only", *place(item))
            each = [sets[0] for sets in parts]
            if isinstance(item, exp.Rollup):
                return [_together(each[:length]) for length in range(len(each), -1, -1)]
            if isinstance(item, exp.Cube):
                if 1 << len(each) > SETS_MAX:
                    raise UnsupportedExpression(f"CUBE makes more than {SETS_MAX} sets of groups", *place(item))
                lengths = range(len(each), -1, -1)
                return [_together(some) for length in lengths for some in combinations(each, length)]
            return [_together(each)]
        return [(self._key(item, nodes, grouping),)]

    def _key(self, item: exp.Expr, nodes: Sequence[exp.Expr], grouping: Grouping) -> int:
        """The number of a key; equal ones are one."""
        chosen, shown = self._group_expression(item, nodes)
        value = settled(bind(self.binder, chosen, self.scope))
        require_equality([value], "GROUP BY", item)
        for number, (_, known) in enumerate(grouping.keys):
            if known == value:
                return number
        grouping.keys.append(self.binder.output(shown, value))
        return len(grouping.keys) - 1

    def _group_expression(self, item: exp.Expr, nodes: Sequence[exp.Expr]) -> tuple[exp.Expr, str]:
        """What GROUP BY means: a column of the tables, then one of the list by its name or its number."""
        position = ordinal(item, len(nodes))
        if position is not None:
            if any(_is_star(one) for one in nodes[: position + 1]):
                raise UnsupportedExpression("GROUP BY takes no number of a column behind *", *place(item))
            return nodes[position].unalias(), output_name(nodes[position])
        if isinstance(item, exp.Column) and item.args.get("table") is None and not _is_star(item):
            name = folded(item.this)
            if not self.scope.has(name):
                for node in nodes:
                    if isinstance(node, exp.Alias) and folded(node.args["alias"]) == name:
                        return node.this, name
        return item, output_name(item)

    def _of_groups(self, value: Expression, node: exp.Expr) -> Expression:
        """An expression over the rows as one over their groups: whole keys stand for themselves."""
        grouping = self.scope.grouping
        if grouping is None:
            return value
        key = None if isinstance(value, Constant | Parameter) else grouping.key(value)
        if key is not None:
            return key
        if isinstance(value, Reference) and (value.column in self.groups or value.column is self.scope.number):
            raise grouping.not_grouped(value, node)
        return tree.rebuilt(value, lambda part: self._of_groups(part, node))

    def _rows(
        self,
        relation: Relation,
        sets: tuple[tuple[int, ...], ...] | None,
        having: Expression | None,
        windows: WindowCalls,
    ) -> Relation:
        """The rows that the select list is about: numbered, grouped, and with what their windows give."""
        grouping = self.scope.grouping
        if self.scope.number is not None:
            relation = tree.Number(relation, self.scope.number)
        if grouping is not None:
            relation = grouped(relation, grouping.keys, grouping.aggregates, sets)
        if having is not None:
            relation = tree.Filter(relation, having)
        if windows.calls:
            node = self.syntax.node
            calls = (
                (column, tree.rebuilt(call, lambda part: self._of_groups(part, node))) for column, call in windows.calls
            )
            relation = tree.Window(relation, tuple(calls))
        return relation

    def _named_windows(self) -> dict[str, exp.Expr]:
        named: dict[str, exp.Expr] = {}
        for node in self.syntax.list("windows"):
            if not isinstance(node, exp.Window):
                raise InvalidSyntax("syntax error: a window is written as name AS (...)", *place(node))
            name = folded(node.this)
            if name in named:
                raise StatementError(f"window {name} is there twice", *place(node))
            named[name] = node
        return named

    # ---- order and output

    def _order(self, order: exp.Expr | None, choices: list[Choice]) -> list[_Order]:
        if order is None:
            return []
        with reading(order) as part:
            items = part.list("expressions")
        keys = []
        for item in items:
            with reading(item) as part:
                node = part.need("this", "a value")
                position, value = self._listed(node, choices)
                keys.append(_Order(position, sort_key(part, value), item))
        return keys

    def _listed(self, node: exp.Expr, choices: list[Choice]) -> tuple[int | None, Expression]:
        """What ORDER BY means: a column of the list by its number or name, then an expression over the tables."""
        position = ordinal(node, len(choices))
        if position is None and isinstance(node, exp.Column) and node.args.get("table") is None:
            name = folded(node.this)
            same = [number for number, (one, _, _) in enumerate(choices) if one == name]
            if any(choices[number][1] != choices[same[0]][1] for number in same):
                raise StatementError(f"several columns of the list are called {name}", *place(node))
            position = same[0] if same else None
        if position is not None:
            name, value, where = choices[position]
            choices[position] = (name, settled(value), where)
            return position, settled(value)
        value = settled(self._of_groups(bind(self.binder, node, self.scope), node))
        equal = (number for number, (_, one, _) in enumerate(choices) if one == value)
        return next(equal, None), value

    def _distinct_on(
        self, distinct: exp.Expr | None, choices: list[Choice], keys: list[_Order]
    ) -> list[Expression] | None:
        """The values of DISTINCT ON, with which ORDER BY must begin; None for DISTINCT alone, which it must list."""
        if distinct is None:
            return None
        with reading(distinct) as part:
            part.ignore("expressions")
            on = part.take("on")
        choices[:] = [(name, settled(value), node) for name, value, node in choices]
        if on is None:
            for key in keys:
                if key.position is None:
                    raise StatementError("with DISTINCT, ORDER BY takes columns of the list only", *place(key.node))
            return None
        nodes = [on]
        if isinstance(on, exp.Tuple | exp.Paren):
            with reading(on) as part:
                nodes = part.list("expressions") if isinstance(on, exp.Tuple) else [part.take("this")]
        values = list(dict.fromkeys(self._listed(node, choices)[1] for node in nodes))
        for key in keys[: len(values)]:
            if key.key.value not in values:
                raise StatementError("ORDER BY must begin with what DISTINCT ON has", *place(key.node))
        return values

    def _output(
        self,
        relation: Relation,
        choices: list[Choice],
        keys: list[_Order],
        is_distinct: bool,
        on: list[Expression] | None,
        count: Expression | None,
        offset: Expression | None,
    ) -> Bound:
        names = tuple(name for name, _, _ in choices)
        typed = [self.binder.output(name, value) for name, value, _ in choices if value.type is not None]
        columns = iter(typed)
        values = tuple(
            value if value.type is None else Reference(value.type, next(columns)[0]) for _, value, _ in choices
        )
        simple = (Reference, Constant, Parameter)
        is_computed = any(one.position is not None and not isinstance(one.key.value, simple) for one in keys)
        if not is_distinct and not is_computed:
            relation = limited(ordered(relation, [one.key for one in keys]), count, offset)
            return Bound(tree.Project(relation, tuple(typed)), names, values)
        listed = _Output(list(typed))
        sort = [SortKey(listed.column(self.binder, k.key.value), k.key.descending, k.key.nulls_first) for k in keys]
        first = None if on is None else tuple(listed.column(self.binder, value) for value in on)
        relation = ordered(tree.Project(relation, tuple(listed.outputs)), sort if first is not None else [])
        if is_distinct:
            relation = distinct(relation, first, self.syntax.node)
        relation = limited(ordered(relation, sort), count, offset)
        if len(listed.outputs) > len(typed):
            outputs = [self.binder.output(column.name, Reference(column.type, column)) for column, _ in typed]
            relation = tree.Project(relation, tuple(outputs))
            columns = iter(outputs)
            values = tuple(one if one.type is None else Reference(one.type, next(columns)[0]) for one in values)
        return Bound(relation, names, values)

    def _locks(self, is_regrouped: bool, relation: Relation) -> tuple[Lock, ...]:
        """FOR UPDATE [OF table, …] [NOWAIT | SKIP LOCKED]; FOR NO KEY UPDATE is the same, since nobody locks keys."""
        locks: dict[str, Lock] = {}
        for node in self.syntax.list("locks"):
            with reading(node) as part:
                part.take("key")
                if not part.take("update"):
                    raise UnsupportedExpression("FOR SHARE is not supported", *place(node), "There is FOR UPDATE")
                named = part.list("expressions")
                part.take("wait")
                wait = {True: False, False: None}.get(node.args.get("wait"), True)
                if isinstance(node.args.get("wait"), exp.Expr):
                    raise UnsupportedExpression("FOR UPDATE takes NOWAIT or SKIP LOCKED", *place(node))
            if is_regrouped or self.scope.grouping is not None or not self.scope.items:
                raise UnsupportedExpression("FOR UPDATE is for queries over the rows of tables", *place(node))
            items = [self.scope.item(self._lock_name(one), one) for one in named] or self.scope.items
            for item in items:
                if item.table is None:
                    hint = "Name the tables that are to be locked: FOR UPDATE OF ..."
                    raise UnsupportedExpression(
                        f"FOR UPDATE is for tables, and {item.name} is none", *place(node), hint
                    )
                if item.table in _nullable(relation):
                    message = f"FOR UPDATE cannot lock {item.name}, which is on the nullable side of an outer join"
                    raise UnsupportedExpression(message, *place(node))
                before = locks.get(item.name)
                waits = {wait} if before is None else {wait, before.wait}
                locks[item.name] = Lock(item.table, False if False in waits else None if None in waits else True)
        return tuple(locks.values())

    def _lock_name(self, node: exp.Expr) -> str:
        with reading(node) as part:
            return folded(part.need("this", "a name"))


def _nullable(relation: Relation) -> list[tree.Table]:
    """The tables of whose rows an outer join may make NULLs."""
    tables: list[tree.Table] = []
    for one in tree.walk(relation):
        if isinstance(one, tree.Join):
            sides = {"left": (one.right,), "right": (one.left,), "full": (one.left, one.right)}.get(one.kind, ())
            tables += [table for side in sides for table in tree.walk(side) if isinstance(table, tree.Table)]
    return tables


def _together(sets: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(key for one in sets for key in one)


# ---- what other queries share


def select_list(binder: Binder, nodes: Sequence[exp.Expr], scope: Scope) -> list[Choice]:
    """The names and values of a select list; ``*`` written out."""
    choices: list[Choice] = []
    for node in nodes:
        if _is_star(node):
            choices += _star(binder, node, scope)
            continue
        if not isinstance(node, exp.Alias):
            choices.append((output_name(node), bind(binder, node, scope), node))
            continue
        with reading(node) as part:
            name = folded(part.need("alias", "a name"))
            choices.append((name, bind(binder, part.need("this", "a value"), scope), node))
    return choices


def _is_star(node: exp.Expr) -> bool:
    return isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star))


def _star(binder: Binder, node: exp.Expr, scope: Scope) -> list[Choice]:
    """* or table.*, in the order of the tables."""
    table, full = None, ""
    star = node
    if isinstance(node, exp.Column):
        with reading(node) as part:
            star, table, schema = part.need("this", "*"), part.take("table"), part.take("db")
        if schema is not None:
            full = binder.catalog.column_of(Written(folded(table), folded(schema)), node)
    with reading(star):
        pass  # it takes no EXCEPT, REPLACE or RENAME
    if table is None and not scope.visible:
        raise StatementError("* needs a table in FROM", *place(node))
    columns = scope.visible if table is None else scope.item(folded(table), node, full).columns
    grouping = scope.grouping
    for one in columns if grouping is not None else ():
        assert grouping is not None
        for column in tree.columns_of(one.value):
            name = exp.column(one.name, table=folded(table) if table is not None else None)
            grouping.mentions.setdefault(column, name)
    return [(one.name, one.value, node) for one in columns]


def filtered(binder: Binder, relation: Relation, test: exp.Expr, scope: Scope) -> Relation:
    """WHERE: first the conditions on rows, then how many of those there may be, which is what rownum says."""
    if scope.has(ROWNUM) or not names_rownum(test):
        return tree.Filter(relation, condition(binder, test, scope))
    rest, amount = split_rownum(binder, test, scope)
    if rest is not None:
        relation = tree.Filter(relation, rest)
    return tree.Limit(relation, amount)


def ordered(relation: Relation, keys: Sequence[SortKey]) -> Relation:
    return tree.Sort(relation, tuple(keys)) if keys else relation


def limited(relation: Relation, count: Expression | None, offset: Expression | None) -> Relation:
    return relation if count is None and offset is None else tree.Limit(relation, count, offset)


def limits(binder: Binder, syntax: Syntax, scope: Scope) -> tuple[Expression | None, Expression | None]:
    """LIMIT or FETCH, and OFFSET.  They refer to no column."""
    return tuple(_amount(binder, syntax.take(key), scope) for key in ("limit", "offset"))  # type: ignore[return-value]


def _amount(binder: Binder, node: exp.Expr | None, scope: Scope) -> Expression | None:
    if node is None:
        return None
    with reading(node) as part:
        amount = part.take("count" if isinstance(node, exp.Fetch) else "expression")
        if isinstance(node, exp.Fetch):
            part.word("direction", "FIRST", "NEXT")
        options = part.take("limit_options")
        if options is not None:
            with reading(options) as option:
                if isinstance(node, exp.Fetch):
                    option.ignore("rows")
        if isinstance(node, exp.Fetch) and amount is None:
            return Constant(BIGINT, 1)
        if amount is None:
            amount = part.need("expression", "a number")
    return assign(bind(binder, amount, Scope(None, scope.views)), BIGINT, amount)


def ordinal(node: exp.Expr, count: int) -> int | None:
    """The column that a bare number in ORDER BY or GROUP BY means."""
    inner = node.this if isinstance(node, exp.Neg) else node
    is_constant = isinstance(inner, exp.Boolean | exp.Null | exp.Literal)
    if not is_constant:
        return None
    if inner is not node or not isinstance(node, exp.Literal) or node.is_string or not node.name.isdecimal():
        raise InvalidSyntax("a constant cannot be ordered or grouped by", *place(node))
    if not 1 <= int(node.name) <= count:
        raise StatementError(f"there is no column {node.name} in the list", *place(node))
    return int(node.name) - 1
