"""What a task does for the worker that it runs in, which is used again for others."""

from __future__ import annotations

import gc

from pyspark import TaskContext

_is_settled = False


def settle() -> None:
    """Take what was imported out of the garbage collector's sight.

    After each task Spark has a worker's garbage collected; looking through numba's objects takes 40 ms each time.
    """
    global _is_settled
    if not _is_settled and TaskContext.get() is not None:
        _is_settled = True
        gc.collect()
        gc.freeze()
