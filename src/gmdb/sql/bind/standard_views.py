"""``information_schema`` and ``pg_catalog``: what clients of PostgreSQL ask there, as queries over the system views.

Each is declared once, by its text, and bound as any view is.
"""

from __future__ import annotations

from collections.abc import Iterable

from gmdb.format.arrays import SUFFIX
from gmdb.format.columns import Column
from gmdb.sql.syntax import INFORMATION_SCHEMA, PG_CATALOG
from gmdb.sql.types import CALLED
from gmdb.tables.catalog.names import PUBLIC
from gmdb.tables.catalog.view_definitions import ViewDefinition

CATALOG_NAME = "gmdb"
_PUBLIC_OID, _PG_CATALOG_OID, _INFORMATION_SCHEMA_OID = 2200, 11, 13000  # the first two are PostgreSQL's

_TABLES = "(select obj_id, schema, name from sys_relations where kind = 'table')"
_RELATIONS = "select obj_id, schema, name, kind from sys_relations where kind in ('table', 'view')"
_COLUMNS = f"""
    select obj_id, position, name, type, length, scale, nullable, default_text, identity, expression
    from sys_columns left join sys_generated_columns using (obj_id, position)
    where obj_id in (select obj_id from {_TABLES} as t)
    union all select obj_id, position, name, type, length, scale, true, null, null, null from sys_view_columns"""


def _case_of_types(names: Iterable[tuple[str, str]]) -> str:
    return f"case type {' '.join(f'when {name!r} then {called!r}' for name, called in names)} else lower(type) end"


_OTHERS = {"BLOB": "bytea", "CLOB": "text"}  # that PostgreSQL does not have
_TYPES = (
    _case_of_types((name, _OTHERS.get(name, called.name)) for name, called in CALLED.items()).replace(
        "case type", f"case when type like '%{SUFFIX}' then 'ARRAY' else case type"
    )
    + " end"
)
_SHORT_TYPES = _case_of_types(
    pair for name, called in CALLED.items() for pair in ((name, called.short), (name + SUFFIX, f"_{called.short}"))
)
_SCHEMAS = f"""(select obj_id as oid, name from sys_schemas
    union all select * from (values ({_PUBLIC_OID}, '{PUBLIC}'), ({_PG_CATALOG_OID}, '{PG_CATALOG}'),
        ({_INFORMATION_SCHEMA_OID}, '{INFORMATION_SCHEMA}')) as n (oid, name))"""
_PLACE = f"'{CATALOG_NAME}' as table_catalog, r.schema as table_schema, r.name as table_name"
_CONSTRAINT_PLACE = f"'{CATALOG_NAME}' as constraint_catalog, r.schema as constraint_schema"

_TEXTS = {
    (INFORMATION_SCHEMA, "schemata"): f"""
        select '{CATALOG_NAME}' as catalog_name, name as schema_name, null::text as schema_owner
        from {_SCHEMAS} as s""",
    (INFORMATION_SCHEMA, "tables"): f"""
        select {_PLACE}, case when kind = 'view' then 'VIEW' when r.schema like 'pg\\_temp\\_%' then 'LOCAL TEMPORARY'
            else 'BASE TABLE' end as table_type from ({_RELATIONS}) as r""",
    (INFORMATION_SCHEMA, "columns"): f"""
        select {_PLACE}, c.name as column_name, c.position + 1 as ordinal_position,
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
        select {_PLACE}, definition as view_definition, coalesce(upper(check_option), 'NONE') as check_option
        from sys_views as v join sys_relations as r on r.obj_id = v.obj_id""",
    (INFORMATION_SCHEMA, "table_constraints"): f"""
        select {_CONSTRAINT_PLACE}, c.name as constraint_name, {_PLACE},
            upper(c.kind) as constraint_type, 'NO' as is_deferrable, 'NO' as initially_deferred, 'YES' as enforced
        from sys_constraints as c join sys_relations as r on r.obj_id = c.table_id""",
    (INFORMATION_SCHEMA, "key_column_usage"): f"""
        select {_CONSTRAINT_PLACE}, k.name as constraint_name, {_PLACE}, k.column_name,
            k.position + 1 as ordinal_position
        from sys_key_columns as k join sys_relations as r on r.obj_id = k.table_id""",
    (INFORMATION_SCHEMA, "constraint_column_usage"): f"""
        select {_PLACE}, k.column_name, {_CONSTRAINT_PLACE}, k.name as constraint_name
        from sys_key_columns as k join sys_relations as r on r.obj_id = k.table_id
        where k.kind in ('primary key', 'unique')""",
    (INFORMATION_SCHEMA, "check_constraints"): f"""
        select {_CONSTRAINT_PLACE}, c.name as constraint_name, c.text as check_clause
        from sys_constraints as c join sys_relations as r on r.obj_id = c.table_id where c.kind = 'check'""",
    (INFORMATION_SCHEMA, "sequences"): f"""
        select '{CATALOG_NAME}' as sequence_catalog, r.schema as sequence_schema, r.name as sequence_name,
            lower(type) as data_type, start as start_value, minimum as minimum_value, maximum as maximum_value,
            increment, case when cycle then 'YES' else 'NO' end as cycle_option
        from sys_sequences as s join sys_relations as r on r.full_name = s.name""",
    (PG_CATALOG, "pg_namespace"): f"""
        select oid, name as nspname from {_SCHEMAS} as s""",
    (PG_CATALOG, "pg_class"): f"""
        select r.obj_id as oid, r.name as relname, s.oid as relnamespace,
            case kind when 'view' then 'v' when 'sequence' then 'S' else 'r' end as relkind
        from sys_relations as r join {_SCHEMAS} as s on s.name = r.schema
        union all select i.obj_id, i.name, s.oid, 'i'
        from sys_indexes as i join sys_relations as r on r.obj_id = i.table_id
            join {_SCHEMAS} as s on s.name = r.schema""",
    (PG_CATALOG, "pg_attribute"): f"""
        select obj_id as attrelid, name as attname, position + 1 as attnum, not nullable as attnotnull,
            default_text is not null or expression is not null as atthasdef, false as attisdropped,
            case when expression is null then '' else 's' end as attgenerated
        from ({_COLUMNS}) as c""",
    (PG_CATALOG, "pg_tables"): f"""
        select schema as schemaname, name as tablename,
            exists (select 1 from sys_indexes as i where i.table_id = t.obj_id) as hasindexes
        from {_TABLES} as t""",
    (PG_CATALOG, "pg_views"): """
        select r.schema as schemaname, r.name as viewname, v.definition
        from sys_views as v join sys_relations as r on r.obj_id = v.obj_id""",
    (PG_CATALOG, "pg_indexes"): """
        select r.schema as schemaname, r.name as tablename, i.name as indexname
        from sys_indexes as i join sys_relations as r on r.obj_id = i.table_id""",
}


def standard_view(schema: str, name: str) -> ViewDefinition | None:
    """A view of ``information_schema`` or ``pg_catalog``; its columns are those of its query."""
    text = _TEXTS.get((schema, name))
    return None if text is None else ViewDefinition(name, text, tuple[Column, ...](), schema=schema)


def standard_names(schema: str) -> list[str]:
    return [name for one, name in _TEXTS if one == schema]
