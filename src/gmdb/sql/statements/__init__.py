"""Statements that neither find nor change rows: definitions, transactions, ANALYZE."""
