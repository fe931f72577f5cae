"""The options of ``spark.read.format("gmdb")``: what they are called and what they may be."""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from gmdb.errors import InterfaceError
from gmdb.format.columns import VARCHAR_MAX
from gmdb.process.late_dataclasses import dataclass
from gmdb.storage.feeds import KEEP, require_keep, require_reader_name
from gmdb.storage.pins import LEASE, require_lease

MAX_PARTITION_BYTES = 128 << 20  # as Spark's own for files: a task costs a tenth of a second, whatever it reads
ROWS, CHANGES = "rows", "changes"
VIEWS = (ROWS, "pages", "segments", "undo", "locks", "redo")
FAIL_OR_SKIP = ("fail", "skip")
READ_OPTIONS = (
    "path",
    "table",
    "columns",
    "where",
    "snapshot",
    "lease",
    "maxPartitionBytes",
    "onCorruption",
    "onError",
    "reportTo",
    "view",
    "owner",
    "token",
    "tlsCa",
)
_SIZE = re.compile(r"\s*(\d+)\s*([kmgt]?)(?:i?b)?\s*", re.IGNORECASE)
_TIME = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(s|m|h|d|)\s*", re.IGNORECASE)
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_OPTION = "option."  # before the names of options, in the properties of a table in Spark's catalog
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):", re.IGNORECASE)


@dataclass(frozen=True)
class Owner:
    """Where the process that has the database open listens, if not on the planning process's own machine."""

    url: str
    token: str | None
    tls_ca: str | None


@dataclass(frozen=True)
class ReadOptions:
    """The options of a read, parsed; ``columns`` is empty if all are wanted.

    ``fleet``: paths and patterns of several databases, as they were given; empty if ``path`` is the one to read.
    """

    path: Path
    table: str
    columns: tuple[str, ...]
    max_partition_bytes: int | None = None  # none: as large as is good for a table of its size
    where: str = ""
    snapshot: str = ""
    lease: float = LEASE
    skips_damage: bool = False
    view: str = ROWS
    owner: Owner | None = None
    fleet: tuple[str, ...] = ()
    skips_databases: bool = False
    report_to: Path | None = None


def parse_options(options: Mapping[str, str]) -> ReadOptions:
    """Options as Spark hands them over: texts, whose names are in any case."""
    chosen = {name.lower(): value for name, value in options.items()}
    fleet = _fleet_of(chosen)
    chosen = known_options(chosen, READ_OPTIONS)
    path = database_of(chosen, 'read: .load("shop.gmdb")')
    view = chosen.get("view", ROWS).lower()
    if view == CHANGES:
        raise InterfaceError('view: changes are read as a stream: spark.readStream.format("gmdb")')
    if view not in VIEWS:
        raise InterfaceError(f"view: {view!r} is not one of {', '.join(VIEWS)}")
    if not chosen.get("table") and view == ROWS:
        raise InterfaceError(f'say which table of {chosen["path"]} to read: .option("table", "tbl")')
    _require_fitting(chosen, fleet)
    size = chosen.get("maxpartitionbytes")
    return ReadOptions(
        path,
        chosen.get("table", ""),
        parse_names(chosen["columns"]) if "columns" in chosen else (),
        None if size is None else parse_size(size),
        chosen.get("where", ""),
        chosen.get("snapshot", ""),
        parse_lease(chosen["lease"]) if "lease" in chosen else LEASE,
        _skips(chosen, "onCorruption"),
        view,
        owner_of(chosen),
        fleet,
        _skips(chosen, "onError"),
        local_path(chosen["reportto"]) if chosen.get("reportto") else None,
    )


def own_options(options: Mapping[str, str]) -> dict[str, str]:
    """Options without what Spark adds when a table is made in its catalog: all of its properties.

    One of these is called owner, and means a user; what was given as OPTIONS is there under names of its own.
    """
    chosen = {name.lower(): value for name, value in options.items()}
    if not is_for_catalog(options):
        return chosen
    own = {name.removeprefix(_OPTION): value for name, value in chosen.items() if name.startswith(_OPTION)}
    place = chosen.get("path") or chosen.get("location")
    return {"path": place, **own} if place else own


def is_for_catalog(options: Mapping[str, str]) -> bool:
    """Whether Spark makes a table in its catalog: CREATE TABLE ... USING gmdb."""
    return any(name.lower() == "provider" for name in options)


def _fleet_of(chosen: dict[str, str]) -> tuple[str, ...]:
    """The paths and patterns of several databases; Spark has a list of them as one text, which is taken out."""
    if "paths" in chosen:
        paths = tuple(json.loads(chosen.pop("paths")))
        chosen["path"] = ", ".join(paths)
        return paths
    path = chosen.get("path", "")
    return (path,) if is_pattern(path) else ()


def is_pattern(text: str) -> bool:
    """Whether a path stands for all that match it: it has ``*``, ``?`` or ``[…]``, and is not itself there."""
    return glob.has_magic(text) and not local_path(text).exists()


def _skips(chosen: Mapping[str, str], name: str) -> bool:
    choice = chosen.get(name.lower(), "fail").lower()
    if choice not in FAIL_OR_SKIP:
        raise InterfaceError(f"{name}: {choice!r} is not one of {', '.join(FAIL_OR_SKIP)}")
    return choice == "skip"


def _require_fitting(chosen: Mapping[str, str], fleet: tuple[str, ...]) -> None:
    """Refuse what is for one database alone, or for several."""
    if not fleet:
        for name in ("onError", "reportTo"):
            if chosen.get(name.lower()):
                message = f"{name} is for several databases, such as fleet/*; {chosen['path']} is one"
                raise InterfaceError(f"{message}, whose damaged pages onCorruption is about")
        return
    for name in ("snapshot", "owner"):
        if chosen.get(name):
            message = f"{name} is of one database, and {chosen['path']} may be several"
            raise InterfaceError(f"{message}; load each by itself and make a union of the DataFrames")


def known_options(options: Mapping[str, str], known: tuple[str, ...]) -> dict[str, str]:
    """The options by their names in small letters, if gmdb knows all of them."""
    chosen = {name.lower(): value for name, value in options.items()}
    if "paths" in chosen:
        raise InterfaceError("one database at a time; say which: a path, and no list of them")
    unknown = sorted(set(chosen) - {name.lower() for name in known})
    if unknown:
        raise InterfaceError(f"gmdb knows no option {', '.join(unknown)}; its options are {', '.join(known)}")
    return chosen


def database_of(chosen: Mapping[str, str], what: str) -> Path:
    if not chosen:
        message = "Spark's catalog hands over no options of a table whose columns were named when it was made"
        advice = "CREATE TABLE t USING gmdb OPTIONS (path 'shop.gmdb', table 'orders') finds them out"
        raise InterfaceError(f"say which database to {what}; {message}: {advice}")
    if not chosen.get("path"):
        raise InterfaceError(f"say which database to {what}")
    return local_path(chosen["path"])


def owner_of(chosen: Mapping[str, str]) -> Owner | None:
    if not chosen.get("owner"):
        if chosen.get("token") or chosen.get("tlsca"):
            raise InterfaceError('token and tlsCa belong to an owner: .option("owner", "gmdb://host:7433")')
        return None
    return Owner(chosen["owner"], chosen.get("token"), chosen.get("tlsca"))


def local_path(text: str) -> Path:
    """A directory from a path or a ``file:`` URI; absolute, since a worker may have another working directory."""
    scheme = _SCHEME.match(text)
    if scheme is None:
        return Path(text).absolute()
    if scheme.group(1).lower() != "file":
        message = f"{text}: gmdb reads directories that every worker can reach as files"
        raise InterfaceError(f"{message}; {scheme.group(1)} is not one of them")
    return Path("/" + text[scheme.end() :].lstrip("/"))


def parse_size(text: str, name: str = "maxPartitionBytes") -> int:
    """A number of bytes: ``1048576``, ``16m``, ``16MiB``."""
    match = _SIZE.fullmatch(text)
    size = int(match.group(1)) << 10 * " kmgt".index(match.group(2).lower() or " ") if match else 0
    if size < 1:
        raise InterfaceError(f"{name}: {text!r} is not a size; write a number of bytes, or 16m, or 1GiB")
    return size


def parse_lease(text: str) -> float:
    """A time in seconds: ``600``, ``90s``, ``10m``, ``2h``."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise InterfaceError(f"lease: {text!r} is not a time; write a number of seconds, or 10m, or 2h")
    return require_lease(float(match.group(1)) * _SECONDS[match.group(2).lower()])


def parse_names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise InterfaceError(f'columns: {text!r} is not a list of columns; write their names with commas: "i,s"')
    return names


# ---- The options of ``df.write.format("gmdb")`` and ``df.writeStream.format("gmdb")``: their names and what they may
# be.
#
# | option | meaning |
# |---|---|
# | table | the table that gets the rows |
# | createTable | true: if there is no such table, make one out of the DataFrame's schema; false unless given |
# | stringLength | bytes that strings and binaries of a new table may have, 4000 unless given; "lob": any number |
# | tablespace | where a new table lies: main unless given |
# | apply | append (unless given), upsert, or changes |
# | orderBy | with upsert: the column by which the last of several rows with the same key is found |
# | onExisting | with changes that begin with a snapshot: refuse (unless given), upsert or replace rows that are there |
# | stream, batchId | a name under which batches are counted, and the number of this one, which writeStream knows itself
# | | owner, token, tlsCa | where the process that has the database open listens, if that is another machine |

WRITE_OPTIONS = (
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
OF_STREAMS = tuple(name for name in WRITE_OPTIONS if name != "batchId")
SPARKS_OWN = ("checkpointLocation", "queryName")  # which Spark hands over with a stream's
LOB = "lob"
APPEND, UPSERT = "append", "upsert"
APPLY = (APPEND, UPSERT, CHANGES)
ON_EXISTING = ("refuse", "upsert", "replace")


@dataclass(frozen=True)
class WriteOptions:
    """The options of a write, parsed; ``string_length`` is None if strings of a new table are to be large objects."""

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
    chosen = known_options(options, WRITE_OPTIONS)
    if bool(chosen.get("stream")) != bool(chosen.get("batchid")):
        raise InterfaceError("stream and batchId belong together: the number counts batches of that name")
    return _parsed(chosen)


def parse_stream_options(options: Mapping[str, str]) -> WriteOptions:
    """Options of a streaming query."""
    sparks_own = {name.lower() for name in SPARKS_OWN}
    return _parsed(
        known_options({k: v for k, v in options.items() if k.lower() not in sparks_own}, OF_STREAMS),
        " ".join(value for name, value in sorted(options.items()) if name.lower() in sparks_own),
    )


def _parsed(chosen: Mapping[str, str], checkpoint: str = "") -> WriteOptions:
    path = database_of(chosen, 'write to: .save("shop.gmdb"), or .start("shop.gmdb")')
    if not chosen.get("table"):
        raise InterfaceError(f'say which table of {chosen["path"]} to write to: .option("table", "tbl")')
    create = _parse_truth("createTable", chosen.get("createtable", "false"))
    for name in ("stringLength", "tablespace"):
        if name.lower() in chosen and not create:
            raise InterfaceError(f"{name} is for new tables: it needs createTable=true")
    apply = _one_of("apply", chosen.get("apply", APPEND), APPLY)
    if create and apply != APPEND:
        raise InterfaceError(f"apply={apply} goes by a primary key, which createTable does not make; create the table")
    _require_apply(chosen, "orderBy", apply, UPSERT)
    _require_apply(chosen, "onExisting", apply, CHANGES)
    return WriteOptions(
        path,
        chosen["table"],
        create,
        _length(chosen.get("stringlength", str(VARCHAR_MAX))),
        chosen.get("tablespace", "main"),
        owner_of(chosen),
        apply,
        chosen.get("orderby", ""),
        _one_of("onExisting", chosen.get("onexisting", ON_EXISTING[0]), ON_EXISTING),
        chosen.get("stream", ""),
        _number("batchId", chosen["batchid"]) if chosen.get("batchid") else None,
        checkpoint,
    )


def _require_apply(chosen: Mapping[str, str], name: str, apply: str, wanted: str) -> None:
    if name.lower() in chosen and apply != wanted:
        raise InterfaceError(f"{name} is for apply={wanted}, not for apply={apply}")


def _one_of(name: str, text: str, known: tuple[str, ...]) -> str:
    if text.lower() not in known:
        raise InterfaceError(f"{name}: {text!r} is not one of {', '.join(known)}")
    return text.lower()


def _parse_truth(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InterfaceError(f"{name}: {text!r} is neither true nor false")
    return text.lower() == "true"


def _number(name: str, text: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise InterfaceError(f"{name}: {text!r} is not the number of a batch; foreachBatch hands it over")
    return int(text)


def _length(text: str) -> int | None:
    if text.lower() == LOB:
        return None
    if not text.isdecimal() or not 1 <= int(text) <= VARCHAR_MAX:
        raise InterfaceError(f'stringLength: {text!r} is neither a number of 1 to {VARCHAR_MAX} bytes nor "{LOB}"')
    return int(text)


# ---- The options of ``spark.readStream.format("gmdb")``: what they are called and what they may be.

OWN = ("since", "reader", "keep", "beforeImages", "maxRowsPerBatch", "schemaChange")  # each asks for changes
STREAM_OPTIONS = ("path", "table", "columns", "view", *OWN, "lease", "maxPartitionBytes", "owner", "token", "tlsCa")
SNAPSHOT, NOW = "snapshot", "now"
STREAM_LEASE = 3600.0  # seconds that the rows a stream begins with stay readable while no batch is read
_SCHEMA_CHANGES = ("fail", "follow")


@dataclass(frozen=True)
class ChangeOptions:
    """The options of a read, parsed; ``columns`` is empty if all are wanted."""

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
    chosen = {name.lower(): value for name, value in options.items()}
    return chosen.get("view", "").lower() == CHANGES or any(name.lower() in chosen for name in OWN)


def parse_change_options(options: Mapping[str, str]) -> ChangeOptions:
    chosen = known_options(options, STREAM_OPTIONS)
    path = database_of(chosen, 'read: .load("shop.gmdb")')
    if chosen.get("view", CHANGES).lower() != CHANGES:
        raise InterfaceError(f"view: a stream has {CHANGES}, not {chosen['view']!r}; read that view with spark.read")
    if not chosen.get("table"):
        raise InterfaceError(f'say of which table of {chosen["path"]} to read the changes: .option("table", "tbl")')
    schema_change = chosen.get("schemachange", "fail").lower()
    if schema_change not in _SCHEMA_CHANGES:
        raise InterfaceError(f"schemaChange: {schema_change!r} is not one of {', '.join(_SCHEMA_CHANGES)}")
    size = chosen.get("maxpartitionbytes")
    return ChangeOptions(
        path,
        chosen["table"],
        parse_names(chosen["columns"]) if "columns" in chosen else (),
        _since(chosen.get("since", SNAPSHOT)),
        require_reader_name(chosen["reader"]) if chosen.get("reader") else "",
        require_keep(parse_size(chosen["keep"], "keep")) if "keep" in chosen else KEEP,
        _flag("beforeImages", chosen.get("beforeimages", "false")),
        _rows(chosen["maxrowsperbatch"]) if "maxrowsperbatch" in chosen else None,
        schema_change == "follow",
        parse_lease(chosen["lease"]) if "lease" in chosen else STREAM_LEASE,
        None if size is None else parse_size(size),
        owner_of(chosen),
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
        raise InterfaceError(f"maxRowsPerBatch: {text!r} is not a number of rows")
    return int(text)
