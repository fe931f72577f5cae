"""The commands: ``gmdb``, and ``gmstat``, which is ``gmdb stat``."""

from gmdb.cli.program import gmstat, main

__all__ = ["gmstat", "main"]
