"""The catalog: definitions of tables, stored as rows of system tables."""
