"""The SQL shell: what ``gmdb sql`` is made of.

A shell is a client like any other: it uses a connection, and nothing below.
"""
