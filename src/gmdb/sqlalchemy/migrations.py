"""Alembic: how migrations change tables, and whether what a program declares is what a database has.

Types, defaults and conditions are compared as gmdb reads them: two texts are the same if they mean the same.  Alembic
finds the implementation when this module is imported, which the package does where Alembic is installed.
Not here: how statements are written (dialect.py), what the database has (reflection.py).
"""

from __future__ import annotations

import re
from typing import Any

from alembic import util
from alembic.ddl.base import (
    ColumnComment,
    ColumnType,
    RenameTable,
    alter_column,
    alter_table,
    format_column_name,
    format_table_name,
    format_type,
)
from alembic.ddl.impl import ComparisonResult, DefaultImpl
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import coercions, roles

from gmdb.errors import Error
from gmdb.format.columns import Column
from gmdb.format.columns import ColumnType as StoredType
from gmdb.sql.bind.expressions import named_type
from gmdb.sql.dialect import parse_expression
from gmdb.sql.statements.assignment import bind_default
from gmdb.sql.statements.stored_texts import written
from gmdb.sql.tree import Constant
from gmdb.tables.catalog.counters import counting_of
from gmdb.tables.catalog.names import PUBLIC, full_name
from sqlalchemy import column as sa_column
from sqlalchemy import func, select, types
from sqlalchemy import table as sa_table

_COPY = "_alembic_tmp_"  # with which the name of a table begins that takes the place of another one
_NUMBERS_A_TIME = 100_000


class UsingType(ColumnType):
    """ALTER COLUMN … TYPE … USING."""

    def __init__(self, *arguments: Any, using: str, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.using = using


class GmdbImpl(DefaultImpl):
    __dialect__ = "gmdb"
    transactional_ddl = True

    def prep_table_for_batch(self, batch_impl: Any, table: Any) -> None:
        """Names of constraints and indexes are the database's: the copy gets them when the original gives them up."""
        for constraint in table.constraints:
            if constraint.name is not None and constraint.name in batch_impl.named_constraints:
                self.drop_constraint(constraint)

    def alter_column(self, table_name: str, column_name: str, **changes: Any) -> None:
        using = changes.pop("gmdb_using", None)
        type_ = changes.get("type_")
        if using is not None and type_ is None:
            raise util.CommandError("gmdb_using says what becomes of the values of a column whose type_ changes")
        if using is not None:
            del changes["type_"]
            self._exec(UsingType(table_name, column_name, type_, schema=changes.get("schema"), using=using))
        super().alter_column(table_name, column_name, **changes)

    def rename_table(self, old_table_name: str, new_table_name: Any, schema: Any = None) -> None:
        super().rename_table(old_table_name, new_table_name, schema)
        if old_table_name.startswith(_COPY) and not self.as_sql:
            self._go_on_counting(str(new_table_name), schema)

    def _go_on_counting(self, name: str, schema: str | None) -> None:
        """A copy's identities were given the original's numbers: they go on behind those."""
        dialect: Any = self.dialect
        assert self.connection is not None
        table = full_name(schema or dialect.default_schema_name or PUBLIC, name)
        database = dialect._database(self.connection)
        for column in database.table(table).columns:
            if column.identity is None:
                continue
            counting = counting_of(column)
            numbers: Any = sa_column(column.name)
            last = func.max(numbers) if counting.increment > 0 else func.min(numbers)
            reached = self.connection.scalar(select(last).select_from(sa_table(name, schema=schema)))
            left = 0 if reached is None else (reached - counting.start) // counting.increment + 1
            while left > 0:
                count = min(left, _NUMBERS_A_TIME)
                database.next_identity(table, column.name, count)
                left -= count

    # ---- comparing

    def compare_type(self, inspector_column: Any, metadata_column: Any) -> bool:
        return self._stored_type(inspector_column) != self._stored_type(metadata_column)

    def _stored_type(self, column: Any) -> StoredType:
        text = self.dialect.type_compiler_instance.process(column.type, type_expression=column)
        return named_type(parse_expression(f"NULL::{text}").args["to"])[0]

    def compare_server_default(
        self,
        inspector_column: Any,
        metadata_column: Any,
        rendered_metadata_default: str | None,
        rendered_inspector_default: str | None,
    ) -> bool:
        if rendered_metadata_default is None or rendered_inspector_default is None:
            return rendered_metadata_default != rendered_inspector_default
        default = metadata_column.server_default
        if default is not None and isinstance(default.arg, str):
            rendered_metadata_default = _literal(default.arg)
        column = Column(inspector_column.name, self._stored_type(inspector_column))
        return _default(rendered_metadata_default, column) != _default(rendered_inspector_default, column)

    def _compare_identity_default(self, metadata_identity: Any, inspector_identity: Any) -> Any:
        """An integer primary key is numbered without saying so."""
        compare: Any = super()._compare_identity_default
        diff, ignored, is_alter = compare(metadata_identity, inspector_identity)
        column = None if inspector_identity is None else inspector_identity.column
        if metadata_identity is None and not diff and column is not None and column.primary_key:
            is_alter = False
        return diff, ignored, is_alter

    def correct_for_autogen_constraints(
        self, conn_uniques: Any, conn_indexes: Any, metadata_unique_constraints: Any, metadata_indexes: Any
    ) -> None:
        """The index that keeps a unique constraint is no index of its own."""
        del conn_uniques, metadata_unique_constraints, metadata_indexes
        for index in [one for one in conn_indexes if one.info.get("duplicates_constraint")]:
            conn_indexes.remove(index)

    def compare_indexes(self, metadata_index: Any, reflected_index: Any) -> ComparisonResult:
        wanted, present = self._parts(metadata_index), self._parts(reflected_index)
        changes = [f"{name} {present[name]} to {wanted[name]}" for name in wanted if wanted[name] != present[name]]
        return ComparisonResult.Different(changes) if changes else ComparisonResult.Equal()

    def _parts(self, index: Any) -> dict[str, Any]:
        """What an index is, by the names of its parts."""
        options = index.dialect_options["gmdb"]
        included = [getattr(one, "name", one) for one in options["include"] or ()]
        where = options["where"]
        if where is not None:
            where = _condition(self.render_ddl_sql_expr(coercions.expect(roles.DDLExpressionRole, where)))
        return {
            "unique": bool(index.unique),
            "columns": [_key(self.render_ddl_sql_expr(one)) for one in index.expressions],
            "include": included,
            "where": where,
            "using": (options["using"] or "btree").lower(),
        }

    def compare_check_constraint(self, metadata_constraint: Any, reflected_constraint: Any) -> ComparisonResult:
        wanted, present = (
            _condition(self.render_ddl_sql_expr(one.sqltext)) for one in (metadata_constraint, reflected_constraint)
        )
        return ComparisonResult.Equal() if wanted == present else ComparisonResult.Different(f"{present} to {wanted}")


def _literal(text: str) -> str:
    """A default that was given as a str, as SQLAlchemy writes it in a definition."""
    return "'{}'".format(text.replace("'", "''"))


def _default(text: str, column: Column) -> Any:
    """What a default is: the value, if it is always the same, or how gmdb writes it."""
    try:
        node = parse_expression(text)
        bound = bind_default(node, column)
        return (bound.value,) if isinstance(bound, Constant) else written(node)
    except Error:  # such as the name of another product's function: it is what it is
        return text


def _condition(text: str) -> str:
    try:
        return written(parse_expression(text).unnest())
    except Error:
        return text


_USUAL = re.compile(r"(?i)(?: asc)?(?: nulls last)?$|(?<= desc) nulls first$")


def _key(text: str) -> str:
    """A column of an index's key without what goes without saying."""
    if re.search(r"(?i) desc( nulls last)?$", text):
        return text
    return _USUAL.sub("", text)


# ---- statements


@compiles(UsingType, "gmdb")
def _visit_using_type(element: UsingType, compiler: Any, **_given: Any) -> str:
    table = alter_table(compiler, element.table_name, element.schema)
    type_ = format_type(compiler, element.type_)
    return f"{table} {alter_column(compiler, element.column_name)} TYPE {type_} USING {element.using}"


@compiles(RenameTable, "gmdb")
def _visit_rename_table(element: RenameTable, compiler: Any, **_given: Any) -> str:
    """A table stays in its schema."""
    name = format_table_name(compiler, element.new_table_name, None)
    return f"{alter_table(compiler, element.table_name, element.schema)} RENAME TO {name}"


@compiles(ColumnComment, "gmdb")
def _visit_column_comment(element: ColumnComment, compiler: Any, **_given: Any) -> str:
    comment = "NULL"
    if element.comment is not None:
        comment = compiler.sql_compiler.render_literal_value(element.comment, types.String())
    table = format_table_name(compiler, element.table_name, element.schema)
    return f"COMMENT ON COLUMN {table}.{format_column_name(compiler, element.column_name)} IS {comment}"
