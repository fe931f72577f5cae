"""What the databases in ``written_by_0_1_0.tar.xz`` have: ``python -m tests.log.written_by_0_1_0 FOLDER``, run with
gmdb 0.1.0, wrote them: ``closed`` was closed, and a process died with ``killed`` in the midst of a transaction.

Today's gmdb runs the same statements, so that a test can compare what they leave.
"""

from __future__ import annotations

import os
import sys
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gmdb
from tests.crash.harness import small_log

if TYPE_CHECKING:
    from gmdb.database.connection import Connection  # which is elsewhere in 0.1.0

DEFINITIONS = (
    "create table kinds (i int primary key, si smallint, b bigint, d double precision, r real, ok boolean, dy date,"
    " ts timestamp, n4 decimal(5,2), n8 decimal(15,3), n16 decimal(38,4), c char(5), v varchar(40), t text,"
    " bn binary(4), vb varbinary(30), bx bytea, bl blob, cl clob,"
    " constraint small check (si < 100), constraint named unique (v))",
    "create index by_r on kinds (r)",
    "create index by_d on kinds (d, dy)",
    "create index by_n on kinds (n16)",
    "create index by_c on kinds using hash (c)",
    "create table orders (id int generated always as identity primary key, who varchar(20) not null,"
    " at timestamp default now(), amount decimal(10,2) default 0.5, check (amount >= 0))",
    "alter table orders set (change_feed = true)",
    "create tablespace wide page_size 32768",
    'create table "Odd.Name" ("A b" int, "select" varchar(5)) tablespace wide',
)
CHANGES = (
    "insert into orders (who) select 'who ' || i % 7 from generate_series(1, 20) as g (i)",
    "create index by_who on orders (who)",
    "update orders set amount = id * 2 where id % 3 = 0",
    "delete from orders where id = 7",
    "alter table orders add column note varchar(10) default 'none'",
    "insert into orders (who, note) values ('late', null)",
    "insert into \"Odd.Name\" values (1, 'x')",
    "analyze",
)


def row(i: int) -> tuple[Any, ...]:
    """A row of kinds; those whose number is not small have values on pages of their own."""
    numbers = (i, i * 10, i * 10**12, i / 4, -i / 2, i % 2 == 0)
    times = (date(2020, 1, i), datetime(2021, 2, 3, 4, 5, i, 678))
    decimals = (Decimal(i) / 4, Decimal(-i) / 8, Decimal(10) ** 30 + Decimal(i) / 16)
    texts = (f"c{i}", f"name {i}", "text é" * i * 20, bytes([i]) * 4, bytes(range(i)), bytes([255 - i]) * i * 30)
    return (*numbers, *times, *decimals, *texts, bytes([i]) * (i * i * 300), f"clob {i} " * (i * i * 60))


def fill(db: Connection) -> None:
    db.autocommit = True
    for statement in DEFINITIONS:
        db.execute(statement)
    for i in range(1, 8):
        db.execute(f"insert into kinds values ({', '.join('?' * 19)})", row(i))
    db.execute("insert into kinds (i) values (8)")
    for statement in CHANGES:
        db.execute(statement)
    db.autocommit = False


def change(db: Connection) -> None:
    """A transaction that does not end."""
    db.execute("update orders set who = 'open' where id < 5")
    db.execute("delete from kinds where i < 5")
    db.execute("insert into kinds (i, cl) values (100, ?)", ("lost" * 5000,))
    db.execute("create table unborn (i int)")


def main(folder: Path) -> None:
    with small_log():
        with gmdb.connect(folder / "closed") as db:
            fill(db)
        db = gmdb.connect(folder / "killed")
        fill(db)
        change(db)
        db.checkpoint()
        db.execute("insert into unborn values (1)")
        os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
