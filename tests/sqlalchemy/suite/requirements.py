"""What of SQLAlchemy's suite is meant for gmdb; docs/sqlalchemy.md says why the rest is not."""

from sqlalchemy.testing import exclusions
from sqlalchemy.testing.requirements import SuiteRequirements

_THERE = [
    "table_ddl_if_exists",
    "index_ddl_if_exists",
    "uuid_data_type",
    "unique_constraints_reflect_as_index",
    "table_value_constructor",
    "boolean_col_expressions",
    "nullsordering",
    "intersect",
    "except_",
    "window_functions",
    "window_range",
    "window_range_numeric",
    "window_range_non_numeric",
    "ctes",
    "ctes_with_values",
    "tuple_in",
    "empty_inserts_executemany",
    "reflects_pk_names",
    "inline_check_constraint_reflection",
    "check_constraint_reflection",
    "unicode_ddl",
    "datetime_literals",
    "datetime_timezone",
    "timestamp_microseconds",
    "datetime_historic",
    "date_historic",
    "autocommit",
    "skip_autocommit_rollback",
    "isolation_level",
    "precision_numerics_enotation_small",
    "precision_numerics_many_significant_digits",
    "server_defaults",
    "expression_server_defaults",
    "precision_numerics_retains_significant_digits",
    "infinity_floats",
    "savepoints",
    "mod_operator_as_percent_sign",
    "order_by_label_with_expression",
    "supports_distinct_on",
    "identity_columns",
    "regexp_match",
    "regexp_replace",
    "fetch_first",
    "fetch_no_order_by",
    "fetch_expression",
    "supports_bitwise_or",
    "supports_bitwise_and",
    "supports_bitwise_not",
    "supports_bitwise_xor",
    "supports_bitwise_shift",
    "float_or_double_precision_behaves_generically",
    "aggregate_order_by",
    "percent_schema_names",
    "like_escapes",
    "update_from",
    "delete_from",
    "ctes_on_dml",
    "datetime_interval",
    "ctes_with_update_delete",
]
_ABSENT = [
    "foreign_keys",
    "self_referential_foreign_keys",
    "foreign_key_constraint_reflection",
    "temporary_tables",
    "temp_table_reflection",
    "schemas",
    "implicit_default_schema",
    "indexes_with_ascdesc",
    "reflect_indexes_with_ascdesc",
    "on_update_cascade",
    "recursive_fk_cascade",
]


def _always(condition):
    return property(lambda self: condition())


class Requirements(SuiteRequirements):
    def get_isolation_levels(self, config):
        return {"default": "READ COMMITTED", "supported": ["READ COMMITTED", "REPEATABLE READ", "AUTOCOMMIT"]}


for _name in _THERE:
    setattr(Requirements, _name, _always(exclusions.open))
for _name in _ABSENT:
    setattr(Requirements, _name, _always(exclusions.closed))
