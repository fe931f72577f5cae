"""Durability: the redo log, checkpoints, and recovery after a crash."""
