"""INSERT: of values, of what a query finds, or of many sets of parameters at once (bulk.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from gmdb.access.heap import Heap
from gmdb.access.indexes import name_key
from gmdb.access.lob_source import is_file, rereadable
from gmdb.catalog.schema import TableDefinition
from gmdb.dbapi import Result, rows_in, rows_of
from gmdb.errors import IllTyped, InvalidSyntax, ProgrammingError, SchemaError, UniqueViolation
from gmdb.format.address import RowId
from gmdb.format.columns import Column
from gmdb.sql.assignment import Assign, Checks, Defaults, assign_found, assign_to, is_default
from gmdb.sql.bulk import ROWS_MIN, BulkRows, in_batches
from gmdb.sql.dialect import NUMBER, place
from gmdb.sql.expressions import compile_condition, is_aggregate
from gmdb.sql.parser import Parsed
from gmdb.sql.projection import Projection
from gmdb.sql.scope import Scope, ScopeTable, folded, names_of
from gmdb.sql.select import prepare_select
from gmdb.sql.statement import Found, Given, Parameters, RowScope, Statement, alias_of, is_for_rows
from gmdb.sql.types import INTEGERS

if TYPE_CHECKING:
    from gmdb.connection import Connection

Values = list[Any]


class Insert(Statement):
    def __init__(self, connection: Connection, parsed: Parsed) -> None:
        super().__init__(connection)
        node: Any = parsed.statement
        self._parsed = parsed
        self._values_queried = 0
        named = node.this if isinstance(node.this, exp.Schema) else None
        self.definition = self.changed_table(named.this if named is not None else node.this)
        self._defaults, self._checks = Defaults(self.definition), Checks(self.definition)
        self._targets, self._names_columns = self._target_positions(named), named is not None
        self._number = _numbering(self.definition)
        target = named.this if named is not None else node.this
        self._scope = RowScope(self.definition.columns, alias_of(target, self.definition.name))
        self._makers: list[list[Assign | None]] = []
        self._query: Statement | None = None
        self._parameters: list[Any] | None = None
        self._prepare_source(node)
        for part in (node, *self._defaults.nodes, *self._checks.nodes):
            self.note_time(part)
        returning = node.args.get("returning")
        self._returning = Projection(returning.expressions, self._scope) if returning is not None else None
        conflict = node.args.get("conflict")
        self._conflict = _Conflict(self, conflict) if conflict is not None else None

    # ---- what goes where

    def _target_positions(self, named: exp.Expr | None) -> list[int]:
        columns = self.definition.columns
        if named is None:
            return list(range(len(columns)))
        scope = Scope.of(self.definition.name, columns)
        found = [scope.column(folded(part), None, part)[0] for part in named.expressions]
        if len(set(found)) < len(found):
            raise SchemaError(f"table {self.definition.name}: a column is named twice")
        return found

    def _prepare_source(self, node: Any) -> None:
        source = node.args.get("expression")
        if node.args.get("default") or source is None:
            self._makers = [[]]
        elif isinstance(source, exp.Values):
            for row in source.expressions:
                given = row.expressions if isinstance(row, exp.Tuple) else [row]
                self._makers.append(self._row_makers(given, row))
            if len(source.expressions) == 1 and isinstance(source.expressions[0], exp.Tuple):
                self._parameters = _plain_parameters(source.expressions[0].expressions)
        else:
            source = self._with_typed_literals(_within(source, node.args.get("with_")))
            self._query = prepare_select(self.connection, replace(self._parsed, statement=source))
            self.tables.update(self._query.tables)

    def _with_typed_literals(self, source: exp.Expr) -> exp.Expr:
        """The query, with NULLs and texts of its list as values of the columns that they go to."""
        source = source.copy()
        if not isinstance(source, exp.Select) or source.is_star:
            return source
        for position, chosen in zip(self._targets, list(source.expressions), strict=False):
            type_, value = self.definition.columns[position].type, chosen.unalias()
            is_text = isinstance(value, exp.Literal) and value.is_string
            if isinstance(value, exp.Null) or (is_text and type_.name not in ("CHAR", "VARCHAR")):
                value.replace(exp.cast(value.copy(), str(type_)))
        return source

    def _row_makers(self, given: Sequence[exp.Expr], node: exp.Expr) -> list[Assign | None]:
        if len(given) > len(self._targets) or (len(given) < len(self._targets) and self._named_all(given)):
            said = f"{len(given)} values for {len(self._targets)} columns"
            raise InvalidSyntax(f"table {self.definition.name}: {said}", *place(node))
        makers: list[Assign | None] = []
        for position, value in zip(self._targets, given, strict=False):
            column = self.definition.columns[position]
            if is_default(value):
                makers.append(None)
            elif column.identity == "always":
                raise ProgrammingError(f"column {column.name} is generated always; leave it out, or write DEFAULT")
            elif is_aggregate(value):
                raise IllTyped("an aggregate cannot stand in VALUES", *place(value), "Insert what a query finds")
            elif is_for_rows(value):
                makers.append(assign_to(value, Scope(), column))
            else:
                makers.append(self._queried_value(value, column))
        return makers

    def _queried_value(self, value: exp.Expr, column: Column) -> Assign:
        """A value with subqueries in it, which a query of its own works out."""
        self._values_queried += 1  # plans are kept by their texts: each value needs one of its own
        text = f"{self._parsed.text} -- value {self._values_queried}"
        query = prepare_select(self.connection, replace(self._parsed, statement=exp.select(value.copy()), text=text))
        self.tables.update(query.tables)

        def make(row: Any, parameters: Parameters, context: Any) -> Any:
            del row, context
            found = query.run(parameters)
            ((one,),) = found.rows if found.rows is not None else rows_of(found.reader)
            return assign_found(found.types[0], column)(one)

        return make

    def _named_all(self, given: Sequence[exp.Expr]) -> bool:
        """Whether fewer values than columns are an error: columns were named, or none of the rest has a default."""
        if self._names_columns:
            return True
        rest = self._targets[len(given) :]
        return any(
            not self.definition.columns[n].nullable
            and self._defaults.of(n) is None
            and not self._defaults.is_identity(n)
            for n in rest
        )

    def _complete(self, values: Mapping[int, Any], given: Given) -> Values:
        """A whole row: what was given, and defaults for the rest."""
        row = []
        for n, column in enumerate(self.definition.columns):
            if n in values:
                row.append(values[n])
            elif column.identity is not None:
                row.append(self.connection.next_identity(self.definition.name, column.name))
            else:
                default = self._defaults.of(n)
                row.append(None if default is None else default((), *given))
        self._checks.check(row, given.context)
        return row

    def _rows(self, given: Given) -> Iterator[Values]:
        if self._query is not None:
            yield from self._queried(self._query.run(given.parameters), given)
            return
        for makers in self._makers:
            values = {
                position: make((), *given)
                for position, make in zip(self._targets, makers, strict=False)
                if make is not None
            }
            yield self._complete(values, given)

    def _queried(self, found: Result, given: Given) -> Iterator[Values]:
        if len(found.names) > len(self._targets) or (self._names_columns and len(found.names) < len(self._targets)):
            raise SchemaError(
                f"table {self.definition.name}: the query has {len(found.names)} columns for {len(self._targets)}"
            )
        columns = [self.definition.columns[n] for n in self._targets[: len(found.names)]]
        convert = [assign_found(type_, column) for type_, column in zip(found.types, columns, strict=True)]
        rows = list(found.rows if found.rows is not None else rows_of(found.reader))
        for row in rows:
            values = [change(value) for value, change in zip(row, convert, strict=True)]
            yield self._complete(dict(zip(self._targets, values, strict=False)), given)

    # ---- inserting

    def run(self, parameters: Parameters) -> Result:
        makers = self._makers_of_all_columns()
        self.run = self._run if makers is None else self._insert_at_once(makers)  # type: ignore[assignment, method-assign]
        return self.run(parameters)

    def _makers_of_all_columns(self) -> list[Assign] | None:
        """What makes the values of a single row, if the statement says them all, and nothing more is to be done."""
        if self._query or self._conflict or self._returning or self._uses_time or self.definition.lobs is not None:
            return None
        if len(self._makers) != 1 or len(self._makers[0]) != len(self.definition.columns):
            return None
        by_position = sorted(zip(self._targets, self._makers[0], strict=True), key=itemgetter(0))
        makers = [make for _, make in by_position if make is not None]
        return makers if len(makers) == len(by_position) else None

    def _insert_at_once(self, makers: list[Assign]) -> Callable[[Parameters], Result]:
        """``run`` for a single row, with all that it needs bound to it: it is what programs do most."""
        insert, number = self.connection.heap(self.definition.name).insert, self._number
        check = self._checks.check if self._checks.concern(range(len(makers))) else None

        def run(parameters: Parameters) -> Result:
            row = [make((), parameters, None) for make in makers]
            if check is not None:
                check(row, None)
            try:
                insert(row)
            except UniqueViolation as violation:
                raise name_key(violation, self.definition.index(violation.index), row) from None
            return Result((), (), 1, None, None, None if number is None else row[number])

        return run

    def _run(self, parameters: Parameters) -> Result:
        if self.definition.lobs is not None:
            parameters = rereadable(parameters)
        heap, given = self.connection.heap(self.definition.name), self.given(parameters)
        if self._query is None and len(self._makers) == 1 and self._conflict is None:
            row = next(self._rows(given))
            return self._result(heap, [self._put(heap, row)], given)
        done: list[Found] = []
        with heap.statement():
            for row in self._rows(given):
                if self._conflict is None:
                    found: Found | None = self._put(heap, row)
                else:
                    found = self._conflict.insert(heap, row, given, done)
                if found is not None:
                    done.append(found)
        return self._result(heap, done, given)

    def _put(self, heap: Heap, row: Values) -> Found:
        try:
            return heap.insert(row), tuple(row)
        except UniqueViolation as violation:
            raise name_key(violation, self.definition.index(violation.index), row) from None

    def _result(self, heap: Heap, done: list[Found], given: Given) -> Result:
        last_id = done[-1][1][self._number] if done and self._number is not None else None
        if self._returning is None:
            return Result(rowcount=len(done), last_id=last_id)
        scope = self._scope
        done = [(i, heap.fetch(i)) if any(map(is_file, values)) else (i, values) for i, values in done]
        rows = [values if not scope.uses_row_id else (*values, str(row_id)) for row_id, values in done]
        made = [self._returning.make(row, given) for row in rows]
        return Result(self._returning.names, self._returning.types, len(done), iter(made), last_id=last_id)

    def run_bulk(self, parsed: Parsed, sets: Any) -> Result:
        """The statement for each of many sets of parameters, which may be Arrow data, all or none."""
        bulk = self._bulk_rows()
        done = 0
        with self.connection.all_or_nothing():
            if hasattr(sets, "__arrow_c_stream__"):
                for batch in pa.RecordBatchReader.from_stream(sets):
                    rows = bulk.from_arrow(batch, self.connection) if bulk and _fits(batch, parsed) else None
                    done += self._append(rows) if rows is not None else self._run_each(parsed, rows_in(batch))
            else:
                for some in in_batches(sets, parsed.count):
                    rows = bulk.from_sets(some, self.connection) if bulk and len(some) >= ROWS_MIN else None
                    done += self._append(rows) if rows is not None else self._run_each(parsed, some)
        return Result(rowcount=done)

    def _bulk_rows(self) -> BulkRows | None:
        """What makes rows of many sets at once, if each row is nothing but parameters."""
        if self._parameters is None or self._conflict is not None or self._returning is not None:
            return None
        targets = dict(zip(self._targets, self._parameters, strict=False))
        return BulkRows(self.definition, targets, self._defaults, self._checks, self.given(()).context)

    def _append(self, rows: pa.RecordBatch) -> int:
        return self.connection.append(self.definition.name, rows)

    def _run_each(self, parsed: Parsed, sets: Iterable[Any]) -> int:
        return sum(self.run(parsed.check(given)).rowcount for given in sets)

    def explain(self) -> list[str]:
        source = ["values"] if self._query is None else ["  " + line for line in self._query.explain()]
        return [f"insert into {self.definition.name}", *source]

    # ---- for ON CONFLICT

    @property
    def scope(self) -> RowScope:
        return self._scope

    @property
    def defaults(self) -> Defaults:
        return self._defaults

    def check(self, row: Sequence[Any], given: Given) -> None:
        self._checks.check(row, given.context)


class _Conflict:
    """ON CONFLICT DO NOTHING or DO UPDATE: what becomes of a row whose key another row has."""

    def __init__(self, insert: Insert, node: Any) -> None:
        self._insert = insert
        table = insert.definition
        self._index = self._chosen_index(node)
        self._sets: list[tuple[int, str, Assign]] = []
        self._where = None
        if not node.args.get("expressions"):
            return
        if self._index is None:
            raise InvalidSyntax("on conflict do update needs the columns of a unique index", *place(node))
        alias = insert.scope.alias
        scope = Scope([ScopeTable(alias, table.columns), ScopeTable("excluded", table.columns, len(table.columns))])
        own = Scope.of(table.name, table.columns)
        for part in node.expressions:
            position, _ = own.column(folded(part.this.this), None, part.this)
            column = table.columns[position]
            self._sets.append((position, column.name, assign_to(_qualified(part.expression, alias), scope, column)))
        where = node.args.get("where")
        if where is not None:
            self._where = compile_condition(_qualified(where.this, alias), scope)

    def _chosen_index(self, node: Any) -> str | None:
        """The unique index that is meant; None: any."""
        table = self._insert.definition
        constraint = node.args.get("constraint")
        if constraint is not None:
            return table.index(folded(constraint)).name
        keys = names_of(node.args.get("conflict_keys") or [])
        if not keys:
            return None
        for index in table.indexes:
            if index.unique and {table.columns[n].name for n in index.positions} == set(keys):
                return index.name
        raise SchemaError(f"table {table.name} has no unique index on ({', '.join(keys)})")

    def insert(self, heap: Heap, row: Values, given: Given, done: list[Found]) -> Found | None:
        """Insert a row, or do what is to be done instead; answers the row that is there now, if anything was done."""
        try:
            return heap.insert(row), tuple(row)
        except UniqueViolation as violation:
            if self._index is not None and violation.index != self._index:
                raise name_key(violation, self._insert.definition.index(violation.index), row) from None
            if not self._sets:
                return None
            row_id = RowId(*violation.row_id)  # type: ignore[misc]
            if any(row_id == one for one, _ in done):
                said = "on conflict do update cannot change a row twice, or one that it has inserted"
                raise ProgrammingError(f"table {self._insert.definition.name}: {said}") from None
            return self._update(heap, row_id, row, given)

    def _update(self, heap: Heap, row_id: RowId, row: Values, given: Given) -> Found | None:
        old = heap.fetch(row_id)
        both = (*old, *row)
        if self._where is not None and self._where.evaluate(both, *given) is not True:
            return None
        new = list(old)
        changes = {}
        for position, name, assign in self._sets:
            new[position] = changes[name] = assign(both, *given)
        self._insert.check(new, given)
        heap.update(row_id, changes)
        return row_id, tuple(new)


def _qualified(node: exp.Expr, table: str) -> exp.Expr:
    """Columns without a table mean the row that is there."""
    node = node.copy()
    for column in node.find_all(exp.Column):
        if column.args.get("table") is None:
            column.set("table", exp.to_identifier(table, True))
    return node


def _fits(batch: pa.RecordBatch, parsed: Parsed) -> bool:
    """Whether a batch has the parameters by their numbers or names."""
    return parsed.names <= set(batch.schema.names) if parsed.names else batch.num_columns == parsed.count


def _plain_parameters(nodes: Sequence[exp.Expr]) -> list[Any] | None:
    """The numbers or names of parameters, if there is nothing else."""
    if not all(isinstance(node, exp.Placeholder) for node in nodes):
        return None
    return [node.name if node.args.get("this") else node.meta[NUMBER] for node in nodes]


def _within(query: exp.Expr, with_: exp.With | None) -> exp.Expr:
    """A query that knows what a WITH before the INSERT has named."""
    if with_ is None:
        return query
    query, outer, own = query.copy(), with_.copy(), query.args.get("with_")
    if own is not None:
        outer.set("expressions", [*outer.expressions, *own.copy().expressions])
        outer.set("recursive", with_.args.get("recursive") or own.args.get("recursive"))
    query.set("with_", outer)
    return query


def _numbering(table: TableDefinition) -> int | None:
    """The column whose values number the rows: the identity, or a primary key that is one integer."""
    for n, column in enumerate(table.columns):
        if column.identity is not None or (table.primary_key == (column.name,) and column.type.name in INTEGERS):
            return n
    return None
