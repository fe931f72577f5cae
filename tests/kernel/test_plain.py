"""Kernels that run as plain Python write what the compiled ones read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import gmdb
from tests.model.histories import check_indexes

SCRIPT = """
import sys
import gmdb
with gmdb.connect(sys.argv[1]) as db:
    db.create_table("t", {"k": "BIGINT", "d": "DOUBLE", "s": "VARCHAR(900)"})
    db.create_index("hashed", "t", ["k", "s", "d"], using="hash")
    db.create_index("sorted", "t", ["d", "s", "k"], unique=True)
    for n in range(40):
        db.insert("t", ((-1) ** n << n, -n / 7, "x" * 20 * n))
    db.commit()
    db.delete("t", lambda row: row["d"] < -4)
"""


def test_a_database_made_by_plain_python_is_read_by_compiled_kernels(path: Path) -> None:
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    subprocess.run([sys.executable, "-c", SCRIPT, str(path)], env=environment, check=True, timeout=300)
    with gmdb.connect(path) as db:
        heap = db.heap("t")
        check_indexes(db, "t")
        for row_id, (k, d, s) in list(heap.rows()):
            assert heap.by("hashed").find((k, s, d)) == [(row_id, (k, d, s))]
            assert heap.by("sorted").find((d, s, k)) == [(row_id, (k, d, s))]
