"""The options of ``spark.readStream.format("gmdb")``: what they are called and what they may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from gmdb.errors import InterfaceError
from gmdb.spark.options import (
    CHANGES,
    Owner,
    database_of,
    known_options,
    owner_of,
    parse_lease,
    parse_names,
    parse_size,
)
from gmdb.storage.feeds import KEEP, require_keep, require_reader_name

OWN = ("since", "reader", "keep", "beforeImages", "maxRowsPerBatch", "schemaChange")  # each asks for changes
KNOWN = ("path", "table", "columns", "view", *OWN, "lease", "maxPartitionBytes", "owner", "token", "tlsCa")
SNAPSHOT, NOW = "snapshot", "now"
LEASE = 3600.0  # seconds that the rows a stream begins with stay readable while no batch is read
_SCHEMA_CHANGES = ("fail", "follow")


@dataclass(frozen=True)
class ChangeOptions:
    """What a user asked for; ``columns`` is empty if all are wanted."""

    path: Path
    table: str
    columns: tuple[str, ...]
    since: str | datetime
    reader: str  # empty: it gets a name
    keep: int
    before_images: bool
    max_rows: int | None
    follows_schema: bool
    lease: float
    max_partition_bytes: int | None
    owner: Owner | None


def asks_for_changes(options: Mapping[str, str]) -> bool:
    """Whether the options are those of a stream of changes."""
    given = {name.lower(): value for name, value in options.items()}
    return given.get("view", "").lower() == CHANGES or any(name.lower() in given for name in OWN)


def parse_change_options(options: Mapping[str, str]) -> ChangeOptions:
    given = known_options(options, KNOWN)
    path = database_of(given, 'read: .load("shop.gmdb")')
    if given.get("view", CHANGES).lower() != CHANGES:
        raise InterfaceError(f"view: a stream has {CHANGES}, not {given['view']!r}; read that view with spark.read")
    if not given.get("table"):
        raise InterfaceError(f'say of which table of {given["path"]} to read the changes: .option("table", "tbl")')
    schema_change = given.get("schemachange", "fail").lower()
    if schema_change not in _SCHEMA_CHANGES:
        raise InterfaceError(f"schemaChange: {schema_change!r} is none of {', '.join(_SCHEMA_CHANGES)}")
    size = given.get("maxpartitionbytes")
    return ChangeOptions(
        path,
        given["table"],
        parse_names(given["columns"]) if "columns" in given else (),
        _since(given.get("since", SNAPSHOT)),
        require_reader_name(given["reader"]) if given.get("reader") else "",
        require_keep(parse_size(given["keep"], "keep")) if "keep" in given else KEEP,
        _flag("beforeImages", given.get("beforeimages", "false")),
        _rows(given["maxrowsperbatch"]) if "maxrowsperbatch" in given else None,
        schema_change == "follow",
        parse_lease(given["lease"]) if "lease" in given else LEASE,
        None if size is None else parse_size(size),
        owner_of(given),
    )


def _since(text: str) -> str | datetime:
    """``snapshot``, ``now``, a position of a feed, or a time."""
    if text.lower() in (SNAPSHOT, NOW):
        return text.lower()
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return text


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InterfaceError(f"{name}: {text!r} is neither true nor false")
    return text.lower() == "true"


def _rows(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise InterfaceError(f"maxRowsPerBatch: {text!r} is no number of rows")
    return int(text)
