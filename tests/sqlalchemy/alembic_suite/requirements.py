"""What of Alembic's suite is meant for gmdb; docs/sqlalchemy.md says why the rest is not."""

from alembic.testing.requirements import SuiteRequirements
from sqlalchemy.testing import exclusions

THERE = """
    alter_column computed_columns autoincrement_on_composite_pk
    check_constraint_reflection check_constraints_w_enforcement comments
    fk_deferrable fk_deferrable_is_reflected fk_initially fk_names fk_ondelete_is_reflected fk_ondelete_noaction
    fk_ondelete_restrict fk_onupdate fk_onupdate_is_reflected fk_onupdate_restrict foreign_key_constraint_reflection
    foreign_key_match foreign_key_name_reflection identity_columns identity_columns_alter integer_subtype_comparisons
    reflects_fk_options reflects_pk_names unique_constraint_reflection
    autocommit_isolation
"""
ABSENT = """
    schemas
"""


class Requirements(SuiteRequirements):
    pass


for _names, _rule in ((THERE, exclusions.open), (ABSENT, exclusions.closed)):
    for _name in _names.split():
        setattr(Requirements, _name, property(lambda _, rule=_rule: rule()))
