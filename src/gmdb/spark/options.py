"""The options of ``spark.read.format("gmdb")``: what they are called and what they may be."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gmdb.errors import InterfaceError

MAX_PARTITION_BYTES = 16 << 20
KNOWN = ("path", "table", "columns", "maxPartitionBytes")
_SIZE = re.compile(r"\s*(\d+)\s*([kmgt]?)(?:i?b)?\s*", re.IGNORECASE)
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):", re.IGNORECASE)


@dataclass(frozen=True)
class ReadOptions:
    """What a user asked for; ``columns`` is empty if all are wanted."""

    path: Path
    table: str
    columns: tuple[str, ...]
    max_partition_bytes: int


def parse_options(options: Mapping[str, str]) -> ReadOptions:
    """Options as Spark hands them over: texts, whose names are in any case."""
    given = {name.lower(): value for name, value in options.items()}
    if "paths" in given:
        raise InterfaceError("load() takes one database; load each by itself and make a union of the DataFrames")
    require_known(given, KNOWN)
    if not given.get("path"):
        raise InterfaceError('say which database to read: .load("shop.gmdb")')
    if not given.get("table"):
        raise InterfaceError(f'say which table of {given["path"]} to read: .option("table", "tbl")')
    columns = _names(given["columns"]) if "columns" in given else ()
    size = given.get("maxpartitionbytes")
    return ReadOptions(
        local_path(given["path"]), given["table"], columns, MAX_PARTITION_BYTES if size is None else parse_size(size)
    )


def require_known(given: Mapping[str, str], known: Sequence[str]) -> None:
    """Refuse options that are not known; those given have their names in small letters."""
    unknown = sorted(set(given) - {name.lower() for name in known})
    if unknown:
        raise InterfaceError(f"gmdb knows no option {', '.join(unknown)}; its options are {', '.join(known)}")


def local_path(text: str) -> Path:
    """A directory from a path or a ``file:`` URI; absolute, since a worker may stand in another directory."""
    scheme = _SCHEME.match(text)
    if scheme is None:
        return Path(text).absolute()
    if scheme.group(1).lower() != "file":
        said = f"{text}: gmdb reads directories that every worker can reach as files"
        raise InterfaceError(f"{said}; {scheme.group(1)} is none of them")
    return Path("/" + text[scheme.end() :].lstrip("/"))


def parse_size(text: str) -> int:
    """A number of bytes: ``1048576``, ``16m``, ``16MiB``."""
    match = _SIZE.fullmatch(text)
    size = int(match.group(1)) << 10 * " kmgt".index(match.group(2).lower() or " ") if match else 0
    if size < 1:
        raise InterfaceError(f"maxPartitionBytes: {text!r} is no size; write a number of bytes, or 16m, or 1GiB")
    return size


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise InterfaceError(f'columns: {text!r} is no list of columns; write their names with commas: "i,s"')
    return names
