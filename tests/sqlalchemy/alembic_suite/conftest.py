"""SQLAlchemy's own plugin, for Alembic's suite, too."""

import pytest

pytest.register_assert_rewrite("sqlalchemy.testing.assertions")

from sqlalchemy.testing.plugin.pytestplugin import *  # noqa: E402, F403

import gmdb.sqlalchemy  # noqa: E402, F401
