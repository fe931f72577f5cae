"""Queries that gmdb's own cursors do not answer, run in DuckDB over Arrow batches of gmdb's scans.

``prepare`` translates a query once, for tables with given columns and parameters of given types; ``Plan.run`` reads.
``run`` does both, and remembers plans.

A plan's text is made here and not by sqlglot's writer: every expression passes through a list of what is known to
have PostgreSQL's answer (expressions.py, functions.py, aggregates.py), with its type made explicit.
"""

from gmdb.sql.duck.answer import Answer, Source
from gmdb.sql.duck.engine import Settings, configure
from gmdb.sql.duck.plan import Plan, prepare, run

__all__ = ["Answer", "Plan", "Settings", "Source", "configure", "prepare", "run"]
