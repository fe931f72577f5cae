"""Definitions: CREATE, DROP, ALTER and TRUNCATE, as methods of the connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from gmdb.arrow.schema import arrow_schema
from gmdb.catalog.schema import CHECK, PRIMARY_KEY, UNIQUE, Constraint
from gmdb.dbapi import Result
from gmdb.errors import (
    CheckViolation,
    InvalidSyntax,
    NoSuchIndex,
    NoSuchTable,
    NotSupportedError,
    ProgrammingError,
    SchemaError,
)
from gmdb.format.columns import Column
from gmdb.format.segment import DEFAULT_PCT_FREE
from gmdb.sql.dialect import GmdbSql, parse_expression, place
from gmdb.sql.expressions import compile_assignment, compile_condition
from gmdb.sql.parser import Parsed
from gmdb.sql.scope import Scope, folded, names_of, table_name
from gmdb.sql.select import prepare_select
from gmdb.sql.statement import Parameters, Statement, is_system_name, no_such_table
from gmdb.sql.types import TEXT, type_from

if TYPE_CHECKING:
    from gmdb.connection import Connection

MAIN_SPACE = "main"


def written(node: exp.Expr) -> str:
    """An expression as SQL writes it, for the catalog to keep."""
    return node.sql(dialect=GmdbSql)


class Definition(Statement):
    """A change of a definition; it is worked out anew each time, for it changes what it goes by."""

    def __init__(self, connection: Connection, parsed: Parsed) -> None:
        super().__init__(connection)
        self._node: Any = parsed.statement
        self._parsed = parsed
        self._options = parsed.options

    def run(self, parameters: Parameters) -> Result:
        node = self._node
        if isinstance(node, exp.Create):
            return self._create(node, parameters)
        if isinstance(node, exp.Drop | exp.Alter | exp.TruncateTable):
            with self.connection.all_or_nothing():
                self._change(node)
        else:
            raise NotSupportedError(f"gmdb has no {node.key.upper()}")
        return Result()

    def _change(self, node: exp.Drop | exp.Alter | exp.TruncateTable) -> None:
        """What may be several changes."""
        if isinstance(node, exp.Drop):
            self._drop(node)
        elif isinstance(node, exp.Alter):
            self._alter(node)
        else:
            restart = str(node.args.get("identity") or "").upper() == "RESTART"
            for table in node.expressions:
                self.connection.truncate_table(self._existing(table), restart_identity=restart)

    def explain(self) -> list[str]:
        return [self._node.sql(dialect=GmdbSql)]

    def _existing(self, node: exp.Expr) -> str:
        """The name of a table that there is."""
        name = table_name(node)
        try:
            return self.connection.table(name).name
        except NoSuchTable:
            raise no_such_table(self.connection, name, node) from None

    # ---- create

    def _create(self, node: exp.Create, parameters: Parameters) -> Result:
        kind = str(node.args["kind"]).upper()
        if node.args.get("replace") or kind not in ("TABLE", "INDEX"):
            raise NotSupportedError(f"create {'or replace ' if node.args.get('replace') else ''}{kind.lower()}")
        if kind == "INDEX":
            self._create_index(node)
            return Result()
        given = node.args["properties"].expressions if node.args.get("properties") is not None else []
        settings = [_setting(one) for one in given]
        query = node.args.get("expression")
        if query is None and not isinstance(node.this, exp.Schema):
            raise InvalidSyntax("syntax error: CREATE TABLE needs columns", *place(node))
        name = table_name(node.this.this if isinstance(node.this, exp.Schema) else node.this)
        if node.args.get("exists") and name in self.connection.tables():
            return Result()
        _require_own_name(name)
        with self.connection.all_or_nothing():
            made = Result()
            if query is not None:
                made = self._create_as(name, node.this, query, parameters)
            else:
                self._create_table(name, node.this.expressions)
            for on in settings:
                self.connection.set_change_feed(name, on)
        return made

    def _create_as(self, name: str, target: exp.Expr, query: exp.Expr, parameters: Parameters) -> Result:
        """A table of what a query finds, whose columns are called and typed as those of the query, or as was given."""
        parsed = Parsed(self._parsed.text, query, self._parsed.names, self._parsed.count)
        found = prepare_select(self.connection, parsed).run(parameters)
        given = names_of(target.expressions) if isinstance(target, exp.Schema) else []
        if len(given) > len(found.names):
            raise SchemaError(f"table {name}: {len(given)} columns were named, but the query has {len(found.names)}")
        names = [*given, *found.names[len(given) :]]
        columns = [Column(n, type_ or TEXT) for n, type_ in zip(names, found.types, strict=True)]
        data = found.as_reader().read_all()
        with self.connection.all_or_nothing():
            self._create_columns(name, columns, ())
            schema = arrow_schema(columns)
            rows = self.connection.append(name, data.rename_columns(names).cast(schema)) if data.num_rows else 0
        return Result(rowcount=rows)

    def _create_table(self, name: str, parts: Sequence[exp.Expr]) -> None:
        columns: list[Column] = []
        constraints: list[Constraint] = []
        for part in parts:
            if isinstance(part, exp.ColumnDef):
                column, own = _column(name, part)
                columns.append(column)
                constraints += own
            else:
                constraints.append(_table_constraint(part))
        keys = [c for c in constraints if c.kind == PRIMARY_KEY]
        if len(keys) > 1:
            raise SchemaError(f"table {name} has two primary keys")
        if keys:
            columns = [_not_null(c) if c.name in keys[0].columns else c for c in columns]
        scope = Scope.of(name, columns)
        for constraint in constraints:
            if constraint.kind == CHECK:
                _require_check(constraint, scope)
        self._create_columns(name, columns, constraints)

    def _create_columns(self, name: str, columns: Sequence[Column], constraints: Sequence[Constraint]) -> None:
        pct_free = int(self._options.get("pctfree", DEFAULT_PCT_FREE))
        space = self._options.get("tablespace", MAIN_SPACE)
        self.connection.create_table(name, list(columns), constraints=constraints, tablespace=space, pct_free=pct_free)

    def _create_index(self, node: exp.Create) -> None:
        index: Any = node.this
        table = self._existing(index.args["table"])
        name = folded(index.this) if index.this is not None else ""
        if node.args.get("exists") and any(i.name == name for i in self.connection.table(table).indexes):
            return
        given = index.args["params"]
        using = str(given.args.get("using") or "btree").lower()
        columns = []
        for part in given.args.get("columns") or []:
            inner = part.this if isinstance(part, exp.Ordered) else part
            if not isinstance(inner, exp.Column) or (isinstance(part, exp.Ordered) and part.args.get("desc")):
                raise NotSupportedError(f"an index is over columns, in ascending order, not over {part.sql()}")
            columns.append(folded(inner.this))
        if given.args.get("where") is not None or given.args.get("include"):
            raise NotSupportedError("indexes over some rows, or with further columns")
        name = name or "_".join([table, *columns, "idx"])
        with self._while_others_go_on() if node.args.get("concurrently") else nullcontext():
            self.connection.create_index(name, table, columns, unique=bool(node.args.get("unique")), using=using)

    @contextmanager
    def _while_others_go_on(self) -> Iterator[None]:
        """CONCURRENTLY: as a transaction of its own, which needs the table alone for two moments only."""
        if self.connection.in_transaction:
            raise ProgrammingError("create index concurrently is a transaction of its own; commit or roll back first")
        before, self.connection.autocommit = self.connection.autocommit, True
        try:
            yield
        finally:
            self.connection.autocommit = before

    # ---- drop

    def _drop(self, node: exp.Drop) -> None:
        kind, names = str(node.args["kind"]).upper(), node.args.get("tables") or [node.this]
        for part in names:
            name = folded(part.this)
            try:
                if kind == "TABLE":
                    self.connection.drop_table(self._existing(part))
                elif kind == "INDEX":
                    self.connection.drop_index(name)
                else:
                    raise NotSupportedError(f"drop {kind.lower()}")
            except (NoSuchTable, NoSuchIndex):
                if not node.args.get("exists"):
                    raise

    # ---- alter

    def _alter(self, node: exp.Alter) -> None:
        if str(node.args.get("kind")).upper() != "TABLE":
            raise NotSupportedError(f"alter {node.args.get('kind')}")
        table = self._existing(node.this)
        for action in node.args["actions"]:
            change = _ALTERATIONS.get(type(action))
            if change is None:
                raise NotSupportedError(f"alter table {table} {action.sql()}")
            change(self, table, action)

    def _add_column(self, table: str, action: Any) -> None:
        column, constraints = _column(table, action)
        value = None
        if column.default is not None:
            default = action.find(exp.DefaultColumnConstraint).this
            value = compile_assignment(default, Scope(), column.type).evaluate((), (), None)
        self.connection.add_column(table, column, value)
        for constraint in constraints:
            self.connection.add_constraint(table, constraint)

    def _rename_column(self, table: str, action: Any) -> None:
        old, new = folded(action.this.this), folded(action.args["to"].this)
        checks = {
            constraint.name: _renamed(constraint.text, old, new)
            for constraint in self.connection.table(table).constraints
            if constraint.kind == CHECK
        }
        self.connection.rename_column(table, old, new, checks=checks)

    def _rename_table(self, table: str, action: Any) -> None:
        name = folded(action.this.this)
        _require_own_name(name)
        self.connection.rename_table(table, name)

    def _set(self, table: str, action: Any) -> None:
        for one in action.expressions:
            self.connection.set_change_feed(table, _setting(one))

    def _alter_column(self, table: str, action: Any) -> None:
        name = folded(action.this.this if isinstance(action.this, exp.Column) else action.this)
        if action.args.get("default") is not None:
            column = self.connection.table(table).column(name)
            compile_assignment(action.args["default"], Scope(), column.type)
            self.connection.alter_column(table, name, default=written(action.args["default"]))
        elif action.args.get("drop") and action.args.get("allow_null") is None:
            self.connection.alter_column(table, name, default=None)
        elif action.args.get("allow_null") is not None:
            self.connection.alter_column(table, name, nullable=bool(action.args["allow_null"]))
        else:
            raise NotSupportedError(f"alter table {table} {action.sql()}")

    def _add_constraint(self, table: str, action: Any) -> None:
        for part in action.expressions:
            constraint = _table_constraint(part)
            if constraint.kind == CHECK:
                definition = self.connection.table(table)
                _require_check(constraint, Scope.of(table, definition.columns))
                self._require_rows(table, constraint)
            self.connection.add_constraint(table, constraint)

    def _require_rows(self, table: str, constraint: Constraint) -> None:
        """Refuse a check that a row breaks already."""
        quoted = exp.to_identifier(table, True).sql()
        found = self.connection.run(f"select 1 from {quoted} where not ({constraint.text}) limit 1", ())
        if found.as_reader().read_all().num_rows:
            raise CheckViolation(f"table {table} has rows that break CHECK ({constraint.text})")

    def _drop_part(self, table: str, action: Any) -> None:
        if str(action.args.get("kind")).upper() != "CONSTRAINT":
            raise NotSupportedError(f"alter table {table} {action.sql()}")
        for part in action.args["tables"]:
            name = folded(part.this)
            known = any(constraint.name == name for constraint in self.connection.table(table).constraints)
            if known or not action.args.get("exists"):
                self.connection.drop_constraint(table, name)


_ALTERATIONS: dict[type[exp.Expr], Callable[[Definition, str, Any], None]] = {
    exp.ColumnDef: Definition._add_column,
    exp.RenameColumn: Definition._rename_column,
    exp.AlterRename: Definition._rename_table,
    exp.AlterColumn: Definition._alter_column,
    exp.AlterSet: Definition._set,
    exp.AddConstraint: Definition._add_constraint,
    exp.Drop: Definition._drop_part,
}


def _column(table: str, node: exp.ColumnDef) -> tuple[Column, list[Constraint]]:
    """A column, and the constraints that were written with it."""
    name = folded(node.this)
    if node.args.get("kind") is None:
        raise InvalidSyntax(f"column {name} has no type", *place(node))
    type_, _ = type_from(node.args["kind"])
    nullable, default, identity = True, None, None
    constraints: list[Constraint] = []
    for part in node.args.get("constraints") or []:
        kind, named = part.args["kind"], folded(part.this) if part.args.get("this") is not None else ""
        if isinstance(kind, exp.NotNullColumnConstraint):
            nullable = bool(kind.args.get("allow_null"))
        elif isinstance(kind, exp.PrimaryKeyColumnConstraint):
            constraints.append(Constraint(PRIMARY_KEY, (name,), name=named))
            nullable = False
        elif isinstance(kind, exp.UniqueColumnConstraint):
            constraints.append(Constraint(UNIQUE, (name,), name=named))
        elif isinstance(kind, exp.CheckColumnConstraint):
            constraints.append(Constraint(CHECK, text=written(kind.this), name=named))
        elif isinstance(kind, exp.DefaultColumnConstraint):
            compile_assignment(kind.this, Scope(), type_)
            default = written(kind.this)
        elif isinstance(kind, exp.GeneratedAsIdentityColumnConstraint):
            identity, nullable = "always" if kind.this else "by default", False
        else:
            raise _refused(table, kind)
    return Column(name, type_, nullable, default=default, identity=identity), constraints


def _setting(node: Any) -> bool:
    """Whether a table is to have a change feed, which is all that can be set: ``change_feed = true``."""
    name, value = node.this, node.args.get("value") or node.args.get("expression")
    text = str(value.this).lower() if value is not None else ""
    if not isinstance(name, exp.Expr) or name.name.lower() != "change_feed":
        raise NotSupportedError(f"{node.sql(dialect=GmdbSql).lower()}: of a table, only change_feed can be set")
    if text not in ("true", "false", "on", "off"):
        raise InvalidSyntax(f"change_feed is true or false, not {text}", *place(node))
    return text in ("true", "on")


def _require_own_name(name: str) -> None:
    if is_system_name(name):
        raise SchemaError(f"{name}: names that begin with sys_ are those of system tables")


def _renamed(text: str, old: str, new: str) -> str:
    """A check, after a column has got another name."""
    node = parse_expression(text)
    for column in list(node.find_all(exp.Column)):
        if folded(column.this) == old:
            column.set("this", exp.to_identifier(new, quoted=True))
    return written(node)


def _not_null(column: Column) -> Column:
    return Column(column.name, column.type, False, default=column.default, identity=column.identity)


def _table_constraint(node: exp.Expr) -> Constraint:
    name = ""
    if isinstance(node, exp.Identifier):
        raise InvalidSyntax(f"column {node.name} has no type", *place(node))
    if isinstance(node, exp.Constraint):
        name = folded(node.this)
        node = node.expressions[0]
    if isinstance(node, exp.PrimaryKey):
        return Constraint(PRIMARY_KEY, tuple(names_of(node.expressions)), name=name)
    if isinstance(node, exp.UniqueColumnConstraint):
        if node.this is None:
            raise InvalidSyntax("syntax error: UNIQUE needs columns", *place(node))
        return Constraint(UNIQUE, tuple(names_of(node.this.expressions)), name=name)
    if isinstance(node, exp.CheckColumnConstraint):
        return Constraint(CHECK, text=written(node.this), name=name)
    raise _refused("", node)


def _refused(table: str, node: exp.Expr) -> NotSupportedError:
    if isinstance(node, exp.Reference | exp.ForeignKey):
        said = "foreign keys are not enforced by gmdb, and so not accepted; leave REFERENCES out"
    else:
        said = f"gmdb has no constraint {node.sql(dialect=GmdbSql)}"
    return NotSupportedError(f"table {table}: {said}" if table else said)


def _require_check(constraint: Constraint, scope: Scope) -> None:
    compile_condition(parse_expression(constraint.text), scope)
