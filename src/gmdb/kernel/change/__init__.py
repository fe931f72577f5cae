"""Changing: rows one by one and in bulk, indexes in step with them, rollback, garbage collection."""
