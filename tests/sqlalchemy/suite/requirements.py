"""What of SQLAlchemy's suite is meant for gmdb; docs/sqlalchemy.md says why the rest is not."""

from sqlalchemy.testing import exclusions
from sqlalchemy.testing.requirements import SuiteRequirements

THERE = """
    aggregate_order_by autocommit boolean_col_expressions check_constraint_reflection comment_reflection
    comment_reflection_full_unicode computed_columns
    computed_columns_default_persisted computed_columns_reflect_persisted computed_columns_stored create_table_as ctes
    ctes_with_update_delete ctes_with_values date_historic datetime_historic datetime_literals datetime_timezone
    dbapi_lastrowid delete_from empty_inserts_executemany except_ expression_server_defaults fetch_expression
    fetch_first fetch_no_order_by float_or_double_precision_behaves_generically index_ddl_if_exists infinity_floats
    inline_check_constraint_reflection intersect isolation_level like_escapes mod_operator_as_percent_sign
    nullsordering order_by_label_with_expression percent_schema_names precision_numerics_enotation_small
    precision_numerics_many_significant_digits precision_numerics_retains_significant_digits
    reflect_indexes_with_expressions reflects_pk_names
    regexp_match regexp_replace savepoints server_defaults skip_autocommit_rollback supports_bitwise_and
    supports_bitwise_not supports_bitwise_or supports_bitwise_shift supports_bitwise_xor supports_distinct_on
    table_ddl_if_exists table_value_constructor timestamp_microseconds tuple_in unicode_ddl
    unique_constraints_reflect_as_index update_from uuid_data_type view_column_reflection view_reflection views
    window_functions
    cast_precision_numerics_many_significant_digits constraint_comment_reflection create_or_replace_view
    datetime_timezone_historic deferrable_fks dialect_level_isolation_level_param
    fk_constraint_option_reflection_ondelete_restrict fk_constraint_option_reflection_onupdate_restrict
    foreign_key_constraint_name_reflection foreign_key_constraint_option_reflection_ondelete
    foreign_key_constraint_option_reflection_onupdate identity_columns identity_columns_standard
    index_reflects_included_columns
    json_type json_array_indexes json_index_supplementary_unicode_element legacy_unconditional_json_extract
    timestamp_microseconds_implicit_bound
    tuple_in_w_empty
    create_temp_table_as cross_schema_fk_reflection ctes_on_dml has_temp_table implicit_default_schema
    schema_create_delete schema_reflection schemas
    temp_table_comment_reflection temp_table_names temp_table_reflect_indexes temp_table_reflection temporary_tables
    temporary_views datetime_interval window_range_non_numeric
"""
ABSENT = """
    array_type server_side_cursors
    window_range window_range_numeric
"""


class Requirements(SuiteRequirements):
    def get_isolation_levels(self, config):  # noqa: ARG002
        return {
            "default": "READ COMMITTED",
            "supported": ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE", "AUTOCOMMIT"],
        }

    def get_order_by_collation(self, config):  # noqa: ARG002
        return "C"


for _names, _rule in ((THERE, exclusions.open), (ABSENT, exclusions.closed)):
    for _name in _names.split():
        setattr(Requirements, _name, property(lambda _, rule=_rule: rule()))
