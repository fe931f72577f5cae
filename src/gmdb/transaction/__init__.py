"""Transactions: locks, undo, snapshots, waiting, garbage collection, sessions."""
