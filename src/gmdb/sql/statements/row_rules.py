"""What a table asks of rows that are changed below SQL, as a foreign key's actions do: its checks and its defaults."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from gmdb.sql.zones import ZONE
from gmdb.tables.catalog.schema import TableDefinition

if TYPE_CHECKING:
    from gmdb.tables.access.generated import Generation
    from gmdb.tables.catalog.tables import Catalog

TABLES_MAX = 100  # whose rules are kept


class _Rules:
    """The rules of one definition of a table, by a time zone."""

    def __init__(self, table: TableDefinition) -> None:
        from gmdb.sql.statements.assignment import Checks, Defaults  # whoever changes no such row need not load it

        self.table, self.zone = table, ZONE.get()
        self.checks, self.defaults = Checks(table), Defaults(table)


class RowRules:
    """The rules of tables whose rows were changed lately."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, _Rules] = OrderedDict()

    def _of(self, table: TableDefinition) -> _Rules:
        rules = self._known.pop(table.number, None)
        if rules is None or rules.table is not table or rules.zone != ZONE.get():
            rules = _Rules(table)
        self._known[table.number] = rules
        if len(self._known) > TABLES_MAX:
            self._known.popitem(last=False)
        return rules

    def complete_change(
        self, table: TableDefinition, values: Sequence[Any], changes: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """New values of some columns of a row, which is refused if it breaks a check then."""
        checks = self._of(table).checks.after([table.position(name) for name in changes]).of_columns()
        new = [changes.get(column.name, value) for column, value in zip(table.columns, values, strict=True)]
        checks.complete(new, datetime.now(UTC))
        return {**changes, **{table.columns[n].name: new[n] for n in checks.generated.positions}}

    def default_of(self, table: TableDefinition, column: str) -> Any:
        """What a column gets where a row has no value for it."""
        from gmdb.sql.rows.expressions import compile_expression

        default = self._of(table).defaults.of(table.position(column))
        return compile_expression(default, ())((), (), datetime.now(UTC))

    def generation_of(self, table: TableDefinition) -> Generation:
        """How its generated columns come about."""
        from gmdb.sql.statements.generated import generation_of

        return generation_of(table)


def know_rules(catalog: Catalog) -> None:
    """Let the catalog of a database know what its definitions' expressions mean."""
    if not isinstance(getattr(catalog.complete_change.function, "__self__", None), RowRules):
        rules = RowRules()
        catalog.complete_change.connect(rules.complete_change)
        catalog.default_of.connect(rules.default_of)
        catalog.generation_of.connect(rules.generation_of)
