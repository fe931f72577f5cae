"""A database's tables, read from its files alone: no lock is taken, nothing is trusted."""
