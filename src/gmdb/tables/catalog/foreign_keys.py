"""Foreign keys: whatever a row refers to is there when a statement has ended, or the transaction commits.

A heap's watch notes which keys rows refer to from now on, and which keys have gone.  At the end of the statement the
session has them settled: what a key's going brings with it is done, and the rest is checked.  What is deferred is
checked at the commit.

Invariants
 1. A check sees the newest commit and all that its own transaction has done, whatever the transaction's snapshot is.
 2. A transaction whose rows refer to a key is on one side of it, one that removes the key on the other, from before
    the check until it ends.  Those of one side do not wait for each other; those of two do, so that the second sees
    what the first has done.
 3. A definition with which a key is checked cannot change before the transaction ends: a foreign key comes and goes
    only with both tables held alone, and whoever changes rows holds their table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from gmdb.errors import DataError, ForeignKeyViolation, NoSuchConstraint, SchemaError
from gmdb.format.address import RowId
from gmdb.format.codec import Unfinished
from gmdb.format.columns import Column
from gmdb.format.options import options_of
from gmdb.kernel.runtime.call import LATEST
from gmdb.kernel.runtime.status import CHANGED, DELETED, NOT_FOUND
from gmdb.process.late_dataclasses import dataclass
from gmdb.tables.access.heap import Heap
from gmdb.tables.access.indexes import IndexDefinition
from gmdb.tables.catalog.schema import (
    CASCADE,
    FOREIGN_KEY,
    NO_ACTION,
    RESTRICT,
    SET_NULL,
    Constraint,
    TableDefinition,
    key_constraint,
)
from gmdb.transaction.table_locks import KeyPlace

if TYPE_CHECKING:
    from gmdb.tables.catalog.tables import Catalog
    from gmdb.transaction.session import Session
    from gmdb.transaction.snapshots import Snapshot

Key = tuple[Any, ...]
Positions = tuple[int, ...]
REFER, REMOVE = "refer", "remove"  # the sides of a key
PLACES = 1 << 16  # for all keys of a table: what a transaction holds of them is bounded
MANY, ROWS_A_PAGE = 10_000, 10  # keys from which on they are compared with all of a table, which is not much larger
_GONE = (CHANGED, DELETED, NOT_FOUND)


# ---- Foreign keys of definitions.


@dataclass(frozen=True)
class ForeignKey:
    """A foreign key, with the positions of its columns in the table that has it, and in the one that it refers to."""

    child: TableDefinition
    constraint: Constraint
    parent: TableDefinition
    positions: Positions
    key: Positions

    def is_called(self, name: str) -> bool:
        """Whether this is its name, with or without the schema that it is in."""
        return name in (self.constraint.name, f"{self.child.schema}.{self.constraint.name}")

    @cached_property
    def index(self) -> IndexDefinition:
        """The unique index of the key."""
        return self.parent.index(key_constraint(self.parent, self.constraint.key).name)

    @cached_property
    def order(self) -> list[int]:
        """Which of a key's values come into each column of the index."""
        return [self.key.index(n) for n in self.index.positions]

    @cached_property
    def normal(self) -> Callable[[Key], Key]:
        """What makes keys of the table, and those that it refers to, equal if the index takes them for the same."""
        return _normalizer([self.child.columns[n] for n in self.positions])


def foreign_keys_of(child: TableDefinition, tables: Mapping[str, TableDefinition]) -> list[ForeignKey]:
    """A table's foreign keys; ``tables``: all, by their names."""
    found = []
    for constraint in child.constraints:
        if constraint.kind == FOREIGN_KEY:
            parent = tables[constraint.references]
            positions = tuple(child.position(name) for name in constraint.columns)
            found.append(ForeignKey(child, constraint, parent, positions, tuple(map(parent.position, constraint.key))))
    return found


def referring_to(parent: str, tables: Mapping[str, TableDefinition]) -> list[ForeignKey]:
    """The foreign keys of all tables that refer to a table."""
    return [
        key
        for child in tables.values()
        if any(one.references == parent for one in child.constraints)
        for key in foreign_keys_of(child, tables)
        if key.parent.name == parent
    ]


def is_whole(foreign_key: ForeignKey, key: Key) -> bool:
    """Whether a row with this key refers to anything; a part of a key is refused by MATCH FULL."""
    if None not in key:
        return True
    if foreign_key.constraint.match_full and any(value is not None for value in key):
        where = f"table {foreign_key.child.name}, constraint {foreign_key.constraint.name}"
        raise ForeignKeyViolation(f"{where}: MATCH FULL does not allow a part of a key: {_shown(key)}")
    return False


# ---- What a heap tells of its rows' changes.


class TableWatch:
    """Notes keys that come and go with the rows of one table, as one session changes them."""

    def __init__(
        self, number: int, checks: Callable[[], ForeignKeyChecks], own: list[ForeignKey], keys: set[Positions]
    ) -> None:
        """``keys``: the columns by which rows of tables refer to this one's, which has this number."""
        self._number, self._checks, self._own, self._keys = number, checks, own, sorted(keys)
        self.columns = frozenset(n for positions in (*keys, *(one.positions for one in own)) for n in positions)
        self.inserts, self.deletes = bool(own), bool(keys)
        self.foreign_keys: Sequence[ForeignKey] = own

    def inserted(self, values: Sequence[Any]) -> None:
        for one in self._own:
            self.refers(one, tuple(values[n] for n in one.positions))

    def refers(self, foreign_key: ForeignKey, key: Key) -> None:
        """A row refers to a key from now on, unless it is NULL."""
        if is_whole(foreign_key, key):
            self._checks().note_reference(foreign_key, key)

    def changed(self, old: Sequence[Any], new: Sequence[Any]) -> None:
        for positions in self._keys:
            before, after = (tuple(row[n] for n in positions) for row in (old, new))
            if before != after and None not in before:
                self._checks().note_gone(self._number, positions, before, after)
        for one in self._own:
            before, after = (tuple(row[n] for n in one.positions) for row in (old, new))
            if before != after:
                self.refers(one, after)

    def deleted(self, old: Sequence[Any]) -> None:
        for positions in self._keys:
            key = tuple(old[n] for n in positions)
            if None not in key:
                self._checks().note_gone(self._number, positions, key, None)


# ---- What is to be checked.


class _Gone(NamedTuple):
    """A key that a row had; ``now``: what it has, if the row is there."""

    mark: int
    table: int
    positions: Positions
    key: Key
    now: Key | None


References = dict[tuple[int, str], dict[Key, int]]  # by a table's number and a constraint's name; keys, and marks


class ForeignKeyChecks:
    """What a session's transaction has yet to check."""

    def __init__(self, catalog: Catalog, session: Session) -> None:
        self._catalog, self._session = catalog, session
        self._heaps: dict[int, Heap] = {}
        self._known: tuple[Any, dict[int, list[ForeignKey]]] = None, {}
        self._by_name: dict[tuple[int, str], ForeignKey] = {}
        self._finders: dict[tuple[int, Positions], tuple[Any, Any]] = {}
        self.begin()

    def begin(self) -> None:
        """A transaction begins."""
        self._references: References = {}
        self._gone: list[_Gone] = []
        self._late_references: References = {}  # that are checked at the commit
        self._late_gone: list[_Gone] = []
        self._modes: dict[tuple[int, str], bool] = {}  # whether constraints are deferred, as the program has said
        self._all: bool | None = None
        self._is_held = 0

    # ---- noting

    def note_reference(self, foreign_key: ForeignKey, key: Key) -> None:
        name = foreign_key.child.number, foreign_key.constraint.name
        late = foreign_key.constraint.deferrable and self._is_late(foreign_key)
        (self._late_references if late else self._references).setdefault(name, {}).setdefault(key, self._session.mark())

    def note_gone(self, table: int, positions: Positions, key: Key, now: Key | None) -> None:
        self._gone.append(_Gone(self._session.mark(), table, positions, key, now))

    def take_back_to(self, mark: int) -> None:
        for gone in (self._gone, self._late_gone):
            while gone and gone[-1].mark > mark:
                gone.pop()
        for references in (self._references, self._late_references):
            for keys in references.values():
                while keys and next(reversed(keys.values())) > mark:
                    keys.popitem()

    @property
    def is_told(self) -> bool:
        """Whether the program has said when to check in this transaction."""
        return self._all is not None or bool(self._modes)

    @property
    def is_waiting(self) -> bool:
        """Whether something is to be checked at the commit."""
        return bool(self._late_gone) or any(self._late_references.values())

    def concern(self, number: int) -> bool:
        """Whether a table's rows are to be checked at the commit, or by what they are checked has gone."""
        references = any(keys and name[0] == number for name, keys in self._late_references.items())
        return references or any(one.table == number for one in self._late_gone)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Several statements of which only the last is followed by checks."""
        self._is_held += 1
        try:
            yield
        finally:
            self._is_held -= 1

    # ---- SET CONSTRAINTS

    def defer(self, names: Sequence[str] | None, late: bool) -> None:
        """Check constraints at the commit, or at the end of each statement from now on.  None: all that can be."""
        if names is None:
            self._all = late
            self._modes.clear()
        for name in names or ():
            found = [key for keys in self._all_keys().values() for key in keys if key.is_called(name)]
            if not found:
                raise NoSuchConstraint(f"there is no foreign key {name}")
            for key in found:
                if not key.constraint.deferrable:
                    raise SchemaError(f"constraint {name} of table {key.child.name} is not deferrable")
                self._modes[key.child.number, key.constraint.name] = late
        if not late:
            references = {name: keys for name, keys in self._late_references.items() if not self._is_late_name(name)}
            self._check(references, self._late_gone, is_commit=False)  # kept: a savepoint may take back what they need

    def _is_late(self, foreign_key: ForeignKey) -> bool:
        constraint = foreign_key.constraint
        usual = constraint.deferred if self._all is None else self._all
        return constraint.deferrable and self._modes.get((foreign_key.child.number, constraint.name), usual)

    def _is_late_name(self, name: tuple[int, str]) -> bool:
        foreign_key = self._find(name)
        return foreign_key is not None and self._is_late(foreign_key)

    # ---- settling

    def settle(self) -> None:
        if self._is_held:
            return
        checked: list[_Gone] = []
        while self._gone:
            gone, self._gone = self._gone, []
            self._take(REMOVE, gone)
            for one in gone:
                self._restrict(one)
            for one in gone:
                self._act(one)
            checked += gone
        references, self._references = self._references, {}
        if checked or any(references.values()):
            self._check(references, checked, is_commit=False)
            self._late_gone += [one for one in checked if any(self._is_late(key) for key in self._referring(one))]

    def settle_all(self) -> None:
        references, gone = self._late_references, self._late_gone
        self._check(references, gone, is_commit=True)
        self._late_references, self._late_gone = {}, []

    def _take(self, side: str, gone: Sequence[_Gone]) -> None:
        """Be on a side of keys, and see what those who were on the other one have done."""
        keys: dict[tuple[int, Positions], list[Key]] = {}
        for one in gone:
            keys.setdefault((one.table, one.positions), []).append(one.key)
        for (number, positions), some in keys.items():
            table = self._catalog.newest(self._session)[number]
            self._session.join_keys(side, _places(table, positions, some), f"a key of table {table.name}")
        if self._session.call[LATEST]:
            self._session.see_newest()

    def _restrict(self, gone: _Gone) -> None:
        for key in self._referring(gone):
            if _action(key, gone) == RESTRICT:
                self._require_unused(key, [gone.key])

    def _act(self, gone: _Gone) -> None:
        for key in self._referring(gone):
            action = _action(key, gone)
            if action not in (NO_ACTION, RESTRICT):
                self._change_rows(key, gone, action)

    def _change_rows(self, key: ForeignKey, gone: _Gone, action: str) -> None:
        """Have rows follow a key that has changed, or go with it."""
        heap, is_late = self._heap(key.child.number), True
        while is_late:
            is_late = False
            for row_id, values in self._rows(key, gone.key):
                if action == CASCADE and gone.now is None:
                    status = heap.try_delete(row_id)
                else:
                    changes = self._new_values(key, gone, action)
                    status = heap.try_update(row_id, self._catalog.complete_change(key.child, values, changes))
                if status in _GONE:  # meanwhile, by another transaction
                    is_late = True
                else:
                    heap.refuse_if_failed(status, row_id)
            if is_late:
                self._session.see_newest()

    def _new_values(self, key: ForeignKey, gone: _Gone, action: str) -> dict[str, Any]:
        constraint = key.constraint
        if action == CASCADE:
            assert gone.now is not None
            return dict(zip(constraint.columns, gone.now, strict=True))
        names = constraint.columns if gone.now is not None else constraint.sets or constraint.columns
        if action == SET_NULL:
            return dict.fromkeys(names)
        return {name: self._catalog.default_of(key.child, name) for name in names}

    # ---- checks

    def _check(self, references: References, gone: Sequence[_Gone], is_commit: bool) -> None:
        """Refuse rows that refer to what is not there; ``gone``: keys without which it may not be."""
        for name, keys in references.items():
            foreign_key = self._find(name)  # None: the constraint is gone by now
            if foreign_key is not None and keys:
                table, positions = foreign_key.parent, foreign_key.key
                places = _places(table, positions, keys)
                self._session.join_keys(REFER, places, f"a key of table {table.name}")
                missing = self._missing(foreign_key, list(keys))
                used = self._first_used(foreign_key, missing) if missing else None
                if used is not None:
                    raise _no_such_key(foreign_key, used)
        wanted: dict[tuple[int, str], tuple[ForeignKey, list[Key]]] = {}
        for one in gone:
            for foreign_key in self._referring(one):
                if is_commit or not self._is_late(foreign_key):
                    name = foreign_key.child.number, foreign_key.constraint.name
                    wanted.setdefault(name, (foreign_key, []))[1].append(one.key)
        for foreign_key, keys_gone in wanted.values():
            missing = self._missing(foreign_key, list(dict.fromkeys(keys_gone)))
            self._require_unused(foreign_key, missing)

    def _require_unused(self, foreign_key: ForeignKey, keys: Sequence[Key]) -> None:
        used = self._first_used(foreign_key, keys) if keys else None
        if used is not None:
            raise _still_used(foreign_key, used)

    def check_whole(self, foreign_key: ForeignKey) -> None:
        """Have all rows of a table checked at the end of the statement."""
        name, mark = (foreign_key.child.number, foreign_key.constraint.name), self._session.mark()
        for key in self._keys_of(foreign_key.child.number, foreign_key.positions):
            if is_whole(foreign_key, key):
                self._references.setdefault(name, {}).setdefault(key, mark)

    def _keys_of(self, number: int, positions: Positions) -> Iterator[Key]:
        """The values of some columns in all rows of a table."""
        heap = self._heap(number)
        with self._newest(heap) as (snapshot, form):
            yield from self._catalog.keys_of_rows(heap, positions, heap.page_ids(snapshot.check), snapshot.check, form)

    def _missing(self, foreign_key: ForeignKey, keys: Sequence[Key]) -> list[Key]:
        """The keys that no row of the table that is referred to has."""
        heap, index = self._heap(foreign_key.parent.number), foreign_key.index
        if len(keys) > MANY and len(keys) > ROWS_A_PAGE * heap.segment.head.page_count:
            normal = foreign_key.normal
            present = set(map(normal, self._keys_of(foreign_key.parent.number, foreign_key.key)))
            return [key for key in keys if normal(key) not in present]
        keys, order, missing = self._not_found_at_once(foreign_key, heap, keys), foreign_key.order, list[Key]()
        if not keys:
            return []
        with self._newest(heap) as (snapshot, form):
            probe = heap.by_seen(index.name).probe(snapshot.scn, form, snapshot.check, heap.plain_decode)
            find = probe.one()
            for key in keys:
                try:
                    if find([key[n] for n in order]) is not None:
                        continue
                except DataError:  # no such value fits the columns
                    pass
                missing.append(key)
            probe.close()
        return missing

    def _not_found_at_once(self, foreign_key: ForeignKey, heap: Heap, keys: Sequence[Key]) -> Sequence[Key]:
        """The keys that are not found in a kernel call each; some of these may be there."""
        if not self._session.call[LATEST]:
            return keys
        with self._session.hub.guard:
            heap.look()
        known = self._finders.get((foreign_key.parent.number, foreign_key.key))
        if known is None or known[0] is not heap.view:
            keyed = heap.by_seen(foreign_key.index.name)
            known = heap.view, keyed.finder(foreign_key.index.positions[:1], False, nulls=False)
            self._finders[foreign_key.parent.number, foreign_key.key] = known
        find, order = known[1], foreign_key.order
        if find is None:
            return keys
        not_found = []
        for key in keys:
            found = find(tuple(key[n] for n in order))
            if found.__class__ is not list or not found:
                not_found.append(key)
        return not_found

    def _first_used(self, foreign_key: ForeignKey, keys: Sequence[Key]) -> Key | None:
        """The first of some keys to which a row refers."""
        if _own_index(foreign_key) is not None:
            return next((key for key in keys if self._rows(foreign_key, key)), None)
        wanted, normal = {foreign_key.normal(key): key for key in keys}, foreign_key.normal
        rows = self._scan(foreign_key, lambda key: normal(key) in wanted)
        return next((tuple(values[n] for n in foreign_key.positions) for _, values in rows), None)

    def _rows(self, foreign_key: ForeignKey, key: Key) -> list[tuple[RowId, tuple[Any, ...]]]:
        """The rows that refer to a key."""
        child, index = foreign_key.child, _own_index(foreign_key)
        if index is None:
            normal = foreign_key.normal
            wanted = normal(key)
            return list(self._scan(foreign_key, lambda own: normal(own) == wanted))
        count, heap = len(foreign_key.positions), self._heap(child.number)
        order = [foreign_key.positions.index(n) for n in index.positions[:count]]
        with self._newest(heap) as (snapshot, form):
            keyed = heap.by_seen(index.name)
            decode, finish = heap.plain_decode, heap.finisher(snapshot)
            probe = keyed.probe(snapshot.scn, form, snapshot.check, decode, row_ids=True, finish=finish)
            try:
                return list(probe.some(count)([key[n] for n in order]))
            except DataError:
                return []
            finally:
                probe.close()

    def _scan(
        self, foreign_key: ForeignKey, is_wanted: Callable[[Key], bool]
    ) -> Iterator[tuple[RowId, tuple[Any, ...]]]:
        """The rows with wanted keys; of others, no more is read from elsewhere than that takes.

        A value that is elsewhere is compared as what the row has, too, which is what was noted of it.
        """
        heap, positions = self._heap(foreign_key.child.number), foreign_key.positions
        with self._newest(heap) as (snapshot, form):
            decode, whole_key = heap.decoder(snapshot), heap.finisher(snapshot, positions)

            def is_meant(values: Sequence[Any]) -> bool:
                key = tuple(values[n] for n in positions)
                return None not in key and is_wanted(key)

            for page_id in heap.page_ids(snapshot.check).tolist():
                self._session.check_interrupted()
                rows = heap.encoded_rows_of_page(page_id, form)
                snapshot.check()
                for row_id, row in rows:
                    values = heap.plain_decode(row)
                    is_apart = whole_key is not None and values.__class__ is Unfinished
                    if is_meant(values) or (is_apart and is_meant(whole_key(values))):  # type: ignore[misc]
                        yield row_id, decode(row)

    @contextmanager
    def _newest(self, heap: Heap) -> Iterator[tuple[Snapshot, memoryview]]:
        """The newest commit, and all that the transaction has done."""
        with ExitStack() as reading:
            with self._session.hub.guard:  # the definition is of the same instant
                scn = self._session.hub.memory.scn
                snapshot, form = reading.enter_context(self._session.cursor(scn))
                heap.see(scn)
            yield snapshot, form

    # ---- definitions

    def _heap(self, number: int) -> Heap:
        heap = self._heaps.get(number)
        if heap is None:
            heap = self._heaps[number] = self._catalog.newest_heap(number, self._session)
        return heap

    def _all_keys(self) -> dict[int, list[ForeignKey]]:
        """All foreign keys, by the numbers of the tables that they refer to."""
        tables = self._catalog.newest(self._session)
        if self._known[0] is not tables:
            by_name = {table.name: table for table in tables.values()}
            found: dict[int, list[ForeignKey]] = {}
            for table in tables.values():
                for key in foreign_keys_of(table, by_name):
                    found.setdefault(key.parent.number, []).append(key)
            self._known = tables, found
            self._by_name = {(key.child.number, key.constraint.name): key for keys in found.values() for key in keys}
        return self._known[1]

    def _find(self, name: tuple[int, str]) -> ForeignKey | None:
        self._all_keys()
        return self._by_name.get(name)

    def _referring(self, gone: _Gone) -> list[ForeignKey]:
        return [key for key in self._all_keys().get(gone.table, ()) if key.key == gone.positions]

    def keys_referred_to(self, number: int) -> set[Positions]:
        """The columns of a table by which others refer to its rows."""
        return {key.key for key in self._all_keys().get(number, ())}


def _action(key: ForeignKey, gone: _Gone) -> str:
    return key.constraint.on_delete if gone.now is None else key.constraint.on_update


def _own_index(key: ForeignKey) -> IndexDefinition | None:
    """An index by which rows are found that refer to a key: one that begins with its columns."""
    count = len(key.positions)
    for index in key.child.indexes:
        is_whole = index.using == "btree" or len(index.positions) == count
        is_plain = not index.building and not options_of(index)  # else it may lack rows, or have other keys
        if set(index.positions[:count]) == set(key.positions) and is_whole and is_plain:
            return index
    return None


def _normalizer(columns: Sequence[Column]) -> Callable[[Key], Key]:
    """A function that makes keys equal if, and only if, an index of such columns takes them for the same."""
    strip = {n: column.type.padding for n, column in enumerate(columns) if column.type.padding}
    doubles = [n for n, column in enumerate(columns) if column.type.name in ("DOUBLE", "REAL")]
    if not strip and not doubles:
        return lambda key: key

    def normal(key: Key) -> Key:
        values = list(key)
        for n, padding in strip.items():
            values[n] = values[n].rstrip(padding if isinstance(values[n], bytes) else padding.decode())
        for n in doubles:
            values[n] = "NaN" if values[n] != values[n] else values[n]
        return tuple(values)

    return normal


def _places(table: TableDefinition, positions: Positions, keys: Iterable[Key]) -> set[KeyPlace]:
    normal, number = _normalizer([table.columns[n] for n in positions]), table.number
    return {KeyPlace(number, place) for place in {hash(normal(key)) % PLACES for key in keys}}


def _shown(key: Key) -> str:
    return f"({', '.join('NULL' if value is None else str(value)[:100] for value in key)})"


def _no_such_key(key: ForeignKey, value: Key) -> ForeignKeyViolation:
    columns = ", ".join(key.constraint.key)
    where = f"table {key.child.name}, constraint {key.constraint.name}"
    return ForeignKeyViolation(f"{where}: table {key.parent.name} has no row with ({columns}) = {_shown(value)}")


def _still_used(key: ForeignKey, value: Key) -> ForeignKeyViolation:
    columns = ", ".join(key.constraint.key)
    what = f"table {key.parent.name}: rows of table {key.child.name} refer to ({columns}) = {_shown(value)}"
    return ForeignKeyViolation(f"{what}, constraint {key.constraint.name}")


def watch_of(catalog: Catalog, session: Session, table: TableDefinition) -> TableWatch | None:
    """Who is told of changes of a table's rows, if it has foreign keys or is referred to."""
    if not table.referenced and not any(one.kind == FOREIGN_KEY for one in table.constraints):
        return None
    checks = partial(catalog.foreign_key_checks, session)
    by_name = {one.name: one for one in catalog.newest(session).values()}
    try:
        own = foreign_keys_of(table, by_name)
    except (KeyError, SchemaError):  # a definition of before, by which rows are read but not changed
        own = []
    return TableWatch(table.number, checks, own, checks().keys_referred_to(table.number))
