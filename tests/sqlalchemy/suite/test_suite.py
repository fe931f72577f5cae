"""SQLAlchemy's own tests for dialects."""

from sqlalchemy.testing.suite import *  # noqa: F403
