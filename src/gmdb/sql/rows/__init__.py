"""The rows executor: generated Python over cursors, for plans that touch few rows."""

from __future__ import annotations

from gmdb.sql.rows.row_program import Program, Quick, supports

__all__ = ["Program", "Quick", "supports"]
