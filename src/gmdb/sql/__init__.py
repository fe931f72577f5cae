"""SQL: statements in PostgreSQL's dialect, over gmdb's tables."""

from gmdb.process.late_imports import stood_in_for

# sqlglot looks for plugins when it is asked for a dialect that it does not know, compares trees, and guesses what was
# meant by a wrong option.  None of it is for us, and what it imports for that takes as long as its grammar.
_UNUSED = {"importlib.metadata": ("entry_points",), "sqlglot.diff": ("diff",), "difflib": ("get_close_matches",)}
with stood_in_for(_UNUSED):
    import sqlglot.dialects.postgres  # noqa: F401
