"""Alembic's own tests for what runs on a database."""

from alembic.testing.suite import *  # noqa: F403
