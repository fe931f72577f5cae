"""The options of ``df.write.format("gmdb")``: what they are called and what they may be.

| option | meaning |
|---|---|
| table | the table that gets the rows |
| createTable | true: if there is no such table, make one out of the DataFrame's schema; false unless given |
| stringLength | bytes that strings and binaries of a new table may have, 4000 unless given; "lob": any number |
| tablespace | where a new table lies: main unless given |
| owner, token, tlsCa | where the process that has the database open listens, if that is another machine |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gmdb.errors import InterfaceError
from gmdb.format.columns import VARCHAR_MAX
from gmdb.spark.options import Owner, database_of, known_options, owner_of

KNOWN = ("path", "table", "createTable", "stringLength", "tablespace", "owner", "token", "tlsCa")
LOB = "lob"


@dataclass(frozen=True)
class WriteOptions:
    """What a user asked for; ``string_length`` is None if strings of a new table are to be large objects."""

    path: Path
    table: str
    create_table: bool
    string_length: int | None
    tablespace: str
    owner: Owner | None = None


def parse_write_options(options: Mapping[str, str]) -> WriteOptions:
    """Options as Spark hands them over: texts, whose names are in any case."""
    given = known_options(options, KNOWN)
    path = database_of(given, 'write to: .save("shop.gmdb")')
    if not given.get("table"):
        raise InterfaceError(f'say which table of {given["path"]} to write to: .option("table", "tbl")')
    create = _truth("createTable", given.get("createtable", "false"))
    for name in ("stringLength", "tablespace"):
        if name.lower() in given and not create:
            raise InterfaceError(f"{name} is for new tables: it needs createTable=true")
    length = _length(given.get("stringlength", str(VARCHAR_MAX)))
    tablespace = given.get("tablespace", "main")
    return WriteOptions(path, given["table"], create, length, tablespace, owner_of(given))


def _truth(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InterfaceError(f"{name}: {text!r} is neither true nor false")
    return text.lower() == "true"


def _length(text: str) -> int | None:
    if text.lower() == LOB:
        return None
    if not text.isdecimal() or not 1 <= int(text) <= VARCHAR_MAX:
        raise InterfaceError(f'stringLength: {text!r} is neither a number of 1 to {VARCHAR_MAX} bytes nor "{LOB}"')
    return int(text)
