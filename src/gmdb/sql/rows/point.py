"""The row of a key in one kernel call: what statements about single rows come to.

A relation has this way if it is a look-up by a whole unique key that shows columns as they are.  The kernel itself
checks that the table still is defined as it was when the look-up was made, and that values are of the columns' types:
where it does not do, ``read`` returns None and has done nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gmdb.kernel.runtime.call import LATEST
from gmdb.kernel.runtime.status import NOT_NOW
from gmdb.sql import tree
from gmdb.sql.plan.paths import Access
from gmdb.sql.rows.expressions import compile_row, is_taken
from gmdb.sql.types import TEXT
from gmdb.tables.access.shapes import are_known
from gmdb.transaction.interrupts import operation

if TYPE_CHECKING:
    from gmdb.database.connection import Connection
    from gmdb.sql.run import Parameters
    from gmdb.tables.access.heap import Heap

MakeKey = Callable[["Parameters"], Sequence[Any]]


class Point:
    """``read`` returns the values of the columns that a relation shows, in a list of one tuple, or of none.

    With ``follow``, which is called with the table's heap when that has another definition, a row's place comes before
    its values.
    """

    def __init__(
        self, connection: Connection, access: Access, outputs: Sequence[int], follow: Callable[[Heap], None] | None
    ) -> None:
        self.session = connection.session
        self._connection, self._definition = connection, access.table.definition
        assert access.path.index is not None
        self._index, self._outputs, self._follow = access.path.index.name, outputs, follow
        self._make_key = _key_maker(access)
        self.takes_parameters = self._make_key is None  # whatever their types: the key is all of them
        self._target = 0  # the description of the table that ``find`` goes by
        self.find: Callable[[Sequence[Any]], Any] = _not_now

    def read(self, parameters: Parameters) -> list[Any] | None:
        key: Any = parameters if self._make_key is None else self._make_key(parameters)
        rows = self.find(key)
        return rows if rows.__class__ is list else self.look_and_find(key)

    @operation
    def look_and_find(self, key: Sequence[Any]) -> list[Any] | None:
        """``find``, for the first time in a transaction."""
        if not self.session.call[LATEST] or not self._look():
            return None
        rows = self.find(key)
        return rows if rows.__class__ is list else None

    def _look(self) -> bool:
        """See how the table is defined by now; returns whether reads go by the definition that was planned for."""
        heap = self._connection.heap(self._definition.name)
        if heap.definition is not self._definition:
            return False
        with self.session.hub.store.guard:
            heap.look()
        if heap.definition is not self._definition:
            return False
        if heap.target != self._target:
            gives_places = self._follow is not None
            find = heap.by_seen(self._index).finder(self._outputs, gives_places, nulls=False)
            if find is None:
                return False
            if self._follow is not None:
                self._follow(heap)
            self.find, self._target = find, heap.target
        return True


def _not_now(_: Sequence[Any]) -> int:
    return NOT_NOW


def point_of(
    connection: Connection, relation: tree.Relation, follow: Callable[[Heap], None] | None = None
) -> Point | None:
    """This way for a relation, whose first column is the row's id if there is ``follow``; None if it has none."""
    shown = _shown(relation)
    if shown is None:
        return None
    access, columns = shown
    if follow is not None:
        row_id, *columns = columns
        assert row_id is access.table.row_id
    if not access.path.is_single or access.is_lateral:
        return None
    if any(tree.has_queries(value) for value in access.path.spans[0].equal):
        return None
    numbers = {column: n for n, column in enumerate(access.table.stored)}
    if not all(column in numbers for column in columns):
        return None
    outputs = [numbers[column] for column in columns]
    if not are_known(access.table.definition.columns[n] for n in outputs):
        return None
    return Point(connection, access, outputs, follow)


def _shown(relation: tree.Relation) -> tuple[Access, list[tree.Column]] | None:
    """The look-up that a relation is, and which of the table's columns it shows; None if it is more than that."""
    if isinstance(relation, Access):
        return relation, list(relation.columns)
    if not isinstance(relation, tree.Project):
        return None
    inner = _shown(relation.source)
    if inner is None:
        return None
    access, columns = inner
    stored = dict(zip(relation.source.columns, columns, strict=True))
    values = [value for _, value in relation.outputs]
    if not all(isinstance(value, tree.Reference) and value.column in stored for value in values):
        return None
    return access, [stored[value.column] for value in values if isinstance(value, tree.Reference)]


def _key_maker(access: Access) -> MakeKey | None:
    """What makes a key of parameters; None: they are the key.  None within a key stands for what no row can have."""
    (span,), fits = access.path.spans, access.path.fits()
    if not any(fits) and are_parameters(span.equal):
        return None
    evaluate = compile_row(span.equal, ())
    if not any(fits):
        return lambda parameters: evaluate((), parameters)

    def fitted(parameters: Parameters) -> Sequence[Any]:
        values = evaluate((), parameters)
        return [value if fit is None or value is None else fit(value) for value, fit in zip(values, fits, strict=True)]

    return fitted


def as_given(value: tree.Expression) -> tree.Expression:
    """What a column is set to; a parameter that is to be read as the column's type comes unread.

    Kernels take a value only if reading it would change nothing, and refuse it otherwise.
    """
    if isinstance(value, tree.Parameter) and value.value_type is None:
        return tree.Parameter(TEXT, value.key)
    return value


def are_parameters(values: Sequence[tree.Expression]) -> bool:
    """Whether values are the parameters in their order, unchanged."""
    return all(isinstance(one, tree.Parameter) and one.key == n and is_taken(one) for n, one in enumerate(values))
