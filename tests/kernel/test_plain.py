"""Kernels that run as plain Python do what the compiled ones do, to the byte, and each reads what the other wrote."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import gmdb
from gmdb.kernel.runtime.compiler import JIT, PLAIN, WAY
from tests.crash.faults import Journal, Write
from tests.model.histories import check_indexes
from tests.searches import IS_FULL

SEED, STEPS = 4, 100
WAYS = [WAY, *sorted({PLAIN, *([JIT] if IS_FULL else [])} - {WAY})]  # the JIT compiles all kernels: for over a minute
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
    environment = {**os.environ, "GMDB_KERNELS": "plain"}
    subprocess.run([sys.executable, "-c", SCRIPT, str(path)], env=environment, check=True, timeout=300)
    with gmdb.connect(path) as db:
        heap = db.heap("t")
        check_indexes(db, "t")
        for row_id, (k, d, s) in list(heap.rows()):
            assert heap.by("hashed").find((k, s, d)) == [(row_id, (k, d, s))]
            assert heap.by("sorted").find((d, s, k)) == [(row_id, (k, d, s))]


def difference(journal: Journal, other: Journal) -> str:
    """The first thing that two journals do not have in common; "" if they are the same."""
    for number, (one, two) in enumerate(zip(journal, other, strict=False)):
        if one == two:
            continue
        if isinstance(one, Write) and isinstance(two, Write) and (one.file, one.offset) == (two.file, two.offset):
            at = next((n for n, (a, b) in enumerate(zip(one.data, two.data, strict=False)) if a != b), None)
            where = "their lengths" if at is None else f"byte {at}: {one.data[at]:#x}, {two.data[at]:#x}"
            return f"operation {number}: two writes to {one.file} at {one.offset} differ in {where}"
        return f"operation {number}: {str(one)[:300]} or {str(two)[:300]}"
    return "" if len(journal) == len(other) else f"{len(journal)} operations or {len(other)}"


def test_compiled_and_interpreted_runs_of_one_history_ask_the_same_of_the_disk(tmp_path: Path) -> None:
    """Log, pages and control file, byte for byte; of the history, and of a recovery in the middle of it."""
    command = [sys.executable, "-m", "tests.kernel.history"]
    running = {
        way: subprocess.Popen(
            [*command, str(tmp_path / way), str(SEED), str(STEPS)],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "GMDB_KERNELS": way},
        )
        for way in WAYS
    }
    assert {process.wait(600) for process in running.values()} == {0}
    compiled, *others = (pickle.loads((tmp_path / way / "journals").read_bytes()) for way in running)
    for way, journals in zip(WAYS[1:], others, strict=True):
        for name, one, other in zip(("history", "recovery"), compiled, journals, strict=True):
            assert difference(one, other) == "", (way, name)
    written = [operation for operation in compiled[0] if isinstance(operation, Write)]
    assert {"device-0004", "device-0001", "gmdb.mirror"} <= {operation.file.partition("#")[0] for operation in written}
    assert sum(len(operation.data) for operation in written) > 1 << 20, "the history is too short to tell anything"
    assert any(isinstance(operation, Write) for operation in compiled[1]), "nothing was recovered"


def test_a_single_byte_or_operation_is_a_difference() -> None:
    one, other = Write("device", 8, b"ab"), Write("device", 8, b"ac")
    assert difference([one], [one]) == ""
    assert difference([one, one], [one, other]).endswith("two writes to device at 8 differ in byte 1: 0x62, 0x63")
    assert difference([one], [Write("device", 8, b"abc")]).endswith("differ in their lengths")
    assert difference([one], [Write("device", 9, b"ab")]).startswith("operation 0: Write(")
    assert difference([one], [one, one]) == "1 operations or 2"
