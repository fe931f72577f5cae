"""Names of what is in schemas.

A table, a view or a sequence is known within the database by its *full name*: its name with that of its schema and a
dot before it, or, in the schema ``public``, its name alone.  Full names are what definitions refer to each other by,
and by what programs, Spark and commands name a table; only SQL knows names that are looked up in several schemas
(sql/bind/names.py).  An index is in the schema of its table.

Invariants
 1. No schema has a dot in its name, and nothing in ``public`` has a name that begins with that of another schema and a
    dot: a full name means one thing at most.
Not here: which schemas there are (tables.py), how they come and go (schemas.py).
"""

from __future__ import annotations

from collections.abc import Container

PUBLIC = "public"
TEMPORARY = "pg_temp"  # what a session calls the schema of its own that has its temporary tables
_OF_SESSIONS = f"{TEMPORARY}_"  # with which the names of such schemas begin


def full_name(schema: str, name: str) -> str:
    return name if schema == PUBLIC else f"{schema}.{name}"


def temporary_schema(number: int) -> str:
    """The schema of a session's temporary tables, by a number that no other has had."""
    return f"{_OF_SESSIONS}{number}"


def is_temporary(schema: str) -> bool:
    return schema.startswith(_OF_SESSIONS)


def own_name(schema: str, name: str) -> str:
    """What a full name is within its schema."""
    return name if schema == PUBLIC else name[len(schema) + 1 :]


def parts_of(name: str, schemas: Container[str]) -> tuple[str, str]:
    """The schema of a full name, and the name within it; ``schemas``: those that there are."""
    schema, dot, own = name.partition(".")
    return (schema, own) if dot and schema in schemas else (PUBLIC, name)
