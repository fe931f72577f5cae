"""Definitions: CREATE, DROP, ALTER and TRUNCATE, as methods of the connection."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from gmdb.database.dbapi import Result
from gmdb.errors import (
    InvalidSyntax,
    NoSuchIndex,
    NoSuchTable,
    ProgrammingError,
    SchemaError,
    UnsupportedExpression,
)
from gmdb.format.address import MAIN_SPACE
from gmdb.format.columns import Column
from gmdb.format.segment import DEFAULT_PCT_FREE
from gmdb.process.late_dataclasses import replace
from gmdb.sql.bind.names import Names
from gmdb.sql.dialect import AlterExpression, GmdbSql, place
from gmdb.sql.parser import Parsed
from gmdb.sql.prepared import ParameterTypes, Statement
from gmdb.sql.queries import Query
from gmdb.sql.run import Parameters
from gmdb.sql.statements import views
from gmdb.sql.statements.indexes import read_index
from gmdb.sql.statements.rewriting import NewForm, column_position, require_rows
from gmdb.sql.statements.stored_texts import renamed
from gmdb.sql.statements.table_parts import (
    Owner,
    as_kept,
    default_changes,
    read_column,
    read_columns,
    read_constraint,
    unqualified,
    whole_type,
    with_sequence,
)
from gmdb.sql.syntax import Syntax, Written, column_name, folded, name_alone, reading, table_name_alone
from gmdb.tables.catalog.names import full_name, is_temporary
from gmdb.tables.catalog.schema import CHECK, FOREIGN_KEY, Constraint, TableDefinition

if TYPE_CHECKING:
    from gmdb.database.connection import Connection


def existing(connection: Connection, node: exp.Expr) -> TableDefinition:
    """The table of a name that stands alone."""
    return Names(connection).table(table_name_alone(node), node)


def validate(connection: Connection, table: str, name: str) -> None:
    """VALIDATE CONSTRAINT: look whether rows from before a constraint fulfil it, too."""
    with connection.all_or_nothing():
        connection.validate_constraint(table, name)  # from here on nobody changes rows
        constraint = connection.table(table).constraint(name)
        if constraint.kind == CHECK:
            require_rows(connection, table, constraint)


def move(connection: Connection, kind: str, written: Written, schema: str) -> None:
    """SET SCHEMA of a table, a view or a sequence."""
    names, nowhere = Names(connection), exp.Identifier()
    if kind == "sequence":
        name = names.sequence(written)
        sequence = connection._relation(name)
        owner = sequence.counts.owner if isinstance(sequence, TableDefinition) else ""
        if owner:
            raise SchemaError(f"sequence {name} goes with table {owner}: move that")
    else:
        view = names.view(written)
        name = names.table(written, nowhere).name if view is None else view.name
    new = names.for_new(Written(connection._parts_of(name)[1], schema), nowhere)
    if new == name:
        return
    if kind == "sequence":
        connection.rename_sequence(name, new)
    elif isinstance(connection._relation(name), TableDefinition):
        connection.rename_table(name, new)
    else:
        connection.rename_view(name, new)


# ---- Definitions.


class Definition(Statement):
    """A change of a definition; nothing of it is cached, for it changes what it depends on."""

    def __init__(self, connection: Connection, parsed: Parsed, types: ParameterTypes) -> None:
        super().__init__(connection, parsed, types)
        node: Any = parsed.statement
        self._node = node
        self._names = Names(connection)
        self.typed_parameters = frozenset(types)  # which the query of CREATE TABLE AS may depend on
        is_view = str(node.args.get("kind")).upper() == "VIEW"
        if (parsed.names or parsed.count) and (is_view or node.args.get("expression") is None):
            raise InvalidSyntax("a definition takes no parameters: write the values out")

    def run(self, parameters: Parameters) -> Result:
        if isinstance(self._node, exp.Create):
            return self._create(parameters)
        with self.connection.defining(), reading(self._node) as syntax:
            if isinstance(self._node, exp.Drop):
                self._drop(syntax)
            elif isinstance(self._node, exp.Alter):
                self._alter(syntax)
            else:
                self._truncate(syntax)
        return Result()

    def explain(self) -> list[str]:
        return [self._node.sql(dialect=GmdbSql)]

    def _existing(self, node: exp.Expr) -> str:
        """The name of a table that there is."""
        return existing(self.connection, node).name

    def _is_view(self, node: exp.Expr) -> bool:
        return self._names.view(table_name_alone(node)) is not None

    # ---- create

    def _create(self, parameters: Parameters) -> Result:
        with reading(self._node) as syntax:
            kind = syntax.word("kind", "TABLE", "INDEX", "VIEW")
            if kind == "INDEX":
                create = self._index(syntax)
            elif kind == "VIEW":
                create = self._view(syntax)
            else:
                create = self._table(syntax, parameters)
        return create()

    def _table(self, syntax: Syntax, parameters: Parameters) -> Callable[[], Result]:
        query, target, exists = syntax.take("expression"), syntax.need("this", "a table"), syntax.flag("exists")
        options = self._options(syntax.take("properties"))
        parts: list[exp.Expr] = []
        if query is None and not isinstance(target, exp.Schema):
            raise InvalidSyntax("syntax error: CREATE TABLE needs columns", *place(self._node))
        if isinstance(target, exp.Schema):
            with reading(target) as schema:
                parts, target = schema.list("expressions"), schema.need("this", "a table")
        written = table_name_alone(target)

        def create() -> Result:
            name = self._names.for_new(written, target, "temporary" in self.parsed.options)
            if "on_commit" in self.parsed.options and not is_temporary(self.connection._parts_of(name)[0]):
                raise SchemaError(f"table {name} is not temporary: ON COMMIT is for temporary tables only")
            if exists and name in self.connection.tables():
                return Result()
            with self.connection.all_or_nothing():
                if query is not None:
                    result = self._create_as(name, [column_name(part) for part in parts], query, parameters, options)
                else:
                    result = Result()
                    self._create_columns(name, *read_columns(Owner(self.connection, name), parts), options)
                for on in options["change_feed"]:
                    self.connection.set_change_feed(name, on)
            return result

        return create

    def _options(self, properties: exp.Expr | None) -> dict[str, Any]:
        """What stands behind a table's columns."""
        written_options = self.parsed.options
        options: dict[str, Any] = {
            "tablespace": written_options.get("tablespace", MAIN_SPACE),
            "pctfree": int(written_options.get("pctfree", DEFAULT_PCT_FREE)),
            "change_feed": [],
            "data": True,
        }
        if properties is None:
            return options
        with reading(properties) as syntax:
            for node in syntax.list("expressions"):
                if isinstance(node, exp.WithDataProperty):
                    with reading(node) as data:
                        options["data"] = not data.flag("no")
                elif isinstance(node, exp.TableSpaceProperty):
                    with reading(node) as space:
                        options["tablespace"] = folded(space.need("this", "a tablespace"))
                else:
                    options["change_feed"].append(_setting(node))
        return options

    def _create_as(
        self, name: str, column_list: list[str], query: exp.Expr, parameters: Parameters, options: dict[str, Any]
    ) -> Result:
        """A table of the rows of a query, with its types, and its names unless the statement lists others."""
        result = Query(self.connection, replace(self.parsed, statement=query), self.types).run(parameters)
        if len(column_list) > len(result.names):
            raise SchemaError(
                f"table {name}: {len(column_list)} columns were named, but the query has {len(result.names)}"
            )
        names = [*column_list, *result.names[len(column_list) :]]
        columns = [Column(n, type_) for n, type_ in zip(names, result.types, strict=True) if type_ is not None]
        data = result.as_reader().read_all()
        self._create_columns(name, columns, (), (), options)
        is_wanted = bool(data.num_rows) and options["data"]
        return Result(rowcount=self.connection.append(name, data.rename_columns(names)) if is_wanted else 0)

    def _create_columns(
        self,
        name: str,
        columns: Sequence[Column],
        constraints: Sequence[Constraint],
        brought: Container[str],
        options: dict[str, Any],
    ) -> None:
        """``brought``: sequences that came with columns, and go with them."""
        self.connection.create_table(
            name,
            list(columns),
            constraints=constraints,
            tablespace=options["tablespace"],
            pct_free=options["pctfree"],
            on_commit=self.parsed.options.get("on_commit", ""),
        )
        for column in columns:
            if column.sequence in brought:
                self.connection.alter_sequence(column.sequence, owner=(name, column.name))

    def _view(self, syntax: Syntax) -> Callable[[], Result]:
        syntax.ignore("expression")  # which is read from its text, as it will be
        target, replaces = syntax.need("this", "a view"), syntax.flag("replace")
        names: list[str] = []
        if isinstance(target, exp.Schema):
            with reading(target) as schema:
                names = [column_name(part) for part in schema.list("expressions")]
                target = schema.need("this", "a view")
        written = table_name_alone(target)

        def create() -> Result:
            is_own = "temporary" in self.parsed.options or views.is_of_session(self)
            view = views.made(self, self._names.for_new(written, target, is_own), names)
            with self.connection.all_or_nothing():
                self.connection._create_view(view, replaces)
            return Result()

        return create

    def _index(self, syntax: Syntax) -> Callable[[], Result]:
        request = read_index(syntax)
        table = self._existing(request.table)
        new, missing = request.of(self.connection.table(table))
        if missing and request.concurrently:
            message = "the rows are made anew for an index on a new expression, and nobody changes them meanwhile"
            raise UnsupportedExpression(message, *place(self._node), "Leave CONCURRENTLY out")

        def create() -> Result:
            schema = self.connection._parts_of(table)[0]
            if request.if_not_exists and self.connection._has_index(full_name(schema, new.name)):
                return Result()
            if missing:
                with self.connection.defining():
                    self.connection._hold_table(table)
                    newest, expressions = request.of(self.connection.table(table))
                    if expressions:
                        NewForm(self.connection, table).add_expressions(expressions)
                    self.connection._create_index(table, newest)
                return Result()
            with self._while_others_go_on() if request.concurrently else nullcontext():
                self.connection._create_index(table, new)
            return Result()

        return create

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

    # ---- drop and truncate

    def _drop(self, syntax: Syntax) -> None:
        kind, exists = syntax.word("kind", "TABLE", "INDEX", "VIEW"), syntax.flag("exists")
        cascade = _cascades(syntax)
        if kind == "VIEW":
            views.drop(self.connection, syntax.list("tables"), exists, cascade)
            return
        tables = []
        for node in syntax.list("tables"):
            try:
                if kind == "TABLE":
                    tables.append(self._existing(node))
                else:
                    self.connection.drop_index(self._names.index(table_name_alone(node)))
            except (NoSuchTable, NoSuchIndex):
                if not exists or (kind == "TABLE" and self._is_view(node)):
                    raise
        if tables:
            self.connection.drop_table(*tables, cascade=cascade)

    def _truncate(self, syntax: Syntax) -> None:
        restart = syntax.word("identity", "RESTART", "CONTINUE") == "RESTART"
        cascade = syntax.word("option", "CASCADE", "RESTRICT") == "CASCADE"
        names = [self._existing(node) for node in syntax.list("expressions")]
        self.connection.truncate_table(*names, restart_identity=restart, cascade=cascade)

    # ---- alter

    def _alter(self, syntax: Syntax) -> None:
        kind = syntax.word("kind", "TABLE", "INDEX", "VIEW")
        if kind == "VIEW":
            views.alter(self.connection, syntax)
            return
        syntax.ignore("only")  # no table inherits from another
        actions, target = syntax.list("actions"), syntax.need("this", "a table")
        self._not_valid = syntax.flag("not_valid")
        if self._not_valid and not (len(actions) == 1 and isinstance(actions[0], exp.AddConstraint)):
            raise UnsupportedExpression("NOT VALID belongs to one ADD CONSTRAINT alone", *place(self._node))
        if kind == "INDEX":
            self._alter_index(table_name_alone(target), actions, syntax)
            return
        try:
            table = self._existing(target)
        except NoSuchTable:
            if not syntax.flag("exists") or self._is_view(target):
                raise
            syntax.ignore("options")
            return
        syntax.ignore("exists")
        if _is_rename_of_column(actions):
            self._rename(table, name_alone(_inner(actions[0])), _new_name(syntax.list("options")))
            return
        unknown = [action for action in actions if type(action) not in _ALTERATIONS]
        if unknown:
            raise UnsupportedExpression(f"alter table {table} {unknown[0].sql()}", *place(unknown[0]))
        renaming = [action for action in actions if isinstance(action, exp.AlterRename | exp.RenameColumn)]
        if renaming and len(actions) > 1:
            raise UnsupportedExpression("RENAME stands alone in its ALTER TABLE", *place(renaming[0]))
        self._act(table, actions)

    def _alter_index(self, name: Written, actions: Sequence[exp.Expr], syntax: Syntax) -> None:
        if len(actions) != 1 or not isinstance(actions[0], exp.AlterRename):
            raise UnsupportedExpression(f"alter index {name} {actions[-1].sql()}", *place(actions[-1]))
        with suppress(NoSuchIndex) if syntax.flag("exists") else nullcontext():
            self.connection.rename_index(self._names.index(name), name_alone(_inner(actions[0])))

    def _act(self, table: str, actions: Sequence[exp.Expr]) -> None:
        """Do all that an ALTER TABLE asks for, in PostgreSQL's order: what goes, other types, what is new."""
        self.connection._hold_table(table)
        self._form = NewForm(self.connection, table)
        ordered = sorted(actions, key=_turn)
        rest = [action for action in ordered if _turn(action) > _COLUMNS]
        self._of_new_columns: list[Constraint] = []
        self._serials: list[Column] = []
        for action in ordered:
            if rest and action is rest[0]:
                self._apply(table)
            with reading(action) as part:
                _ALTERATIONS[type(action)](self, table, part)
        if not rest:
            self._apply(table)

    def _apply(self, table: str) -> None:
        """Change the table's columns as was asked for."""
        self._form.apply()
        for column in self._serials:
            self.connection.alter_sequence(column.sequence, owner=(table, column.name))
        for constraint in self._of_new_columns:
            self._add(table, constraint)

    def _add_column(self, table: str, syntax: Syntax) -> None:
        owner = Owner(self.connection, table)
        parts, exists = read_column(owner, syntax), syntax.flag("exists")
        column = parts.column
        if exists and self._form.has(column.name):
            return
        column = with_sequence(owner, parts, set())
        default = None if column.sequence else parts.default
        self._form.add(column, default, parts.generated)
        self._of_new_columns += parts.constraints
        if parts.serial:
            self._serials.append(column)

    def _rename_column(self, table: str, syntax: Syntax) -> None:
        old, new = column_name(syntax.need("this", "a column")), column_name(syntax.need("to", "a name"))
        self._rename(table, old, new)

    def _rename(self, table: str, old: str, new: str) -> None:
        column_position(self.connection.table(table), old)
        checks = {
            constraint.name: renamed(constraint.text, {old: new})
            for constraint in self.connection.table(table).constraints
            if constraint.kind == CHECK
        }
        conditions = {
            index.name: renamed(index.condition, {old: new})
            for index in self.connection.table(table).indexes
            if index.condition is not None
        }
        generated = {
            column.name: renamed(column.generated, {old: new})
            for column in self.connection.table(table).columns
            if column.generated is not None
        }
        expressions = [
            renamed(text, {old: new}) if text else "" for text, *_ in self.connection.table(table).expressions
        ]
        texts = {"checks": checks, "conditions": conditions, "generated": generated}
        self.connection.rename_column(table, old, new, **texts, expressions=expressions)

    def _rename_table(self, table: str, syntax: Syntax) -> None:
        name = name_alone(syntax.need("this", "a name"))
        schema = self.connection._parts_of(table)[0]
        self.connection.rename_table(table, self._names.for_new(Written(name, schema), syntax.node))

    def _set(self, table: str, syntax: Syntax) -> None:
        for one in syntax.list("expressions"):
            self.connection.set_change_feed(table, _setting(one))

    def _alter_column(self, table: str, syntax: Syntax) -> None:
        name = column_name(syntax.need("this", "a column"))
        column_position(self.connection.table(table), name)
        type_, using = syntax.take("dtype"), syntax.take("using")
        if type_ is not None:
            self._form.set_type(name, whole_type(name, type_), using, syntax.node)
            return
        default, drop = syntax.take("default"), syntax.flag("drop")
        if default is not None or (drop and not syntax.node.args.get("allow_null")):
            self._require_not_generated(table, name)
        syntax.take("allow_null")
        nullable = syntax.node.args.get("allow_null")  # SET NOT NULL: False
        if default is not None:
            changes = default_changes(default, self.connection.table(table).column(name), self._names)
            self.connection.alter_column(table, name, **changes)
        elif nullable is not None:
            self.connection.alter_column(table, name, nullable=bool(nullable))
        elif drop:
            self.connection.alter_column(table, name, default=None)
        else:
            message = "of a column, only its type, DEFAULT and NOT NULL can be changed"
            raise UnsupportedExpression(f"{syntax.node.sql(dialect=GmdbSql).lower()}: {message}", *place(syntax.node))

    def _require_not_generated(self, table: str, name: str) -> None:
        if self.connection.table(table).column(name).generated is not None:
            what = f"table {table}: column {name} is generated, and has no default"
            raise SchemaError(f"{what}; change its expression by SET EXPRESSION")

    def _alter_expression(self, table: str, syntax: Syntax) -> None:
        name = column_name(syntax.need("this", "a column"))
        expression, exists = syntax.take("expression"), syntax.flag("exists")
        if self._form.definition.columns[column_position(self._form.definition, name)].generated is None:
            if not exists:
                raise UnsupportedExpression(f"column {name} is not generated", *place(syntax.node))
        elif expression is None:
            self._form.drop_expression(name)
        else:
            self._form.set_expression(name, unqualified(table, expression, "a generated column"))

    def _add_constraints(self, table: str, syntax: Syntax) -> None:
        for part in syntax.list("expressions"):
            constraint = read_constraint(Owner(self.connection, table), part)
            if self._not_valid and constraint.kind not in (CHECK, FOREIGN_KEY):
                raise UnsupportedExpression("only a check or a foreign key can be NOT VALID", *place(part))
            self._add(table, replace(constraint, valid=not self._not_valid))

    def _add(self, table: str, constraint: Constraint) -> None:
        if constraint.kind == CHECK:
            constraint = as_kept(constraint, table, self.connection.table(table).columns)
            if constraint.valid:
                require_rows(self.connection, table, constraint)
        self.connection.add_constraint(table, constraint)

    def _drop_part(self, table: str, syntax: Syntax) -> None:
        kind, exists = syntax.word("kind", "CONSTRAINT", "COLUMN"), syntax.flag("exists")
        cascade = _cascades(syntax)
        if kind == "COLUMN":
            for part in syntax.list("tables"):
                column = column_name(part)
                if not exists or self._form.has(column):
                    self._form.drop(column, cascade)
            return
        for part in syntax.list("tables"):
            name = name_alone(part)
            known = any(constraint.name == name for constraint in self.connection.table(table).constraints)
            if known or not exists:
                self.connection.drop_constraint(table, name, cascade=cascade)


_ALTERATIONS: dict[type[exp.Expr], Callable[[Definition, str, Syntax], None]] = {
    exp.ColumnDef: Definition._add_column,
    exp.RenameColumn: Definition._rename_column,
    exp.AlterRename: Definition._rename_table,
    exp.AlterColumn: Definition._alter_column,
    AlterExpression: Definition._alter_expression,
    exp.AlterSet: Definition._set,
    exp.AddConstraint: Definition._add_constraints,
    exp.Drop: Definition._drop_part,
}


_DROPS, _TYPES, _COLUMNS, _OTHERS, _CONSTRAINTS = range(5)


def _turn(action: exp.Expr) -> int:
    """When it is the action's turn among those of an ALTER TABLE."""
    if isinstance(action, exp.AlterColumn):
        if action.args.get("dtype") is not None:
            return _TYPES
        return _DROPS if action.args.get("drop") else _OTHERS
    if isinstance(action, AlterExpression):
        return _DROPS if action.args.get("expression") is None else _TYPES
    turns: dict[Any, int] = {exp.Drop: _DROPS, exp.ColumnDef: _COLUMNS, exp.AddConstraint: _CONSTRAINTS}
    return turns.get(type(action), _OTHERS)


def _cascades(syntax: Syntax) -> bool:
    """Whether what depends on something goes with it."""
    cascade, restrict = syntax.flag("cascade"), syntax.flag("restrict")
    if cascade and restrict:
        raise InvalidSyntax("syntax error: either CASCADE or RESTRICT", *place(syntax.node))
    return cascade


def _setting(node: exp.Expr) -> bool:
    """Whether a table is to have a change feed, which is all that can be set: ``change_feed = true``."""
    if type(node) not in (exp.Property, exp.EQ):
        raise UnsupportedExpression(f"{node.sql(dialect=GmdbSql)} is not supported for tables", *place(node))
    with reading(node) as syntax:
        name = syntax.need("this", "a name")
        value = syntax.take("value" if isinstance(node, exp.Property) else "expression")
    if not isinstance(name, exp.Expr) or name.name.lower() != "change_feed":
        message = f"{node.sql(dialect=GmdbSql).lower()}: of a table, only change_feed can be set"
        raise UnsupportedExpression(message, *place(node))
    text = value.name.lower() if isinstance(value, exp.Column) else str(value.this).lower() if value else ""
    if text not in ("true", "false", "on", "off"):
        raise InvalidSyntax(f"change_feed is true or false, not {text}", *place(node))
    return text in ("true", "on")


def _is_rename_of_column(actions: Sequence[exp.Expr]) -> bool:
    """Whether it is ``rename a to b``, whose second name sqlglot takes for an option."""
    parent = actions[0].parent if len(actions) == 1 else None
    return isinstance(actions[0], exp.AlterRename) and parent is not None and bool(parent.args.get("options"))


def _inner(node: exp.Expr) -> exp.Expr:
    with reading(node) as syntax:
        name: exp.Expr = syntax.need("this", "a name")
    return name


def _new_name(options: Sequence[exp.Expr]) -> str:
    if len(options) != 1 or not isinstance(options[0], exp.ToTableProperty):
        raise UnsupportedExpression(f"{options[-1].sql()} behind RENAME", *place(options[-1]))
    return name_alone(_inner(options[0]))
