"""SQL: statements in PostgreSQL's dialect, over gmdb's tables."""
