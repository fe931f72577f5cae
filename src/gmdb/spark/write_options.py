"""The options of ``df.write.format("gmdb")`` and ``df.writeStream.format("gmdb")``: their names and what they may be.

| option | meaning |
|---|---|
| table | the table that gets the rows |
| createTable | true: if there is no such table, make one out of the DataFrame's schema; false unless given |
| stringLength | bytes that strings and binaries of a new table may have, 4000 unless given; "lob": any number |
| tablespace | where a new table lies: main unless given |
| apply | append (unless given), upsert, or changes |
| orderBy | with upsert: the column by which the last of several rows with the same key is found |
| onExisting | with changes that begin with a snapshot: refuse (unless given), upsert or replace rows that are there |
| stream, batchId | a name under which batches are counted, and the number of this one, which writeStream knows itself |
| owner, token, tlsCa | where the process that has the database open listens, if that is another machine |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gmdb.errors import InterfaceError
from gmdb.format.columns import VARCHAR_MAX
from gmdb.spark.options import Owner, database_of, known_options, owner_of

KNOWN = (
    "path",
    "table",
    "createTable",
    "stringLength",
    "tablespace",
    "apply",
    "orderBy",
    "onExisting",
    "stream",
    "batchId",
    "owner",
    "token",
    "tlsCa",
)
OF_STREAMS = tuple(name for name in KNOWN if name != "batchId")
SPARKS_OWN = ("checkpointLocation", "queryName")  # which Spark hands over with a stream's
LOB = "lob"
APPEND, UPSERT, CHANGES = "append", "upsert", "changes"
APPLY = (APPEND, UPSERT, CHANGES)
ON_EXISTING = ("refuse", "upsert", "replace")


@dataclass(frozen=True)
class WriteOptions:
    """What a user asked for; ``string_length`` is None if strings of a new table are to be large objects."""

    path: Path
    table: str
    create_table: bool
    string_length: int | None
    tablespace: str
    owner: Owner | None = None
    apply: str = APPEND
    order_by: str = ""
    on_existing: str = ON_EXISTING[0]
    stream: str = ""
    batch_id: int | None = None
    checkpoint: str = ""  # what tells a stream's query from others of the same driver, if anything does


def parse_write_options(options: Mapping[str, str]) -> WriteOptions:
    """Options of a write as Spark hands them over: texts, whose names are in any case."""
    given = known_options(options, KNOWN)
    if bool(given.get("stream")) != bool(given.get("batchid")):
        raise InterfaceError("stream and batchId belong together: the number counts batches of that name")
    return _parsed(given)


def parse_stream_options(options: Mapping[str, str]) -> WriteOptions:
    """Options of a streaming query."""
    sparks_own = {name.lower() for name in SPARKS_OWN}
    return _parsed(
        known_options({k: v for k, v in options.items() if k.lower() not in sparks_own}, OF_STREAMS),
        " ".join(value for name, value in sorted(options.items()) if name.lower() in sparks_own),
    )


def _parsed(given: Mapping[str, str], checkpoint: str = "") -> WriteOptions:
    path = database_of(given, 'write to: .save("shop.gmdb"), or .start("shop.gmdb")')
    if not given.get("table"):
        raise InterfaceError(f'say which table of {given["path"]} to write to: .option("table", "tbl")')
    create = _truth("createTable", given.get("createtable", "false"))
    for name in ("stringLength", "tablespace"):
        if name.lower() in given and not create:
            raise InterfaceError(f"{name} is for new tables: it needs createTable=true")
    apply = _one_of("apply", given.get("apply", APPEND), APPLY)
    if create and apply != APPEND:
        raise InterfaceError(f"apply={apply} goes by a primary key, which createTable does not make; create the table")
    _require_apply(given, "orderBy", apply, UPSERT)
    _require_apply(given, "onExisting", apply, CHANGES)
    return WriteOptions(
        path,
        given["table"],
        create,
        _length(given.get("stringlength", str(VARCHAR_MAX))),
        given.get("tablespace", "main"),
        owner_of(given),
        apply,
        given.get("orderby", ""),
        _one_of("onExisting", given.get("onexisting", ON_EXISTING[0]), ON_EXISTING),
        given.get("stream", ""),
        _number("batchId", given["batchid"]) if given.get("batchid") else None,
        checkpoint,
    )


def _require_apply(given: Mapping[str, str], name: str, apply: str, wanted: str) -> None:
    if name.lower() in given and apply != wanted:
        raise InterfaceError(f"{name} is for apply={wanted}, not for apply={apply}")


def _one_of(name: str, text: str, known: tuple[str, ...]) -> str:
    if text.lower() not in known:
        raise InterfaceError(f"{name}: {text!r} is none of {', '.join(known)}")
    return text.lower()


def _truth(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InterfaceError(f"{name}: {text!r} is neither true nor false")
    return text.lower() == "true"


def _number(name: str, text: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise InterfaceError(f"{name}: {text!r} is no number of a batch; foreachBatch hands it over")
    return int(text)


def _length(text: str) -> int | None:
    if text.lower() == LOB:
        return None
    if not text.isdecimal() or not 1 <= int(text) <= VARCHAR_MAX:
        raise InterfaceError(f'stringLength: {text!r} is neither a number of 1 to {VARCHAR_MAX} bytes nor "{LOB}"')
    return int(text)
