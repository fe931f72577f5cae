"""Random statements: whatever is asked, gmdb answers or refuses it with an error of its own, and stays sound."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import Any

import gmdb
from tests.integrity import problems
from tests.searches import extent
from tests.sql.random_statements import COLUMNS, FILLING, TABLES, Statements
from tests.sql.slt import contents

SEED = int(os.environ.get("GMDB_FUZZ_SEED", "1"))
# Ten thousand and more, with new seeds: python -m tests.crash.soak statements
COUNT = int(os.environ.get("GMDB_FUZZ", extent(1000, 2500)))
LOOKED_AT = 10  # every so many refused statements it is looked whether they have changed anything
ROWS_MAX = 2000  # of a table
TRANSACTION = 25  # statements


def fuzz(path: Path, seed: int, count: int) -> dict[str, int]:
    """Run random statements; answers how many were done, and how many refused with which error."""
    statements = Statements(Random(seed))
    random = Random(f"{seed} transactions")
    outcomes: dict[str, int] = {}
    with gmdb.connect(path, lock_timeout=1) as db:
        stand_up(db)
        db.execute("create table alive (i int)")
        db.commit()
        for number in range(count):
            text, parameters = statements.statement()
            before = contents(db) if number % LOOKED_AT == 0 else None
            outcome = run(db, text, parameters)
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
            if before is not None and outcome != "done":
                assert contents(db) == before, f"refused, but it has changed something: {text!r}"
            if number % TRANSACTION == 0:
                end_transaction(db, random)
        db.rollback()
        assert db.execute("select count(*) from alive").fetchall() == [(0,)]
    assert problems(path) == []
    return outcomes


def stand_up(db: Any) -> None:
    """The tables that statements are about, anew."""
    db.rollback()
    for name in db.tables():
        if name != "alive":
            db.drop_table(name)
    for text in (*TABLES, *FILLING):
        db.execute(text)
    db.commit()


def run(db: Any, text: str, parameters: Any) -> str:
    try:
        cursor = db.execute(text, parameters)
        if cursor.description is not None:
            cursor.fetchmany(1000)
        cursor.close()
    except gmdb.Error as error:
        return type(error).__name__
    except BaseException as error:
        raise AssertionError(f"{type(error).__name__} of {text[:500]!r} with {parameters!r:.200}: {error}") from error
    return "done"


def end_transaction(db: Any, random: Random) -> None:
    """The transaction must be alive; usually it is taken back, so that the tables keep some rows."""
    db.autocommit = False  # which some statement may have turned on
    db.execute("savepoint alive")
    db.execute("insert into alive values (1)")
    db.execute("rollback to alive")
    if random.random() < 0.2:
        db.commit()
    else:
        db.rollback()
    if any(name not in db.tables() or db.table(name).columns[0].name != "i" for name in COLUMNS):
        stand_up(db)
    elif any(db.execute(f"select count(*) from {name}").fetchall() > [(ROWS_MAX,)] for name in COLUMNS):
        stand_up(db)  # what inserts itself into itself grows and grows


def test_random_statements_are_answered_or_refused(tmp_path: Path) -> None:
    outcomes = fuzz(tmp_path / "d.gmdb", SEED, COUNT)
    assert sum(outcomes.values()) == COUNT
    assert outcomes["done"] > COUNT / 20, outcomes
    assert "InternalError" not in outcomes, outcomes
