"""Statements that change rows: what goes where, which rows, and what is refused."""
