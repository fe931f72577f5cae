"""A process that does not see the directory, as a worker on another machine, is told so: nothing has expired."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import gmdb
from gmdb.errors import NotADatabase, SnapshotExpired
from gmdb.storage.pinned_pages import FrozenStore
from gmdb.storage.pins import read_pin, renew

ADVICE = "every worker must see the database's directory under the path that the driver has for it"


@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize("there", ["nothing", "an empty directory", "another database"])
def test_a_snapshot_of_a_database_that_is_not_seen(path: Path, there: str, is_kept: bool) -> None:
    with gmdb.connect(path) as db:
        pin = replace(db.take_snapshot(), is_kept=is_kept)
    path.rename(path.with_name("elsewhere"))
    if there == "an empty directory":
        path.mkdir()
    elif there == "another database":
        gmdb.connect(path).close()
    with pytest.raises(NotADatabase, match=ADVICE):
        FrozenStore(path, pin)
    asked: list[Callable[[], object]] = [lambda: read_pin(path, pin.name), lambda: renew(path, pin.name)]
    for ask in asked:
        with pytest.raises(SnapshotExpired if there == "another database" else NotADatabase):
            ask()


def test_a_snapshot_that_is_gone_has_expired(path: Path) -> None:
    with gmdb.connect(path) as db:
        pin = db.take_snapshot()
        db.drop_snapshot(pin.name)
        with pytest.raises(SnapshotExpired, match="load again"):
            FrozenStore(path, pin)
