"""The process that the demo kills: it commits again and again, and prints each commit; another transaction is open."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import gmdb
from gmdb.cli.demo.steps import NOTES


def commit_until_killed(database: Path) -> None:
    with gmdb.connect(database) as left_open, gmdb.connect(database) as db:
        left_open.heap(NOTES).insert((-1, "open"))
        number = 0
        while True:
            db.heap(NOTES).insert((number, "committed"))
            db.commit()
            number += 1
            os.write(1, f"{number}\n".encode())  # in one write, after the commit is on disk


if __name__ == "__main__":
    commit_until_killed(Path(sys.argv[1]))
