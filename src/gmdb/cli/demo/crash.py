"""A chapter about a process that dies: what it had committed is there, what it had not is gone."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

from gmdb.cli.demo.steps import NOTES, Story

ENOUGH = 200  # commits that are acknowledged before the kill


def kill_and_recover(story: Story) -> None:
    import gmdb

    with gmdb.connect(story.database) as db:
        db.create_table(NOTES, {"n": "INT NOT NULL", "state": "VARCHAR(10)"})
    with story.step("commit in another process, and kill it") as notes:
        acknowledged = _run_and_kill(story.database)
        notes.append(f"{acknowledged} commits were acknowledged, one transaction was open")
    logging.getLogger("gmdb").addHandler(logging.NullHandler())  # what it would log is told here
    with story.step("open the database again") as notes, gmdb.connect(story.database) as db:
        found = db.recovery
        if found is not None:
            notes.append(f"{found.redo_bytes:,} bytes of redo replayed, {found.rolled_back} rolled back")
        states = [values[1] for _, values in db.heap(NOTES).rows()]
    story.expect("acknowledged commits that the crash lost", 0, max(acknowledged - states.count("committed"), 0))
    story.expect("rows of the transaction that was open", 0, states.count("open"))


def _run_and_kill(database: Path) -> int:
    """How many commits the process had told of when it was killed."""
    command = [sys.executable, "-P", "-m", "gmdb.cli.demo.victim", str(database)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None
        told = [victim.stdout.readline() for _ in range(ENOUGH)]
        os.kill(victim.pid, signal.SIGKILL)
        told += victim.stdout.readlines()
    return sum(1 for line in told if line.endswith("\n"))
