"""``information_schema`` and ``pg_catalog``: what clients of PostgreSQL ask there, as queries over the system views.

Each is declared once, by its text, and bound as any view is.  There is one schema of tables, ``public``.
"""

from __future__ import annotations

from collections.abc import Iterable

from gmdb.format.columns import Column
from gmdb.sql.syntax import INFORMATION_SCHEMA, PG_CATALOG, PUBLIC
from gmdb.sql.types import CALLED
from gmdb.tables.catalog.schema import FIRST_USER_ID
from gmdb.tables.catalog.view_definitions import ViewDefinition

CATALOG_NAME = "gmdb"
_PUBLIC_OID, _PG_CATALOG_OID, _INFORMATION_SCHEMA_OID = 2200, 11, 13000  # the first two are PostgreSQL's

_TABLES = f"""(select obj_id, name from sys_tables
    where obj_id >= {FIRST_USER_ID} and name not in (select name from sys_sequences))"""  # a sequence is a table inside
_RELATIONS = f"""
    select obj_id, name, 'BASE TABLE' as kind from {_TABLES} as t
    union all select obj_id, name, 'VIEW' from sys_views"""
_COLUMNS = f"""
    select obj_id, position, name, type, length, scale, nullable, default_text, identity, expression
    from sys_columns left join sys_generated_columns using (obj_id, position)
    where obj_id in (select obj_id from {_TABLES} as t)
    union all select obj_id, position, name, type, length, scale, true, null, null, null from sys_view_columns"""


def _case_of_types(names: Iterable[tuple[str, str]]) -> str:
    return f"case type {' '.join(f'when {name!r} then {called!r}' for name, called in names)} else lower(type) end"


_OTHERS = {"BLOB": "bytea", "CLOB": "text"}  # that PostgreSQL does not have
_TYPES = _case_of_types((name, _OTHERS.get(name, called.name)) for name, called in CALLED.items())
_SHORT_TYPES = _case_of_types((name, called.short) for name, called in CALLED.items())
_PLACE = f"'{CATALOG_NAME}' as table_catalog, '{PUBLIC}' as table_schema"
_CONSTRAINT_PLACE = f"'{CATALOG_NAME}' as constraint_catalog, '{PUBLIC}' as constraint_schema"

_TEXTS = {
    (INFORMATION_SCHEMA, "schemata"): f"""
        select '{CATALOG_NAME}' as catalog_name, name as schema_name, null::text as schema_owner
        from (values ('{PUBLIC}'), ('{INFORMATION_SCHEMA}'), ('{PG_CATALOG}')) as s (name)""",
    (INFORMATION_SCHEMA, "tables"): f"""
        select {_PLACE}, name as table_name, kind as table_type from ({_RELATIONS}) as r""",
    (INFORMATION_SCHEMA, "columns"): f"""
        select {_PLACE}, r.name as table_name, c.name as column_name, c.position + 1 as ordinal_position,
            c.default_text as column_default, case when c.nullable then 'YES' else 'NO' end as is_nullable,
            {_TYPES} as data_type,
            case when type in ('CHAR', 'VARCHAR') and length > 0 then length end as character_maximum_length,
            case when type in ('CHAR', 'VARCHAR') and length > 0 then length end as character_octet_length,
            case type when 'INT' then 32 when 'BIGINT' then 64 when 'DOUBLE' then 53 when 'DECIMAL' then length end
                as numeric_precision,
            case when type in ('INT', 'BIGINT', 'DOUBLE') then 2 when type = 'DECIMAL' then 10 end
                as numeric_precision_radix,
            case when type in ('INT', 'BIGINT') then 0 when type = 'DECIMAL' then scale end as numeric_scale,
            case type when 'TIMESTAMP' then 6 when 'DATE' then 0 end as datetime_precision,
            '{PG_CATALOG}' as udt_schema, {_SHORT_TYPES} as udt_name,
            case when c.identity is null then 'NO' else 'YES' end as is_identity,
            upper(c.identity) as identity_generation,
            case when c.expression is null then 'NEVER' else 'ALWAYS' end as is_generated,
            c.expression as generation_expression
        from ({_RELATIONS}) as r join ({_COLUMNS}) as c on c.obj_id = r.obj_id""",
    (INFORMATION_SCHEMA, "views"): f"""
        select {_PLACE}, name as table_name, definition as view_definition,
            coalesce(upper(check_option), 'NONE') as check_option from sys_views""",
    (INFORMATION_SCHEMA, "table_constraints"): f"""
        select {_CONSTRAINT_PLACE}, c.name as constraint_name, {_PLACE}, t.name as table_name,
            upper(c.kind) as constraint_type, 'NO' as is_deferrable, 'NO' as initially_deferred, 'YES' as enforced
        from sys_constraints as c join sys_tables as t on t.obj_id = c.table_id""",
    (INFORMATION_SCHEMA, "key_column_usage"): f"""
        select {_CONSTRAINT_PLACE}, k.name as constraint_name, {_PLACE}, t.name as table_name, k.column_name,
            k.position + 1 as ordinal_position
        from sys_key_columns as k join sys_tables as t on t.obj_id = k.table_id""",
    (INFORMATION_SCHEMA, "constraint_column_usage"): f"""
        select {_PLACE}, t.name as table_name, k.column_name, {_CONSTRAINT_PLACE}, k.name as constraint_name
        from sys_key_columns as k join sys_tables as t on t.obj_id = k.table_id
        where k.kind in ('primary key', 'unique')""",
    (INFORMATION_SCHEMA, "check_constraints"): f"""
        select {_CONSTRAINT_PLACE}, name as constraint_name, text as check_clause
        from sys_constraints where kind = 'check'""",
    (INFORMATION_SCHEMA, "sequences"): f"""
        select '{CATALOG_NAME}' as sequence_catalog, '{PUBLIC}' as sequence_schema, name as sequence_name,
            lower(type) as data_type, start as start_value, minimum as minimum_value, maximum as maximum_value,
            increment, case when cycle then 'YES' else 'NO' end as cycle_option
        from sys_sequences""",
    (PG_CATALOG, "pg_namespace"): f"""
        select * from (values ({_PUBLIC_OID}, '{PUBLIC}'), ({_PG_CATALOG_OID}, '{PG_CATALOG}'),
            ({_INFORMATION_SCHEMA_OID}, '{INFORMATION_SCHEMA}')) as n (oid, nspname)""",
    (PG_CATALOG, "pg_class"): f"""
        select obj_id as oid, name as relname, {_PUBLIC_OID} as relnamespace,
            case kind when 'VIEW' then 'v' else 'r' end as relkind from ({_RELATIONS}) as r
        union all select obj_id, name, {_PUBLIC_OID}, 'i' from sys_indexes
        union all select t.obj_id, t.name, {_PUBLIC_OID}, 'S'
        from sys_tables as t join sys_sequences as s on s.name = t.name""",
    (PG_CATALOG, "pg_attribute"): f"""
        select obj_id as attrelid, name as attname, position + 1 as attnum, not nullable as attnotnull,
            default_text is not null or expression is not null as atthasdef, false as attisdropped,
            case when expression is null then '' else 's' end as attgenerated
        from ({_COLUMNS}) as c""",
    (PG_CATALOG, "pg_tables"): f"""
        select '{PUBLIC}' as schemaname, name as tablename,
            exists (select 1 from sys_indexes as i where i.table_id = t.obj_id) as hasindexes
        from {_TABLES} as t""",
    (PG_CATALOG, "pg_views"): f"""
        select '{PUBLIC}' as schemaname, name as viewname, definition from sys_views""",
    (PG_CATALOG, "pg_indexes"): f"""
        select '{PUBLIC}' as schemaname, t.name as tablename, i.name as indexname
        from sys_indexes as i join sys_tables as t on t.obj_id = i.table_id""",
}


def standard_view(schema: str, name: str) -> ViewDefinition | None:
    """A view of ``information_schema`` or ``pg_catalog``; its columns are those of its query."""
    text = _TEXTS.get((schema, name))
    return None if text is None else ViewDefinition(name, text, tuple[Column, ...]())


def standard_names(schema: str) -> list[str]:
    return [name for one, name in _TEXTS if one == schema]
