"""Indexes: nodes, B-trees, hash indexes, and an index of any kind."""
