"""Checks everything about a closed database's files: ``verify(directory) -> Report``.

A compiled check looks at every page on all cores; what it finds fault with, the plain checks of format/ and
page_contents.py put into words.  Then pages are held against each other: maps, free lists, the catalog, migrated rows,
undo, indexes. What takes long comes in pieces (pieces.py), which threads of this process do, or others elsewhere.

Invariants
 1. Whatever the bytes are, the answer is a list of findings, not an exception.  Only a directory that cannot be read,
    or is in use, raises.
 2. What a damaged page says is not held against others: one damage makes few findings.
Not here: an open database, or repairing anything.
"""

from gmdb.verify.findings import Finding, Report
from gmdb.verify.verifier import verify

__all__ = ["Finding", "Report", "verify"]
