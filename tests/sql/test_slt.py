"""The .slt files, each on a database of its own, and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.postgres import Connection, available, server

from tests.integrity import problems
from tests.sql.slt import Player, play_file
from tests.sql.slt_postgres import PostgresPlayer

FILES = sorted((Path(__file__).parent / "slt").glob("*.slt"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_statements_do_what_the_file_says(tmp_path: Path, file: Path) -> None:
    assert play_file(Player(tmp_path / "d.gmdb"), file) > 0
    assert problems(tmp_path / "d.gmdb") == []


@pytest.fixture(scope="module")
def postgres() -> Iterator[Connection]:
    with server() as connection:
        yield connection


@pytest.mark.skipif(not available(), reason="needs PostgreSQL's programs")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_postgresql_does_what_the_file_says(postgres: Connection, file: Path) -> None:
    assert play_file(PostgresPlayer(postgres), file) > 0
