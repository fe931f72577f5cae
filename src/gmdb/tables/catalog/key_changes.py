"""Changes of definitions that concern foreign keys: theirs, and those of what they refer to.

Invariants
 1. A foreign key comes and goes while the session has both tables alone: no transaction is open that has changed rows
    of either without knowing of it.
 2. A table that is referred to counts the foreign keys that do (``referenced``), so that its definition is another one
    whenever they are, and whoever changes its rows sees that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gmdb.errors import SchemaError
from gmdb.process.late_dataclasses import replace
from gmdb.tables.catalog.foreign_keys import ForeignKey, foreign_keys_of, referring_to
from gmdb.tables.catalog.names import is_temporary
from gmdb.tables.catalog.schema import FOREIGN_KEY, PRIMARY_KEY, UNIQUE, Constraint, TableDefinition, key_constraint
from gmdb.tables.catalog.tables import Catalog
from gmdb.transaction.session import Session

_INTEGERS = ("SMALLINT", "INT", "BIGINT")


class KeyChanges:
    """The part of a session's changes of definitions that is about foreign keys."""

    def __init__(
        self,
        catalog: Catalog,
        session: Session,
        take: Callable[[str], TableDefinition],
        change: Callable[[TableDefinition], None],
    ) -> None:
        """``take`` has a table alone from now on; ``change`` gives it another definition."""
        self._catalog, self._session = catalog, session
        self._system = catalog.system(session)
        self._take, self._change = take, change

    @property
    def _tables(self) -> Mapping[str, TableDefinition]:
        return self._catalog.tables_of(self._session)

    def _referring(self, name: str) -> list[ForeignKey]:
        return referring_to(name, self._tables)

    # ---- coming and going

    def add(self, child: TableDefinition, constraint: Constraint) -> TableDefinition:
        """Add a foreign key to a table that the session has alone; returns the table."""
        where = f"table {child.name}, foreign key {constraint.name}"
        parent = child if constraint.references == child.name else self._take(constraint.references)
        if is_temporary(child.schema) != is_temporary(parent.schema):
            raise SchemaError(f"{where}: only temporary tables refer to temporary tables, and to no others")
        key = constraint.key or parent.primary_key
        if not key:
            raise SchemaError(f"{where}: table {parent.name} has no primary key: say to which columns it refers")
        names = tuple(parent.column(name).name for name in key)
        constraint = replace(constraint, references=parent.name, key=names)
        if len(names) != len(constraint.columns):
            raise SchemaError(f"{where}: {len(constraint.columns)} columns refer to {len(names)}")
        key_constraint(parent, names)
        for own, other in zip(constraint.columns, names, strict=True):
            _require_like(where, child, own, parent, other)
        if parent is child:
            child = self._count(child, 1)
        else:
            self._count(parent, 1)
        child = replace(child, constraints=(*child.constraints, constraint))
        self._system.enter_constraint(child, constraint)
        self._change(child)
        if constraint.valid:
            self.check_whole(child, constraint)
        return child

    def drop(self, child: TableDefinition, constraint: Constraint) -> None:
        """Remove a foreign key of a table that the session has alone."""
        if constraint.references != child.name:
            self._count(self._take(constraint.references), -1)
        else:
            child = self._count(child, -1)
        self._system.remove_constraint(child, constraint.name)
        others = tuple(one for one in child.constraints if one.name != constraint.name)
        self._change(replace(child, constraints=others))

    def _count(self, parent: TableDefinition, more: int) -> TableDefinition:
        parent = replace(parent, referenced=max(parent.referenced + more, 0))
        self._system.change_table(parent)
        self._change(parent)
        return parent

    def replace_constraint(self, table: TableDefinition, old: Constraint, new: Constraint) -> TableDefinition:
        """Say something else of a constraint, whose name and columns stay."""
        constraints = tuple(new if one.name == old.name else one for one in table.constraints)
        table = replace(table, constraints=constraints)
        self._system.change_constraint(table, new)
        self._change(table)
        return table

    # ---- what others depend on

    def release(self, names: Sequence[str], cascade: bool) -> None:
        """Tables are about to go: remove the foreign keys that they have, and those of others that refer to them."""
        for name in dict.fromkeys(names):
            for key in self._referring(name):
                if key.child.name in names:
                    continue
                if not cascade:
                    raise _in_use(f"table {name}", key)
                child = self._take(key.child.name)
                self.drop(child, child.constraint(key.constraint.name))
        for name in dict.fromkeys(names):
            for one in self._take(name).constraints:
                if one.kind == FOREIGN_KEY:
                    self.drop(self._take(name), one)

    def release_key(self, table: TableDefinition, constraint: Constraint, cascade: bool) -> None:
        """A primary key or a unique constraint is about to go, and the foreign keys with it that refer to it."""
        if constraint.kind not in (PRIMARY_KEY, UNIQUE):
            return
        for key in self._referring(table.name):
            if key_constraint(table, key.constraint.key).name == constraint.name:
                if not cascade:
                    raise _in_use(f"constraint {constraint.name} of table {table.name}", key)
                child = self._take(key.child.name)
                self.drop(child, child.constraint(key.constraint.name))

    def with_referring(self, names: Sequence[str], cascade: bool) -> list[str]:
        """Tables that are about to be emptied: those that are named, and all whose rows refer to theirs."""
        found = list(dict.fromkeys(names))
        for name in found:  # which grows
            for key in self._referring(name):
                if key.child.name not in found:
                    if not cascade:
                        raise _in_use(f"table {name}", key)
                    found.append(self._take(key.child.name).name)
        return found

    # ---- names

    def rename_table(self, name: str, new_name: str) -> None:
        for key in self._referring(name):
            child = self._take(key.child.name)
            old = child.constraint(key.constraint.name)
            self.replace_constraint(child, old, replace(old, references=new_name))

    def rename_column(self, table: TableDefinition, column: str, new_name: str) -> None:
        """Another name of a column in what refers to it, and in what the table's own foreign keys set."""
        old_name = table.column(column).name

        def renamed(names: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(new_name if name == old_name else name for name in names)

        for key in self._referring(table.name):
            child = self._take(key.child.name)
            old = child.constraint(key.constraint.name)
            if old_name in old.key:
                self.replace_constraint(child, old, replace(old, key=renamed(old.key)))
        for one in self._take(table.name).constraints:
            if old_name in one.sets:
                self.replace_constraint(self._take(table.name), one, replace(one, sets=renamed(one.sets)))

    # ---- checks

    def check_whole(self, child: TableDefinition, constraint: Constraint) -> None:
        """Have all rows of a table checked by a foreign key at the end of the statement."""
        for key in foreign_keys_of(child, self._tables):
            if key.constraint.name == constraint.name:
                self._catalog.foreign_key_checks(self._session).check_whole(key)

    def check_all_of(self, name: str) -> None:
        """A table has other rows: check its foreign keys, and those that refer to it, which are held alone."""
        checks = self._catalog.foreign_key_checks(self._session)
        for key in self._referring(name):
            if key.child.name != name:
                self._take(key.child.name)
        own = foreign_keys_of(self._tables[name], self._tables)
        others = [key for key in self._referring(name) if key.child.name != name]
        for key in (*own, *others):
            where = f"table {key.child.name}, foreign key {key.constraint.name}"
            for name, other in zip(key.constraint.columns, key.constraint.key, strict=True):
                _require_like(where, key.child, name, key.parent, other)
            if key.constraint.valid:
                checks.check_whole(key)


def _require_like(where: str, child: TableDefinition, own: str, parent: TableDefinition, other: str) -> None:
    """Refuse a column that cannot have the values of the one that it refers to."""
    first, second = child.column(own).type, parent.column(other).type
    if first.name != second.name and not (first.name in _INTEGERS and second.name in _INTEGERS):
        raise SchemaError(f"{where}: column {own} is {first}, and {other} of table {parent.name} is {second}")


def _in_use(what: str, key: ForeignKey) -> SchemaError:
    needs = f"constraint {key.constraint.name} of table {key.child.name} refers to it"
    return SchemaError(f"{what} cannot go: {needs}; name that table as well, drop the constraint first, or say CASCADE")
