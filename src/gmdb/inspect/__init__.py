"""A database's bytes, read from its files alone: works on closed and on damaged databases, takes no lock."""
