"""How much memory a load and a scan take, apart from how many rows there are.

A process of its own loads rows from a generator and scans them batch by batch; meanwhile its anonymous memory is
sampled.  Pages of mapped files do not count: they are the page cache, which the system takes back at will.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import gmdb
from bench.tables import narrow_table

BATCH_ROWS = 100_000
DEFAULT_ROWS = 20_000_000
_SAMPLE_SECONDS = 0.002


@dataclass(frozen=True)
class MemoryUse:
    """Peaks of anonymous memory, over what the process had before, in MiB."""

    rows: int
    before: float
    load_growth: float
    scan_growth: float


class Peak:
    """The most that ``look`` answered while the block ran; it is asked again and again, and at both ends."""

    def __init__(self, look: Callable[[], float], seconds: float = _SAMPLE_SECONDS) -> None:
        self._look = look
        self._seconds = seconds

    def __enter__(self) -> Peak:
        self.peak = self._look()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self.peak = max(self.peak, self._look())

    def _sample(self) -> None:
        while not self._stop.wait(self._seconds):
            self.peak = max(self.peak, self._look())


def anonymous_memory() -> float:
    """This process's private memory that no file backs, in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise OSError("the kernel does not report RssAnon")


def generated_batches(row_count: int) -> Iterator[pa.RecordBatch]:
    """The narrow table, in batches that differ in ``i`` only."""
    texts = narrow_table(BATCH_ROWS).data["s"].combine_chunks()
    for first in range(0, row_count, BATCH_ROWS):
        count = min(BATCH_ROWS, row_count - first)
        numbers = pa.array(np.arange(first, first + count, dtype=np.int32))
        yield pa.record_batch([numbers, texts[:count]], ["i", "s"])


def load(path: Path, row_count: int) -> None:
    with gmdb.connect(path) as db:
        db.create_table("narrow", {c.name: c.gmdb_type for c in narrow_table(0).columns})
        db.append("narrow", generated_batches(row_count))


def scan(path: Path) -> tuple[int, int]:
    """Read all rows, keeping none; answers their number and the sum of ``i``."""
    rows, total = 0, 0
    with gmdb.connect(path, read_only=True) as db:
        for batch in db.arrow("narrow"):
            rows += batch.num_rows
            total += pc.sum(batch["i"]).as_py()
    return rows, total


def measure_here(row_count: int) -> MemoryUse:
    """Load and scan in this process."""
    with tempfile.TemporaryDirectory(prefix="gmdb-bench-") as directory:
        load(Path(directory) / "warm.gmdb", 10 * BATCH_ROWS)  # the kernels' own code and the threads' first memory
        scan(Path(directory) / "warm.gmdb")
        before = anonymous_memory()
        path = Path(directory) / "memory.gmdb"
        with Peak(anonymous_memory) as loading:
            load(path, row_count)
        with Peak(anonymous_memory) as scanning:
            rows, total = scan(path)
    assert (rows, total) == (row_count, row_count * (row_count - 1) // 2)
    return MemoryUse(row_count, before, loading.peak - before, scanning.peak - before)


def measure(row_count: int) -> MemoryUse:
    """Load and scan in a process of their own."""
    command = [sys.executable, "-m", "bench.memory", str(row_count)]
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    return MemoryUse(**json.loads(done.stdout))


def memory_table(uses: list[MemoryUse]) -> str:
    lines = ["| rows | before, MiB | load adds | scan adds |", "|---:|---:|---:|---:|"]
    lines += [f"| {u.rows:,} | {u.before:.0f} | {u.load_growth:.1f} | {u.scan_growth:.1f} |" for u in uses]
    return "\n".join(lines)


if __name__ == "__main__":
    print(json.dumps(asdict(measure_here(int(sys.argv[1])))))
