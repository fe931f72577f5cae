"""Relations of the bound tree as loops in Python.

A relation is *produced*: lines are written that run through its rows, and within them, where a row's columns have
their values, what is to become of it.  So rows pass from a table through filters, joins and projections in one
function.  What needs all rows first (Sort, Group, the inner side of a hash join) keeps them in a list or dict, and goes
on from there.

Invariants
 1. A column's value is found by ``terms`` wherever its relation's rows are consumed.
 2. What consumes rows is written once: nothing grows with the number of joins.
 3. Each loop counts, and every 256 steps ``check`` is called, which raises if the run is to end.
Not here: how rows are read (sources.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain, count
from time import perf_counter
from typing import Any, NamedTuple

from gmdb.errors import UnsupportedExpression
from gmdb.sql import tree
from gmdb.sql.arrays import unnested
from gmdb.sql.plan.paths import Access, Materialized, Path, fit_of
from gmdb.sql.rows import sources as running
from gmdb.sql.rows.code import Term, hash_key, new_list, sort_key, sorter, too_deep, unless_null
from gmdb.sql.rows.expressions import ExpressionWriter
from gmdb.sql.rows.groups import produce_group
from gmdb.sql.rows.joins import QUERIES, OwnFunction, produce_join
from gmdb.sql.rows.sources import Source
from gmdb.sql.tree import Column, Expression, Relation, columns_of, columns_used
from gmdb.tables.access.keyed import MORE_ROWS, Shape

Consume = Callable[[], None]
Kept = tuple[str, tuple[Column, ...]]  # the name of a list of rows, and the columns that each of them has
_PLAIN_KEYS = ("SMALLINT", "INT", "BIGINT", "DATE", "TIME", "TIMESTAMP", "REAL", "DOUBLE", "UUID")  # as they are
_LOOPS_MAX, _DEPTH_MAX = 12, 40  # of a function; Python has limits for both


class Written(NamedTuple):
    """What a pipeline has become: a function, and where it reads."""

    function: Callable[..., Any]
    sources: list[Source]


class Pipeline(ExpressionWriter):
    """Writes a function ``rows(parameters, now, sources, check, ending)``, for a relation and all within it.

    ``sources``: what reads for each of the pipeline's own.  ``ending``: functions that are called when rows have come
    to their end, if it is a generator.
    """

    def __init__(
        self, relation: Relation, row_ids: bool, as_list: bool, measures: Mapping[int, Any] | None = None
    ) -> None:
        """``row_ids``: output columns that are row ids come as such, not as text.

        ``as_list``: the function returns a list; otherwise it is a generator.  ``measures``: for some nodes, by their
        ``id``, the measures that count their rows, and the time that these took.
        """
        super().__init__()
        self.sources: list[Source] = []
        self._row_ids: set[Column] = set()  # columns whose values are row ids, not their texts
        self._measures = measures or {}
        self._has_loops = False
        self._is_last = False  # of what is produced now; see ``produce``
        self._few: int | None = None  # rows that are needed of what is produced next, if that is known
        self._first_of: Relation | None = None  # see ``want_first_of``
        self._shared: dict[tree.Shared, str] = {}
        self._uses = _uses(relation)
        self._whole: dict[tuple[str, ...], str] = {}  # codes of all columns of a row -> the row
        self._missing = set[Column]()  # that have NULL in rows of an outer join, whatever their tables say
        self._handlers |= {kind: partial(write, self) for kind, write in QUERIES.items()}
        self._producers: dict[type[Relation], Callable[[Any, set[Column], Consume], None]] = {
            tree.One: lambda _one, _needed, consume: consume(),
            tree.Table: lambda table, needed, consume: self._scan(table, table, needed, consume),
            Access: self._access,
            Materialized: self._materialized,
            OwnFunction: lambda inner, needed, consume: self.produce_in_function(inner.source, needed, consume),
            tree.Listing: self._listing,
            tree.Input: self._listing,
            tree.Values: self._values,
            tree.Series: self._series,
            tree.Unnest: self._unnest,
            tree.FunctionRows: self._function_rows,
            tree.Filter: self._filter,
            tree.Project: self._project,
            tree.Join: partial(produce_join, self),
            tree.Group: partial(produce_group, self),
            tree.Distinct: self._distinct,
            tree.Sort: self._sort,
            tree.Limit: self._limit,
            tree.Number: self._number,
            tree.SetOperation: self._set_operation,
            tree.With: self._with,
            tree.Reading: self._reading,
        }
        try:
            self._write(relation, row_ids, as_list)
        except RecursionError:
            raise too_deep() from None

    def _write(self, relation: Relation, row_ids: bool, as_list: bool) -> None:
        code = self.code
        code.names |= {"count": count, "once": running.Once}
        signature = "rows(parameters, now, sources, check, ending)"
        with code.define(signature, "return rows" if as_list else "return"):
            if as_list:
                code.prologue.append((1, "rows = []"))

            has_arrays = any(column.type.is_array for column in relation.columns)

            def consume() -> None:
                values = [self.raw(c) if row_ids else self.value(c).code for c in relation.columns]
                row = None if has_arrays else self._whole.get(tuple(values))
                if has_arrays:  # each row has lists of its own
                    pairs = zip(values, relation.columns, strict=True)
                    values = [new_list(value) if column.type.is_array else value for value, column in pairs]
                row = row or self.tuple_of(values)
                code.emit(f"rows.append({row})" if as_list else f"yield {row}")

            if as_list:
                self.produce(relation, set(relation.columns), consume, True)
                code.emit("return rows")
            else:
                with code.block("try"):
                    self.produce(relation, set(relation.columns), consume, True)
                    code.emit("yield from ()")
                with code.block("finally"):
                    code.emit("for end in ending: end()")
            if self._has_loops:
                code.prologue.append((1, "tick = count(1).__next__"))
            if self.sources:
                names = ", ".join(f"s{n}" for n in range(len(self.sources)))
                code.prologue.append((1, f"({names},) = sources"))
        self.written = Written(code.compiled("rows"), self.sources)

    # ---- columns

    def raw(self, column: Column) -> str:
        """The code of what stands for a column: its value, or its row id not yet as text."""
        return self.terms[column].code

    def value(self, column: Column) -> Term:
        """The value of a column."""
        term = self.terms[column]
        if column not in self._row_ids:
            return term
        return self.assign(f"None if {term.code} is None else str({term.code})")

    def _reference(self, expression: tree.Reference) -> Term:
        return self.value(expression.column)

    def columns_in(self, relation: Relation, needed: set[Column]) -> tuple[Column, ...]:
        return tuple(dict.fromkeys(column for column in relation.columns if column in needed))

    def unpack(self, columns: Sequence[Column], nullable: bool = False, more: int = 0) -> str:
        """A target for a tuple of columns, which have these values from here on, and of ``more`` unused fields."""
        self._whole.clear()  # columns no longer have the values of the row that was read
        if nullable:
            self._missing.update(columns)
        for column in columns:
            self.terms[column] = Term(f"c{column.number}", column.nullable or column in self._missing)
        return self.tuple_of([*(f"c{column.number}" for column in columns), *["_"] * more]) if columns or more else "_"

    # ---- rows

    def produce(self, relation: Relation, needed: set[Column], consume: Consume, last: bool = False) -> None:
        """Write the loops over a relation's rows.

        ``needed``: the columns that are used.  ``last``: nothing but these rows is written into the function, so
        that it may return when no more of them are needed.
        """
        producer = self._producers.get(type(relation))
        if producer is None:
            raise UnsupportedExpression(f"{type(relation).__name__} cannot be run row by row")
        function = self.code.function
        if not last and (function.loops > _LOOPS_MAX or function.depth > _DEPTH_MAX):
            self.produce_in_function(relation, needed, consume)
            return
        if not isinstance(relation, tree.Filter | tree.Project | tree.Limit | Access | tree.Table):
            self._few = None
        self._is_last = last
        measure = self._measures.get(id(relation))
        if measure is None:
            producer(relation, needed, consume)
            return
        name, begun = self.code.bind(measure), self.code.fresh("t")
        self.code.names["clock"] = perf_counter

        def measured() -> None:
            self.code.emit(f"{name}.seconds += clock() - {begun}")
            self.code.emit(f"{name}.rows += 1")
            consume()
            self.code.emit(f"{begun} = clock()")

        self.code.emit(f"{name}.loops += 1")
        self.code.emit(f"{begun} = clock()")
        producer(relation, needed, measured)
        self.code.emit(f"{name}.seconds += clock() - {begun}")

    def want_few(self, rows: int | None) -> None:
        """Of what is produced next only so many rows are needed."""
        self._few = rows

    def want_first_of(self, relation: Relation) -> bool:
        """Of a relation only the first row is needed; returns whether no others are read then."""
        while isinstance(relation, tree.Project):
            relation = relation.source
        self._first_of = relation if isinstance(relation, Access) and self._is_key(relation.path) else None
        return self._first_of is not None

    def loop(self, target: str, rows: str, consume: Consume) -> None:
        self._has_loops = True
        with self.code.block(f"for {target} in {rows}"):
            self.code.emit("if not tick() & 255: check()")
            consume()

    def generator(
        self, relation: Relation, columns: Sequence[Column], as_values: bool = False, outermost: bool = False
    ) -> str:
        """A function of its own that generates tuples of some columns; ``as_values``: none of them is a row id."""
        name = self.code.fresh("f")
        with self.code.define(f"{name}()", outermost=outermost), self.knowing_nothing(outermost):

            def give() -> None:
                codes = [self.value(column).code if as_values else self.raw(column) for column in columns]
                self.code.emit(f"yield {self.tuple_of(codes)}")

            self.produce(relation, set(columns), give, True)
            self.code.emit("yield from ()")
        return name

    def produce_in_function(self, relation: Relation, needed: set[Column], consume: Consume) -> None:
        """``produce``, by a function of its own, which may return and has limits of its own."""
        columns = self.columns_in(relation, needed)
        name = self.generator(relation, columns)
        self.loop(self.unpack(columns), f"{name}()", consume)

    def row_of(self, columns: Sequence[Column]) -> str:
        """A tuple of ``raw`` of some columns."""
        return self.tuple_of([self.raw(column) for column in columns])

    def list_of(self, relation: Relation, needed: set[Column], condition: Expression | None = None) -> Kept:
        """A list of the tuples of the relation's needed columns, of rows that meet a condition, filled here."""
        name, columns = self.code.fresh("l"), self.columns_in(relation, needed)
        self.code.emit(f"{name} = []")
        add = f"{name}.append({{}})"

        def keep() -> None:
            self.when(condition, lambda: self.code.emit(add.format(self.row_of(columns))))

        self.produce(relation, needed, keep)
        return name, columns

    def hash_keys(self, columns: Sequence[Column]) -> str:
        """A tuple that is equal for rows with the same values in these columns."""
        return self.tuple_of([hash_key(self.code, self.terms[c], c.type) for c in columns])

    # ---- tables

    def _source(
        self, relation: Relation, kind: str, table: tree.Table | None, needed: set[Column], shape: Any = None
    ) -> tuple[str, bool]:
        """A source of rows for the function, and whether row ids come with them."""
        with_ids = table is not None and table.row_id in needed
        positions = None if table is None else [n for n, column in enumerate(table.stored) if column in needed]
        self.sources.append(Source(relation, kind, with_ids, positions, shape))
        return f"s{len(self.sources) - 1}", with_ids

    def _row_target(self, with_ids: bool) -> tuple[str, str, str]:
        row, place = self.code.fresh("r"), self.code.fresh("i")
        return (f"{place}, {row}" if with_ids else row), row, place

    def _open_row(self, table: tree.Table, needed: set[Column], row: str, place: str) -> None:
        """Give the columns of a table their values in a row."""
        for n, column in enumerate(table.stored):
            if column in needed:
                self.terms[column] = Term(f"{row}[{n}]", column.nullable)
                if self._uses[column] > 1:
                    self.terms[column] = Term(f"c{column.number}", column.nullable)
                    self.code.emit(f"c{column.number} = {row}[{n}]")
        if table.row_id in needed:
            self._row_ids.add(table.row_id)
            self.terms[table.row_id] = Term(place, False)
        if needed.issuperset(table.stored):
            self._whole[tuple(self.terms[column].code for column in table.stored)] = row

    def _scan(self, relation: Relation, table: tree.Table, needed: set[Column], consume: Consume) -> None:
        name, with_ids = self._source(relation, "scan", table, needed)
        self._rows_of(table, with_ids, f"{name}()", needed, consume)

    def _rows_of(self, table: tree.Table, with_ids: bool, rows: str, needed: set[Column], consume: Consume) -> None:
        target, row, place = self._row_target(with_ids)

        def opened() -> None:
            self._open_row(table, needed, row, place)
            consume()

        self.loop(target, rows, opened)

    def _access(self, access: Access, needed: set[Column], consume: Consume) -> None:
        path, table = access.path, access.table
        if path.is_scan:
            self._scan(access, table, needed, consume)
        elif path.row_ids is not None:
            name, with_ids = self._source(access, "row_ids", table, needed)
            values = self.tuple_of([self.term(one).code for one in path.row_ids])
            self._rows_of(table, with_ids, f"{name}({values})", needed, consume)
        elif self._is_key(path):
            self._key(access, needed, consume)
        elif _is_points(path):
            self._points(access, needed, consume)
        else:
            name, with_ids = self._source(access, "ranges", table, needed)
            spans = [self.tuple_of([self.term(one).code for one in span.expressions()]) for span in path.spans]
            ranges = f"{self.code.bind(path)}.ranges({self.tuple_of(spans)})"
            self._rows_of(table, with_ids, f"{name}({ranges}{self._first_rows()})", needed, consume)

    @staticmethod
    def _is_key(path: Path) -> bool:
        """Whether a path has one span, whose ends are keys as they are."""
        if len(path.spans) != 1:
            return False
        (span,) = path.spans
        ends = {bound.value.type for bound in (span.low, span.high) if bound is not None}
        return not ends or (ends == {path.columns[len(span.equal)].type} and ends.pop().name in _PLAIN_KEYS)

    def _first_rows(self) -> str:
        return "" if self._few is None else f", first={max(self._few, 1)}"

    def _key(self, access: Access, needed: set[Column], consume: Consume) -> None:
        """Rows by one key, its first columns, or from one key to another."""
        path, table = access.path, access.table
        only_first, self._first_of = access is self._first_of, None
        (span,) = path.spans
        codes, tests = [], []
        fits = (*path.fits(), None, None)
        for value, fit in zip(span.expressions(), fits, strict=False):
            term = self.term(value)
            if fit is not None:
                term = self.assign(unless_null(term, f"{self.code.bind(fit)}({term.code})"))
            if term.nullable:
                tests.append(f"{term.code} is not None")
            codes.append(term.code)
        first = self._first_rows()

        def read() -> None:
            if path.is_single:
                arguments, (name, with_ids) = self.tuple_of(codes), self._source(access, "one", table, needed)
            elif only_first:
                arguments, shape = self._ends(path, codes)
                name, with_ids = self._source(access, "first", table, needed, shape)
            else:
                kind, arguments, shape = self._range(path, codes)
                name, with_ids = self._source(access, kind, table, needed, shape)
                self._rows_of(table, with_ids, f"{name}({arguments}{first})", needed, consume)
                return
            target, row, place = self._row_target(with_ids)
            entry = self.code.fresh("r") if with_ids else row
            self.code.emit(f"{entry} = {name}({arguments})")
            with self.code.block(f"if {entry} is not None"):
                if with_ids:
                    self.code.emit(f"{target} = {entry}")
                self._open_row(table, needed, row, place)
                consume()

        if "None is not None" not in tests:
            self.on(tests, read)

    def _points(self, access: Access, needed: set[Column], consume: Consume) -> None:
        """Rows by several keys, each of which is looked up once."""
        path, columns = access.path, len(access.path.spans[0].equal)
        keys = []
        for span in path.spans:
            codes = []
            for column, value in zip(path.columns, span.equal, strict=False):
                term, fit = self.term(value), fit_of(column.type, value.type)
                codes.append(term.code if fit is None else unless_null(term, f"{self.code.bind(fit)}({term.code})"))
            keys.append(self.tuple_of([f"({code})" for code in codes]))
        self.code.names["points"] = running.points
        name, with_ids = self._source(access, "keys", access.table, needed, columns)
        self._rows_of(access.table, with_ids, f"{name}(points({', '.join(keys)}))", needed, consume)

    def _range(self, path: Path, codes: Sequence[str]) -> tuple[str, str, Any]:
        """The kind of source for a range of keys, its arguments, and its shape."""
        (span,) = path.spans
        equal, ends = codes[: len(span.equal)], list(codes[len(span.equal) :])
        if not ends and equal and not path.backwards:
            return "some", self.tuple_of(equal), len(equal)
        return "range", *self._ends(path, codes)

    def _ends(self, path: Path, codes: Sequence[str]) -> tuple[str, Shape]:
        """The ends of a range of keys as two arguments, and its shape."""
        (span,) = path.spans
        equal, ends = codes[: len(span.equal)], list(codes[len(span.equal) :])
        low = [*equal, *([ends.pop(0)] if span.low else [])]
        high = [*equal, *ends]
        is_open = [bound is not None and bound.open for bound in (span.low, span.high)]
        if path.falls(len(equal)):
            low, high, is_open = high, low, is_open[::-1]
        shape = Shape(len(low), len(high), is_open[0], is_open[1], path.backwards)
        return f"{self.tuple_of(low)}, {self.tuple_of(high)}", shape

    # ---- other sources

    def _materialized(self, relation: Materialized, needed: set[Column], consume: Consume) -> None:
        self.produce(relation.source, needed, consume, self._is_last)

    def _listing(self, listing: tree.Listing | tree.Input, needed: set[Column], consume: Consume) -> None:
        name, _ = self._source(listing, "listing", None, needed)
        self.loop(self.unpack(listing.columns), f"{name}()", consume)

    def _values(self, values: tree.Values, needed: set[Column], consume: Consume) -> None:
        keep = [n for n, column in enumerate(values.columns) if column in needed]
        columns = [values.columns[n] for n in keep]
        if len(values.rows) == 1:
            self.terms |= {values.columns[n]: self.term(values.rows[0][n]) for n in keep}
            consume()
            return
        if all(isinstance(one, tree.Constant) for row in values.rows for one in row):
            rows = self.code.bind([tuple(row[n].value for n in keep) for row in values.rows])  # type: ignore[attr-defined]
        else:
            rows = self.code.fresh("l")
            self.code.emit(f"{rows} = []")
            for row in values.rows:
                self.code.emit(f"{rows}.append({self.tuple_of([self.term(row[n]).code for n in keep])})")
        self.loop(self.unpack(columns, nullable=True), rows, consume)

    def _series(self, series: tree.Series, _needed: set[Column], consume: Consume) -> None:
        ends = [self.term(one).code for one in (series.start, series.stop, series.step)]
        self.code.names["series"] = running.series
        name = f"c{series.column.number}"
        self.terms[series.column] = Term(name, False)
        self.loop(name, f"series({', '.join(ends)})", consume)

    def _unnest(self, unnest: tree.Unnest, _needed: set[Column], consume: Consume) -> None:
        arrays = [self.term(one).code for one in unnest.arrays]
        self.code.names["unnested"] = unnested
        more = int(unnest.number is None)
        self.loop(self.unpack(unnest.columns, nullable=True, more=more), f"unnested({', '.join(arrays)})", consume)

    def _function_rows(self, rows: tree.FunctionRows, _needed: set[Column], consume: Consume) -> None:
        terms = [self.term(one) for one in rows.arguments]
        tests = [f"{term.code} is not None" for term in terms if term.nullable]
        call = f"{self.code.bind(rows.function.python)}({', '.join(term.code for term in terms)})"
        self.on(tests, lambda: self.loop(self.unpack(rows.columns), call, consume))

    # ---- rows one by one

    def _filter(self, relation: tree.Filter, needed: set[Column], consume: Consume) -> None:
        inner = needed | columns_of(relation.condition)
        self.produce(relation.source, inner, lambda: self.when(relation.condition, consume), self._is_last)

    def _project(self, project: tree.Project, needed: set[Column], consume: Consume) -> None:
        outputs = [(column, one) for column, one in project.outputs if column in needed]

        def compute() -> None:
            for column, expression in outputs:
                if isinstance(expression, tree.Reference):
                    self.terms[column] = self.terms[expression.column]
                    if expression.column in self._row_ids:
                        self._row_ids.add(column)
                else:
                    self.terms[column] = self.term(expression)
            consume()

        self.produce(project.source, needed | columns_used(one for _, one in outputs), compute, self._is_last)

    def _number(self, relation: tree.Number, needed: set[Column], consume: Consume) -> None:
        name = self.code.fresh("n")
        self.code.emit(f"{name} = 0")
        self.terms[relation.number] = Term(name, False)

        def numbered() -> None:
            self.code.emit(f"{name} += 1")
            consume()

        self.produce(relation.source, needed - {relation.number}, numbered, self._is_last)

    def _distinct(self, distinct: tree.Distinct, needed: set[Column], consume: Consume) -> None:
        seen = self.code.fresh("d")
        self.code.emit(f"{seen} = set()")
        on = distinct.on
        inner = needed | (set(distinct.columns) if on is None else columns_used(on))

        def once() -> None:
            if on is None:
                key = self.hash_keys(distinct.columns)
            else:
                key = self.tuple_of([hash_key(self.code, self.term(one), one.type) for one in on])
            name = self.code.fresh("k")
            self.code.emit(f"{name} = {key}")
            with self.code.block(f"if {name} not in {seen}"):
                self.code.emit(f"{seen}.add({name})")
                consume()

        self.produce(distinct.source, inner, once, self._is_last)

    def _limit(self, limit: tree.Limit, needed: set[Column], consume: Consume) -> None:
        last = self._is_last
        if not last and not _is_one_loop(limit.source):
            self.produce_in_function(limit, needed, consume)
            return
        left, skip = self.code.fresh("n"), self.code.fresh("n")
        self._few = _few(limit)
        ending = self.code.function.ending if last else "break"

        def counted() -> None:
            if limit.offset is None:
                consume_one()
                return
            with self.code.block(f"if {skip}"):
                self.code.emit(f"{skip} -= 1")
            with self.code.block("else"):
                consume_one()

        def consume_one() -> None:
            consume()
            if exact != 1:
                self.code.emit(f"{left} -= 1")
                self.code.emit(f"if not {left}: {ending}")
            elif not is_alone:
                self.code.emit(ending)

        exact = self._few if limit.offset is None else None  # the number itself
        is_alone = exact == 1 and self.want_first_of(limit.source)
        if exact == 1:
            self.produce(limit.source, needed, counted, last)
        else:
            self.code.names["limits"] = running.limits
            ends = [self.term(one).code if one is not None else "None" for one in (limit.count, limit.offset)]
            self.code.emit(f"{left}, {skip} = limits({', '.join(ends)})")
            with self.code.block(f"if {left}"):
                self.produce(limit.source, needed, counted, last)
        self._few = None

    # ---- all rows first

    def _sort(self, sort: tree.Sort, needed: set[Column], consume: Consume) -> None:
        rows, columns = self.code.fresh("l"), self.columns_in(sort, needed)
        self.code.emit(f"{rows} = []")

        def collect() -> None:
            keys = [
                sort_key(self.code, self.term(k.value), k.value.type, k.nulls_first == k.descending) for k in sort.keys
            ]
            self.code.emit(f"{rows}.append({self.tuple_of([*(self.raw(c) for c in columns), *keys])})")

        self.produce(sort.source, needed | columns_used(sort.expressions()), collect)
        order = sorter(len(columns), [key.descending for key in sort.keys])
        self.code.emit(f"{self.code.bind(order)}({rows})")
        self.loop(self.unpack(columns, more=len(sort.keys)), rows, consume)

    def _set_operation(self, union: tree.SetOperation, _needed: set[Column], consume: Consume) -> None:
        left, right = (self.generator(side, side.columns, as_values=True) for side in (union.left, union.right))
        target = self.unpack(union.columns, nullable=True)
        if union.kind == "union":
            both = f"chain({left}(), {right}())"
            self.code.names["chain"] = chain
            if union.every:
                self.loop(target, both, consume)
                return
        key, seen = self.hash_keys(union.columns), self.code.fresh("d")
        name = self.code.fresh("k")
        self.code.names["Counter"] = Counter
        self.code.emit(f"{seen} = Counter()")
        if union.kind != "union":
            self.loop(target, f"{right}()", lambda: self.code.emit(f"{seen}[{key}] += 1"))

        def chosen() -> None:
            self.code.emit(f"{name} = {key}")
            for line in _SET_STEPS[union.kind, union.every]:
                self.code.emit(line.format(name=name, seen=seen))
            consume()

        self.loop(target, both if union.kind == "union" else f"{left}()", chosen)

    # ---- queries that are read in several places

    def _with(self, relation: tree.With, needed: set[Column], consume: Consume) -> None:
        last = self._is_last
        for shared in relation.shared:
            columns = shared.columns or shared.query.columns
            self._shared[shared] = self.kept_once(shared.query, columns)
        self.produce(relation.body, needed, consume, last)

    def kept_once(self, query: Relation, columns: Sequence[Column]) -> str:
        """A function that gives the rows of a query that nothing changes, as a list, which is filled once."""
        return self.once(f"list({self.generator(query, columns, as_values=True, outermost=True)}())")

    def once(self, code: str) -> str:
        """A function, at the beginning of the outermost one, that computes something when it is first called."""
        name = self.code.fresh("o")
        self.code.emit_outermost(f"{name} = once(lambda: {code})")
        return name

    def _reading(self, reading: tree.Reading, _needed: set[Column], consume: Consume) -> None:
        self.loop(self.unpack(reading.columns, nullable=True), f"{self._shared[reading.cell[0]]}()", consume)


def _uses(relation: Relation) -> Counter[Column]:
    """How often each column is referred to."""
    return Counter(
        part.column
        for one in tree.everything(relation)
        for expression in one.expressions()
        for part in expression.walk()
        if isinstance(part, tree.Reference)
    )


def _few(limit: tree.Limit) -> int | None:
    """How many rows a limit reads, if it says so and they are few."""
    count = limit.count.value if isinstance(limit.count, tree.Constant) else None
    skip = limit.offset.value if isinstance(limit.offset, tree.Constant) else 0 if limit.offset is None else None
    return None if count is None or skip is None or count + skip > MORE_ROWS else count + skip


def _is_points(path: Path) -> bool:
    """Whether a path is several keys of the same columns."""
    columns = len(path.spans[0].equal) if path.spans else 0
    return (
        columns > 0
        and not any(column.type.has_likenesses for column in path.columns[:columns])
        and all(len(span.equal) == columns and span.low is None and span.high is None for span in path.spans)
    )


def _is_one_loop(relation: Relation) -> bool:
    """Whether all of a relation's rows come in one loop, which a ``break`` can end."""
    if isinstance(relation, tree.Filter | tree.Project | tree.Number | tree.Distinct):
        return _is_one_loop(relation.source)
    if isinstance(relation, Access):
        return not relation.path.is_single
    if isinstance(relation, tree.Values):
        return len(relation.rows) > 1
    if isinstance(relation, tree.Group):
        return bool(relation.keys)
    kinds = tree.Table | tree.Listing | tree.Input | tree.Series | tree.Unnest | tree.FunctionRows | tree.Sort
    return isinstance(relation, kinds)


_SET_STEPS = {
    ("union", False): ["if {name} in {seen}: continue", "{seen}[{name}] = 1"],
    ("intersect", False): ["if not {seen}.pop({name}, 0): continue"],
    ("intersect", True): ["if not {seen}[{name}]: continue", "{seen}[{name}] -= 1"],
    ("except", False): ["if {name} in {seen}: continue", "{seen}[{name}] = 1"],
    ("except", True): ["if {seen}[{name}]:", "    {seen}[{name}] -= 1", "    continue"],
}
