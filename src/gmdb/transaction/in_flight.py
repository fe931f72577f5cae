"""What the pages hold at an instant that a snapshot of it does not see: the work of transactions under way."""

from __future__ import annotations

import numpy as np

from gmdb.storage.lock_file import pack_locks
from gmdb.transaction.memory import TransactionMemory


def locks_in_flight(memory: TransactionMemory, scn: int) -> bytes:
    """The locks and bulk loads of transactions that have not committed up to ``scn``.  The guard is held."""
    locks = memory.locks[: memory.get("lock_high")]
    loads = memory.loads[: memory.get("load_count")]
    ids = np.flatnonzero(locks["action"])
    ids = ids[_is_unseen(memory, locks["transaction"][ids], scn)]
    entered = loads[loads["number"] != 0]
    return pack_locks(ids, locks[ids], entered[_is_unseen(memory, entered["transaction"], scn)])


def _is_unseen(memory: TransactionMemory, slots: np.ndarray, scn: int) -> np.ndarray:
    committed = memory.transactions["scn"][slots]
    return (committed <= 0) | (committed > scn)
