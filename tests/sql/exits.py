"""Runs programs to their ends, each in a forked child that leaves as a script does, with all that Python and C++ do.

To import gmdb once for all of them saves most of their time.  This process runs no query, so it has nothing of
DuckDB's that children would inherit.  Programs come on standard input, what became of them goes to standard output.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from pathlib import Path

import duckdb  # noqa: F401  (loaded, and not used)
import pandas as pd  # noqa: F401

import gmdb
import gmdb.server.link
import gmdb.sql.duck.execution

SECONDS = 60


def run(program: str) -> tuple[int, str, str]:
    """A program's exit code, and what it wrote to both outputs."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        pid = os.fork()
        if pid == 0:
            signal.alarm(SECONDS)
            os.dup2(out.fileno(), 1)
            os.dup2(errors.fileno(), 2)
            exec(compile(program, "<program>", "exec"), vars(sys.modules["__main__"]))
            sys.exit()
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        for file in (out, errors):
            file.seek(0)
        return code, out.read(), errors.read()


if __name__ == "__main__":
    request = json.load(sys.stdin)
    with gmdb.connect(Path(request["folder"]) / "warm.gmdb") as db:
        db.execute("create table t (i int)")
        db.execute("insert into t values (1)")
        db.commit()
        db.arrow("t").read_all()  # and have the kernels for it loaded
    del db
    outcomes = {name: run(program) for name, program in request["programs"].items()}
    json.dump(outcomes, sys.stdout)
