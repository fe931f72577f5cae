"""Rows and where to find them."""
