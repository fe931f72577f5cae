"""Building an index comes to an end, in bounded memory, whatever the table is like; and sooner if it is interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import gmdb
from gmdb.errors import StatementInterrupted
from gmdb.kernel.runtime.status import DONE
from gmdb.tables.access import sorted_runs
from tests.integrity import assert_sound

CASES = int(os.environ.get("GMDB_BUILDS", "8"))
SEED = int(os.environ.get("GMDB_BUILDS_SEED", "1"))


def test_builds_over_tables_of_every_shape() -> None:
    """In processes of their own: one that does not end is ended."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.access.builds", str(CASES), str(SEED)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-6000:] + ended.stderr[-4000:]


@pytest.mark.parametrize("autocommit", [False, True])
@pytest.mark.parametrize("how", ["interrupt", "signal"])
def test_a_build_that_takes_long_can_be_interrupted(
    tmp_path: Path, how: str, autocommit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its threads end, too: here none of them would by itself, for extraction gets nowhere."""
    with gmdb.connect(tmp_path / "db", autocommit=autocommit) as db:
        db.execute("create table t (i int)")
        for n in range(3000):
            db.execute("insert into t values (?)", (n,))
        if not autocommit:
            db.commit()
        main = threading.main_thread().ident or 0
        once = _once(db.interrupt if how == "interrupt" else lambda: signal.pthread_kill(main, signal.SIGINT))

        def get_nowhere(*_: int) -> int:
            once()
            return DONE

        with monkeypatch.context() as patch:
            patch.setattr(sorted_runs, "extract_entries", get_nowhere)
            with pytest.raises(StatementInterrupted if how == "interrupt" else KeyboardInterrupt):
                db.execute("create index t_i on t (i)")
        for thread in threading.enumerate():
            if thread.name.startswith("gmdb-index"):  # the signal came while it was being started
                thread.join(30)
                assert not thread.is_alive()
        db.rollback()
        db.execute("create index t_i on t (i)")
        assert db.execute("select i from t where i = 17").fetchall() == [(17,)]
        db.commit()
    assert_sound(tmp_path / "db")


def _once(call: Callable[[], object]) -> Callable[[], None]:
    """A function that calls another, the first time that one of several threads asks for it."""
    left = [call]
    lock = threading.Lock()

    def run() -> None:
        with lock:
            some = left.pop() if left else None
        if some is not None:
            some()

    return run
