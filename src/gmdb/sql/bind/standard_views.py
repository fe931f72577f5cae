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
_SEQUENCE_TYPES = "case type when 'INT' then 'integer' else lower(type) end"


def _action(column: str) -> str:
    names = {"a": "NO ACTION", "r": "RESTRICT", "c": "CASCADE", "n": "SET NULL", "d": "SET DEFAULT"}
    return f"case c.{column} {' '.join(f'when {letter!r} then {name!r}' for letter, name in names.items())} end"


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
            upper(c.kind) as constraint_type, case when k.condeferrable then 'YES' else 'NO' end as is_deferrable,
            case when k.condeferred then 'YES' else 'NO' end as initially_deferred, 'YES' as enforced
        from sys_constraints as c join sys_relations as r on r.obj_id = c.table_id
            join sys_pg_class as t on t.relname = r.name
            join sys_pg_namespace as n on n.oid = t.relnamespace and n.nspname = r.schema
            join sys_pg_constraint as k on k.conrelid = t.oid and k.conname = c.name""",
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
            {_SEQUENCE_TYPES} as data_type, start as start_value, minimum as minimum_value, maximum as maximum_value,
            increment, case when cycle then 'YES' else 'NO' end as cycle_option
        from sys_sequences as s join sys_relations as r on r.full_name = s.name""",
    (INFORMATION_SCHEMA, "referential_constraints"): f"""
        select '{CATALOG_NAME}' as constraint_catalog, n.nspname as constraint_schema, c.conname as constraint_name,
            '{CATALOG_NAME}' as unique_constraint_catalog, pn.nspname as unique_constraint_schema,
            k.conname as unique_constraint_name,
            case c.confmatchtype when 'f' then 'FULL' else 'NONE' end as match_option,
            {_action("confupdtype")} as update_rule, {_action("confdeltype")} as delete_rule
        from sys_pg_constraint as c join sys_pg_namespace as n on n.oid = c.connamespace
            join sys_pg_class as p on p.oid = c.confrelid join sys_pg_namespace as pn on pn.oid = p.relnamespace
            join sys_pg_constraint as k on k.conindid = c.conindid and k.contype in ('p', 'u')
        where c.contype = 'f'""",
    (INFORMATION_SCHEMA, "view_table_usage"): f"""
        select '{CATALOG_NAME}' as view_catalog, view_schema, view_name, '{CATALOG_NAME}' as table_catalog,
            table_schema, table_name from sys_pg_view_uses""",
    (PG_CATALOG, "pg_namespace"): "select * from sys_pg_namespace",
    (PG_CATALOG, "pg_type"): "select * from sys_pg_type",
    (PG_CATALOG, "pg_attrdef"): "select * from sys_pg_attrdef",
    (PG_CATALOG, "pg_description"): "select * from sys_pg_description where description is not null",
    (PG_CATALOG, "pg_class"): """
        select oid, relname, relnamespace, 0 as reltype, relowner, 0 as relam, 0 as reltablespace, relhasindex,
            false as relisshared, relpersistence, relkind, relnatts, relchecks, false as relhasrules,
            false as relhastriggers, false as relhassubclass, false as relrowsecurity, false as relispartition
        from sys_pg_class""",
    (PG_CATALOG, "pg_attribute"): """
        select attrelid, attname, atttypid, attnum, atttypmod, 0 as attndims, attnotnull, atthasdef, attidentity,
            attgenerated, false as attisdropped, true as attislocal, 0 as attcollation
        from sys_pg_attribute""",
    (PG_CATALOG, "pg_index"): """
        select indexrelid, indrelid, indnatts, indnkeyatts, indisunique, indnullsnotdistinct, indisprimary,
            false as indisexclusion, true as indimmediate, false as indisclustered, true as indisvalid,
            true as indisready, true as indislive, indkey, indoption, null::text as indexprs, indpred
        from sys_pg_index""",
    (PG_CATALOG, "pg_constraint"): """
        select oid, conname, connamespace, contype, condeferrable, condeferred, convalidated, conrelid, 0 as contypid,
            conindid, 0 as conparentid, confrelid, confupdtype, confdeltype, confmatchtype, true as conislocal, conkey,
            confkey
        from sys_pg_constraint""",
    (PG_CATALOG, "pg_tables"): """
        select n.nspname as schemaname, c.relname as tablename, null::text as tableowner, null::text as tablespace,
            c.relhasindex as hasindexes, false as hasrules, false as hastriggers, false as rowsecurity
        from sys_pg_class as c join sys_pg_namespace as n on n.oid = c.relnamespace where c.relkind = 'r'""",
    (PG_CATALOG, "pg_views"): """
        select r.schema as schemaname, r.name as viewname, null::text as viewowner, v.definition
        from sys_views as v join sys_relations as r on r.obj_id = v.obj_id""",
    (PG_CATALOG, "pg_indexes"): """
        select n.nspname as schemaname, t.relname as tablename, c.relname as indexname, null::text as tablespace,
            i.definition as indexdef
        from sys_pg_index as i join sys_pg_class as c on c.oid = i.indexrelid
            join sys_pg_class as t on t.oid = i.indrelid join sys_pg_namespace as n on n.oid = t.relnamespace""",
    (PG_CATALOG, "pg_sequences"): f"""
        select r.schema as schemaname, r.name as sequencename, null::text as sequenceowner,
            {_SEQUENCE_TYPES} as data_type, start as start_value, minimum as min_value,
            maximum as max_value, increment as increment_by, cycle, greatest(cache, 1) as cache_size
        from sys_sequences as s join sys_relations as r on r.full_name = s.name""",
}


def standard_view(schema: str, name: str) -> ViewDefinition | None:
    """A view of ``information_schema`` or ``pg_catalog``; its columns are those of its query."""
    text = _TEXTS.get((schema, name))
    return None if text is None else ViewDefinition(name, text, tuple[Column, ...](), schema=schema)


def standard_names(schema: str) -> list[str]:
    return [name for one, name in _TEXTS if one == schema]
