"""What a database takes of memory goes when it is closed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

OPENINGS = """
import sys, gmdb

def memory_bytes():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

for number in range(60):
    with gmdb.connect(sys.argv[1]) as db:
        db.execute(f"create table t{number} (i int primary key)" if number < 3 else "select * from t1 where i = 1")
    if number == 9:
        before = memory_bytes()
print(memory_bytes() - before)
"""


def test_a_process_that_opens_databases_again_and_again_needs_no_more_memory(tmp_path: Path) -> None:
    """A device has arrays of some megabytes, of which hardly anything is used."""
    ended = subprocess.run(
        [sys.executable, "-c", OPENINGS, str(tmp_path / "shop.gmdb")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(ended.stdout) < 64 << 20, f"{int(ended.stdout) >> 20} MiB more after 50 openings"
