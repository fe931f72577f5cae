"""The bound tree: what a statement means, with names resolved, types known and every function's overload chosen.

Binder makes it, planner rearranges it, and both executors, rows and DuckDB, run it.  There are expressions, which
give one value for a row, and relations, which give rows.  A column is an object with an identity: a reference to one
means that object, so renaming, aliases and nesting play no part after binding.

Invariants
 1. Every expression has a type of ``types.py``, never None: what was open (NULL, a literal, a parameter passed as text)
    has got the type that its surroundings gave it.
 2. A value of type DECIMAL(p, s) has exactly ``s`` digits behind the point, at most 38 in all, in either executor.
 3. Expressions are equal if they are written alike and mean the same columns.
 4. A relation's expressions refer to the columns of its sources, or to those of a relation around it (it is then
    correlated); ``outer_columns`` tells the latter.
Not here: places in the text (errors are raised while binding), sqlglot's nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from gmdb.format.columns import ColumnType
from gmdb.process.late_dataclasses import dataclass, field, fields, replace

if TYPE_CHECKING:
    from gmdb.sql.operations.registry import Aggregation, Operation, RowFunction
    from gmdb.tables.catalog.schema import TableDefinition

ParameterKey = int | str  # the number of a ``?`` from 0, or the name of a ``:name``
_numbers = count(1)
Node = TypeVar("Node")
_PARTS: dict[type, tuple[str, ...]] = {}


def parts_of(node: Any) -> tuple[str, ...]:
    """The names of a node's parts."""
    names = _PARTS.get(type(node))
    if names is None:
        names = _PARTS[type(node)] = tuple(one.name for one in fields(node) if one.name != "type")
    return names


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """A column of a relation: an identity with a name for people and a type."""

    name: str
    type: ColumnType
    nullable: bool = True
    number: int = field(default_factory=lambda: next(_numbers))

    def __repr__(self) -> str:
        return f"{self.name}#{self.number}"


# ---- expressions


@dataclass(frozen=True, slots=True)
class Expression:
    """One value for a row.  Every subclass has a ``type``."""

    type: ColumnType

    def children(self) -> Iterator[Expression]:
        """The expressions that are its parts; not those within a query."""
        return _expressions_of(self)

    def relations(self) -> Iterator[Relation]:
        """The queries that stand within the expression itself, not within its children."""
        return _relations_of(self)

    def walk(self) -> Iterator[Expression]:
        """The expression and all those within it; not those within a query."""
        pending: list[Expression] = [self]
        while pending:
            one = pending.pop()
            yield one
            pending.extend(one.children())


@dataclass(frozen=True, slots=True)
class Constant(Expression):
    """A value that is known; None for NULL."""

    value: Any


@dataclass(frozen=True, slots=True)
class Parameter(Expression):
    """A value that comes when the statement runs.

    ``value_type``: the type of the value (see types.type_of_value); None if its text, or NULL, is read as
    ``type``.
    """

    key: ParameterKey
    value_type: ColumnType | None = None


@dataclass(frozen=True, slots=True)
class Reference(Expression):
    """A column's value in the row at hand."""

    column: Column


@dataclass(frozen=True, slots=True)
class Call(Expression):
    """A function, operator or cast, applied to values of just the types that it takes."""

    operation: Operation
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Junction(Expression):
    """AND (``absorbing`` False) or OR (True), evaluated from the left until its value is clear."""

    absorbing: bool
    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Case(Expression):
    """The result of the first branch whose condition is true; ``default`` otherwise.  Others are not evaluated."""

    branches: tuple[tuple[Expression, Expression], ...]
    default: Expression


@dataclass(frozen=True, slots=True)
class Coalesce(Expression):
    """The first value that is not NULL; those behind it are not evaluated."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Now(Expression):
    """The instant at which the statement began."""


@dataclass(frozen=True, slots=True)
class ScalarQuery(Expression):
    """The only column of the only row of a query; NULL if it has none."""

    query: Relation


@dataclass(frozen=True, slots=True)
class Exists(Expression):
    query: Relation


@dataclass(frozen=True, slots=True)
class QueryComparison(Expression):
    """``operands = ANY (query)`` and the like.

    ``test`` compares a row of the query, whose columns it refers to, with the values on the left.  ``every`` (ALL): it
    must be true for all rows; otherwise (IN, ANY) for one.  Unknown as SQL has it.  NOT IN is Not of this.
    """

    query: Relation
    test: Expression
    every: bool = False


# ---- what needs more than one row; only Group and Window have these


@dataclass(frozen=True, slots=True)
class SortKey:
    value: Expression
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True, slots=True)
class Aggregate(Expression):
    """An aggregate over the rows of a group that meet ``condition``."""

    aggregation: Aggregation
    arguments: tuple[Expression, ...]
    distinct: bool = False
    condition: Expression | None = None
    order: tuple[SortKey, ...] = ()


@dataclass(frozen=True, slots=True)
class Frame:
    """ROWS, RANGE or GROUPS BETWEEN start AND end.  An edge is a distance and a side; no distance is UNBOUNDED, and
    no side CURRENT ROW."""

    unit: str
    start: tuple[Expression | None, str]  # side: PRECEDING, FOLLOWING, or "" for CURRENT ROW
    end: tuple[Expression | None, str]
    exclude: str = ""  # CURRENT ROW, GROUP, TIES


@dataclass(frozen=True, slots=True)
class WindowCall(Expression):
    """An aggregate or a window function over the rows of a partition."""

    aggregation: Aggregation
    arguments: tuple[Expression, ...]
    partition: tuple[Expression, ...] = ()
    order: tuple[SortKey, ...] = ()
    frame: Frame | None = None
    distinct: bool = False
    condition: Expression | None = None


# ---- relations

Output = tuple[Column, Expression]  # a column, and what its value is


@dataclass(frozen=True, slots=True, eq=False)
class Relation:
    """Rows with ``columns``: a field, or derived from the sources'."""

    if TYPE_CHECKING:  # no base class for all: an ABC's isinstance is slow, and a property would be a field's default

        @property
        def columns(self) -> tuple[Column, ...]: ...

    def sources(self) -> Iterator[Relation]:
        """The relations that are its parts; not those within its expressions."""
        return _relations_of(self)

    def expressions(self) -> Iterator[Expression]:
        """Its own expressions, at their tops."""
        return _expressions_of(self)


@dataclass(frozen=True, slots=True, eq=False)
class One(Relation):
    """One row without columns: what SELECT without FROM reads."""

    @property
    def columns(self) -> tuple[Column, ...]:
        return ()


@dataclass(frozen=True, slots=True, eq=False)
class Table(Relation):
    """All rows of a table.  ``row_id``: the pseudo-column, which ``*`` leaves out."""

    definition: TableDefinition
    stored: tuple[Column, ...]  # as the definition has them, large objects as text and bytes
    row_id: Column
    alias: str = ""

    @property
    def columns(self) -> tuple[Column, ...]:
        return (*self.stored, self.row_id)


@dataclass(frozen=True, slots=True, eq=False)
class Listing(Relation):
    """A system view (``sys_tables``) or a table function of the inspector (``gm_pages('t')``)."""

    name: str
    columns: tuple[Column, ...]
    arguments: tuple[Any, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()
    is_view: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Input(Relation):
    """Rows that a statement hands to its plan when it runs (``Run.inputs``): what a change in WITH returns, say."""

    name: str
    columns: tuple[Column, ...]
    key: int = field(default_factory=lambda: next(_numbers))


@dataclass(frozen=True, slots=True, eq=False)
class Series(Relation):
    """generate_series of integers."""

    start: Expression
    stop: Expression
    step: Expression
    column: Column

    @property
    def columns(self) -> tuple[Column, ...]:
        return (self.column,)


@dataclass(frozen=True, slots=True, eq=False)
class Unnest(Relation):
    """The elements of arrays side by side, NULL where one has no more; ``number``: their places, from 1."""

    arrays: tuple[Expression, ...]
    elements: tuple[Column, ...]
    number: Column | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.elements if self.number is None else (*self.elements, self.number)


@dataclass(frozen=True, slots=True, eq=False)
class FunctionRows(Relation):
    """The rows that a function gives."""

    function: RowFunction
    arguments: tuple[Expression, ...]
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Values(Relation):
    rows: tuple[tuple[Expression, ...], ...]
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Passing(Relation):
    """Has the columns of its source."""

    source: Relation

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.source.columns


@dataclass(frozen=True, slots=True, eq=False)
class Filter(Passing):
    condition: Expression


@dataclass(frozen=True, slots=True, eq=False)
class Project(Relation):
    """Other columns, made of those of the source."""

    source: Relation
    outputs: tuple[Output, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(column for column, _ in self.outputs)


@dataclass(frozen=True, slots=True, eq=False)
class Join(Relation):
    """``kind``: inner, left, right, full; semi and anti, which give rows of the left side only, are the planner's.

    ``lateral``: the right side refers to columns of the left one.
    """

    kind: str
    left: Relation
    right: Relation
    condition: Expression | None = None
    lateral: bool = False

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.left.columns if self.kind in ("semi", "anti") else (*self.left.columns, *self.right.columns)


@dataclass(frozen=True, slots=True, eq=False)
class Group(Relation):
    """A row for each group of equal keys; without keys, one row.

    ``sets``: GROUPING SETS, CUBE and ROLLUP written out, as numbers of keys; a key that a set lacks is NULL.
    """

    source: Relation
    keys: tuple[Output, ...]
    aggregates: tuple[tuple[Column, Aggregate], ...]
    sets: tuple[tuple[int, ...], ...] | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(column for column, _ in (*self.keys, *self.aggregates))


@dataclass(frozen=True, slots=True, eq=False)
class Window(Relation):
    """The source's columns, and one for each call."""

    source: Relation
    calls: tuple[tuple[Column, WindowCall], ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return (*self.source.columns, *(column for column, _ in self.calls))


@dataclass(frozen=True, slots=True, eq=False)
class Number(Relation):
    """The source's columns, and ``rownum``: 1, 2, 3 … in the order in which rows come."""

    source: Relation
    number: Column

    @property
    def columns(self) -> tuple[Column, ...]:
        return (*self.source.columns, self.number)


@dataclass(frozen=True, slots=True, eq=False)
class Distinct(Passing):
    """Each row once; with ``on``, the first row of those in which these are equal."""

    on: tuple[Expression, ...] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Sort(Passing):
    keys: tuple[SortKey, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Limit(Passing):
    """``count`` and ``offset`` are BIGINT and refer to no column; NULL no limit, and 0."""

    count: Expression | None
    offset: Expression | None = None


@dataclass(frozen=True, slots=True, eq=False)
class SetOperation(Relation):
    """``kind``: union, intersect, except.  Both sides have columns of the same types, in their order."""

    kind: str
    every: bool  # ALL
    left: Relation
    right: Relation
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """A query of a WITH clause, which may be read in several places.

    A recursive one is ``query`` UNION [ALL] ``again``, in which ``Reading`` of it stands for the rows of the last step.
    """

    name: str
    query: Relation
    again: Relation | None = None
    every: bool = True
    columns: tuple[Column, ...] = ()  # of ``query``, by which ``Reading`` maps its own


@dataclass(frozen=True, slots=True, eq=False)
class With(Relation):
    """``body``, in which the queries may be read; each may read those before it."""

    shared: tuple[Shared, ...]
    body: Relation

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.body.columns


@dataclass(frozen=True, slots=True, eq=False)
class Reading(Relation):
    """The rows of a shared query.  ``cell`` holds it, since a recursive one is not finished when it is read."""

    cell: list[Shared]
    columns: tuple[Column, ...]


# ---- working on trees


def _expressions_of(node: Expression | Relation) -> Iterator[Expression]:
    expressions: list[Expression] = []
    for name in parts_of(node):
        _collect(getattr(node, name), expressions)
    return iter(expressions)


def _collect(value: Any, into: list[Expression]) -> None:
    if isinstance(value, Expression):
        into.append(value)
    elif isinstance(value, SortKey):
        into.append(value.value)
    elif isinstance(value, Frame):
        _collect((value.start, value.end), into)
    elif isinstance(value, tuple):
        for one in value:
            _collect(one, into)


def _relations_of(node: Expression | Relation) -> Iterator[Relation]:
    values = [getattr(node, name) for name in parts_of(node)]
    return iter([value for value in values if isinstance(value, Relation)])


def columns_of(expression: Expression) -> set[Column]:
    """The columns that an expression depends on, of queries within it those that are not their own."""
    used: set[Column] = set()
    own: set[Column] = set()
    for one in expression.walk():
        if isinstance(one, Reference):
            used.add(one.column)
        for query in one.relations():
            used |= outer_columns(query)
            own.update(query.columns)
    return used - own


def columns_used(expressions: Iterable[Expression]) -> set[Column]:
    """The columns that some expressions depend on."""
    return {column for one in expressions for column in columns_of(one)}


def outer_columns(relation: Relation) -> set[Column]:
    """The columns that a relation refers to and does not have itself: those that make it correlated."""
    used: set[Column] = set()
    own: set[Column] = set()
    for one in walk(relation):
        own.update(one.columns)
        used |= columns_used(one.expressions())
    return used - own


def walk(relation: Relation) -> Iterator[Relation]:
    """A relation and its sources, all the way down, shared queries included; not those within expressions."""
    pending = [relation]
    while pending:
        one = pending.pop()
        yield one
        pending.extend(one.sources())
        if isinstance(one, With):
            for shared in one.shared:
                pending.append(shared.query)
                if shared.again is not None:
                    pending.append(shared.again)


def inputs_of(relation: Relation) -> set[int]:
    """The keys of the inputs that a relation reads; not of queries of its WITH that are not read."""
    keys: set[int] = set()
    pending, known = [relation], set[int]()
    while pending:
        one = pending.pop()
        if isinstance(one, Input):
            keys.add(one.key)
        if isinstance(one, Reading) and id(one.cell[0]) not in known:
            known.add(id(one.cell[0]))
            pending += [query for query in (one.cell[0].query, one.cell[0].again) if query is not None]
        pending.extend(one.sources())
        pending.extend(query for part in one.expressions() for inner in part.walk() for query in inner.relations())
    return keys


def everything(relation: Relation) -> Iterator[Relation]:
    """``walk``, and the queries within expressions, all the way down."""
    pending = [relation]
    while pending:
        top = pending.pop()
        for one in walk(top):
            yield one
            for expression in one.expressions():
                for part in expression.walk():
                    pending.extend(part.relations())


def rebuilt(node: Node, change: Callable[[Any], Any], kinds: type | tuple[type, ...] = Expression) -> Node:
    """An expression or a relation with ``change`` applied to each part of the kinds: expressions, relations or both."""
    changes = {}
    for name in parts_of(node):
        value = getattr(node, name)
        new = _changed(value, change, kinds)
        if new is not value:
            changes[name] = new
    return replace(node, **changes) if changes else node  # type: ignore[type-var]


def _changed(value: Any, change: Callable[[Any], Any], kinds: type | tuple[type, ...]) -> Any:
    if isinstance(value, kinds):
        return change(value)
    if isinstance(value, SortKey | Frame | Shared):
        return rebuilt(value, change, kinds)
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        items = [_changed(one, change, kinds) for one in value]
        return tuple(items) if any(a is not b for a, b in zip(items, value, strict=True)) else value
    return value


def conjuncts(condition: Expression | None) -> list[Expression]:
    """The parts of a condition that must all be true."""
    if condition is None:
        return []
    if isinstance(condition, Junction) and not condition.absorbing:
        return [one for part in condition.parts for one in conjuncts(part)]
    return [condition]


def asks_connection(relation: Relation) -> bool:
    """Whether a relation, with all that is within it, calls what belongs to the connection."""
    expressions = (one for node in everything(relation) for one in node.expressions())
    return any(isinstance(one, Call) and one.operation.by_rows for part in expressions for one in part.walk())


def is_volatile(expression: Expression) -> bool:
    """Whether it has another value each time that it is evaluated."""
    return any(isinstance(one, Call) and one.operation.volatile for one in expression.walk())


def has_queries(expression: Expression) -> bool:
    return any(True for one in expression.walk() for _ in one.relations())


def conjunction(parts: Sequence[Expression]) -> Expression | None:
    """A condition out of parts that must all be true."""
    if len(parts) < 2:
        return parts[0] if parts else None
    return Junction(ColumnType("BOOLEAN"), False, tuple(parts))
