"""SQLAlchemy's own plugin, for Alembic's suite, too."""

import pytest

pytest.register_assert_rewrite("sqlalchemy.testing.assertions")

from sqlalchemy.testing.plugin.pytestplugin import *  # noqa: E402, F403
from sqlalchemy.testing.provision import post_configure_engine, temp_table_keyword_args  # noqa: E402

import gmdb.sqlalchemy  # noqa: E402


@post_configure_engine.for_db("gmdb")
def make_schema(url, engine, follower_ident):  # noqa: ARG001
    """The schema that the suite expects beside the usual one."""
    with gmdb.connect(url.database) as db:
        db.execute("create schema if not exists test_schema")


@temp_table_keyword_args.for_db("gmdb")
def of_temporary_tables(cfg, eng):  # noqa: ARG001
    return {"prefixes": ["TEMPORARY"]}
