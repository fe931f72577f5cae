"""Verifying: whether pages from files are right, by themselves and against each other."""
