"""Checks everything about a closed database's files: ``verify(directory) -> Report``.

A compiled check runs over every page on all cores; for pages that fail it, the plain checks of format/ and
page_contents.py say why.  Then pages are compared with each other: maps, free lists, the catalog, migrated rows, undo,
indexes.  Long work comes in pieces (pieces.py), which threads of this process do, or other processes.

Invariants
 1. Whatever the bytes are, the result is a list of findings, not an exception.  Only a directory that cannot be read,
    or is in use, raises.
 2. Other pages are not compared with what a damaged page says: one damage causes few findings.
Not here: an open database, or repairing anything.
"""

from gmdb.verify.findings import Finding, Report
from gmdb.verify.verifier import verify

__all__ = ["Finding", "Report", "verify"]
