"""Further sessions of the test's database."""

from tests.sessions import connect

__all__ = ["connect"]
