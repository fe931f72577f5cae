"""Further sessions of the test's database."""

from __future__ import annotations

from tests.sessions import connect

__all__ = ["connect"]
