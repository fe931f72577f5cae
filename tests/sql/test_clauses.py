"""A clause that gmdb does not know is refused, and one that it knows means what PostgreSQL says."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from bench.postgres import available, server

import gmdb
from tests.searches import extent
from tests.sql.clauses import BASES, Base, Mutation, Trial, search

SEED = int(os.environ.get("GMDB_CLAUSES_SEED", "1"))
# Any number, with new seeds: python -m tests.sql.clauses
COUNT = int(os.environ.get("GMDB_CLAUSES", extent(800, 5000)))
pytestmark = pytest.mark.skipif(not available(), reason="needs PostgreSQL's programs")


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    with server() as postgres, gmdb.connect(tmp_path_factory.mktemp("clauses") / "d.gmdb") as db:
        yield Trial(db, postgres)


@pytest.mark.parametrize("base", BASES, ids=lambda base: base.text[:60])
def test_a_statement_does_what_postgresql_does(trial: Trial, base: Base) -> None:
    assert trial.verdict(Mutation(base, base.text, base.text)) == ("same", "")


@pytest.mark.search
def test_a_clause_too_many_is_refused_or_means_what_postgresql_says(trial: Trial) -> None:
    found: list[str] = []

    def tell(verdict: str, text: str, told: str) -> bool:
        found.append(f"{verdict}: {text}\n  {told}")
        return len(found) < 10

    verdicts = search(trial, SEED, COUNT, tell)
    assert not found, "\n".join(found)
    assert verdicts["refused"] > COUNT / 2, verdicts
    assert verdicts["same"] > COUNT / 50, verdicts
