"""The memory behind the lock area and the transaction table, entered into the global area.

Both are as large as they may ever get, but only what is used takes real memory.
Transaction numbers are never used again; slots of the table are, once nothing refers to them.
"""

from __future__ import annotations

from gmdb.errors import Corruption, LocksExhausted
from gmdb.format.address import device_of, offset_of
from gmdb.format.page import PAGE_HEAD
from gmdb.format.row import NO_LOCK
from gmdb.format.transactions import TRANSACTION_ENTRY, committed, entries_per_page
from gmdb.kernel.indexes.index_head import SCRATCH_SIZE
from gmdb.kernel.locks import (
    ACTIVE,
    LOAD,
    LOCK,
    LOCK_SIZE,
    LOCKS_MAX,
    ROLLED_BACK,
    TABLE_PAGES_MAX,
    TRANSACTION,
    TRANSACTIONS_MAX,
)
from gmdb.kernel.page.area import STATE
from gmdb.kernel.read.visibility import ROW_BUFFER
from gmdb.kernel.undo import POOL_MAX
from gmdb.process.late_imports import numpy as np
from gmdb.storage.memory import address_of, untouched, zeros
from gmdb.storage.store import UNDO_PAGE_SIZE, PageStore

LOADS_MAX = 1 << 12
UNDO_PAGES_MAX = 1 << 20


_ENTRY_WORDS = TRANSACTION.itemsize // 8
_NUMBER, _SCN, _LOCKS = (TRANSACTION.offset(name) // 8 for name in ("number", "scn", "locks"))


class TransactionMemory:
    def __init__(self, store: PageStore) -> None:
        self._locks = untouched(LOCKS_MAX * LOCK_SIZE)
        self._transactions = untouched(TRANSACTIONS_MAX * _ENTRY_WORDS, "q")
        self._loads = zeros(LOADS_MAX * LOAD.itemsize)
        self._scratch = zeros(3 * ROW_BUFFER)
        self._free_slots: list[int] = []
        self._slot_high = 0
        self._index_scratch = zeros(SCRATCH_SIZE)
        self._undo_pool = zeros(POOL_MAX, "I")
        self._table_pages = zeros(TABLE_PAGES_MAX, "I")
        self.next_number = store.control["next_transaction"]
        self._store = store
        self.state = store.state
        self._fields = {name: STATE.offset(name) // 8 for name in STATE.names}
        self.start_at(store.control["scn"])
        self.set("locks", address_of(self._locks))
        self.set("lock_free", NO_LOCK)
        self.set("lock_limit", NO_LOCK)
        self.set("transactions", address_of(self._transactions))
        self.set("loads", address_of(self._loads))
        self.set("undo_pool", address_of(self._undo_pool))
        self.set("undo_limit", UNDO_PAGES_MAX)
        self.set("table_pages", address_of(self._table_pages))
        self.set("scratch", address_of(self._scratch))
        self.set("index_scratch", address_of(self._index_scratch))

    # ---- what kernels see of transactions, as NumPy has it

    @property
    def locks(self) -> np.ndarray:
        return np.frombuffer(self._locks, LOCK)

    @property
    def transactions(self) -> np.ndarray:
        return np.frombuffer(self._transactions, TRANSACTION)

    @property
    def loads(self) -> np.ndarray:
        return np.frombuffer(self._loads, LOAD)

    # ---- the state of the global area

    def get(self, field: str) -> int:
        return self.state[self._fields[field]]

    def set(self, field: str, value: int) -> None:
        self.state[self._fields[field]] = value

    @property
    def scn(self) -> int:
        """The newest commit."""
        return self.state[self._fields["scn"]]

    def counters(self) -> dict[str, int]:
        """Numbers that were not given out yet begin here; a commit may have its own before others see it."""
        return {"next_transaction": self.next_number, "scn": self.get("next_scn") - 1}

    def start_at(self, scn: int) -> None:
        """Begin with the commits up to ``scn``, which everyone sees."""
        self.set("scn", scn)
        self.set("oldest", scn)
        self.set("next_scn", scn + 1)

    # ---- the table of committed transactions

    def use_table(self, page_ids: memoryview) -> None:
        """The pages that the table has."""
        if len(page_ids) > TABLE_PAGES_MAX:
            raise Corruption(f"the table of transactions cannot have {len(page_ids)} pages")
        self._table_pages[: len(page_ids)] = page_ids
        self.set("table_page_count", len(page_ids))

    def table_page_ids(self) -> list[int]:
        return self._table_pages[: self.get("table_page_count")].tolist()

    def table_slots_used(self) -> list[int]:
        used = []
        for n, page_id in enumerate(self.table_page_ids()):
            page = self._store.devices[device_of(page_id)].memory(offset_of(page_id))
            first = n * entries_per_page(UNDO_PAGE_SIZE)
            used += [first + (at - PAGE_HEAD.size) // TRANSACTION_ENTRY.size for at, _, _ in committed(page)]
        return used

    # ---- transactions

    def begin(self) -> int:
        """A slot for a transaction that starts now."""
        slot = self._free_slots.pop() if self._free_slots else self._slot_high
        if slot == self._slot_high:
            self._slot_high += 1
        entry = slot * _ENTRY_WORDS
        self._transactions[entry + _NUMBER] = self.next_number
        self._transactions[entry + _SCN] = ACTIVE
        self._transactions[entry + _LOCKS] = 0
        self.next_number += 1
        return slot

    def publish(self, slot: int, scn: int) -> None:
        """Make the transaction's changes visible to all, at a cost that does not depend on their number."""
        self._transactions[slot * _ENTRY_WORDS + _SCN] = scn
        self.set("scn", scn)

    def mark_rolled_back(self, slot: int) -> None:
        self._transactions[slot * _ENTRY_WORDS + _SCN] = ROLLED_BACK

    def number(self, slot: int) -> int:
        return self._transactions[slot * _ENTRY_WORDS + _NUMBER]

    def free(self, slot: int) -> None:
        """Reuse a transaction's slot, to which nothing refers any more; not if a damaged page kept one of its locks."""
        if self._transactions[slot * _ENTRY_WORDS + _LOCKS] == 0:
            self._free_slots.append(slot)

    # ---- bulk loads

    def enter_load(self, slot: int, statement: int) -> int:
        """Enter a transaction's bulk load; returns the number that its pages carry.

        That is the transaction's number; a further load of the same transaction gets a number of its own.
        """
        number = self.number(slot)
        used, loads = self.get("load_count"), self.loads
        if number in loads["number"][:used]:
            number = self.next_number
            self.next_number += 1
        free = np.flatnonzero(loads["number"][:used] == 0)
        at = int(free[0]) if len(free) else used
        if at == LOADS_MAX:
            raise LocksExhausted(f"{LOADS_MAX} bulk appends are not yet seen by everyone; commit, or end long reads")
        loads[at]["transaction"] = slot
        loads[at]["statement"] = statement
        loads[at]["number"] = number
        self.set("load_count", max(used, at + 1))
        return number

    def forget_load(self, slot: int) -> None:
        """Remove the transaction's bulk loads: everyone sees them, or nobody ever will."""
        count = self.get("load_count")
        if count:
            entries = self.loads[:count]
            entries["number"][entries["transaction"] == slot] = 0
            used = np.flatnonzero(entries["number"])
            self.set("load_count", int(used[-1]) + 1 if len(used) else 0)


# ---- What the pages hold at an instant that a snapshot of it does not see: the work of transactions under way.


def locks_in_flight(memory: TransactionMemory, scn: int) -> bytes:
    """The locks and bulk loads of transactions that have not committed up to ``scn``.  The guard is held."""
    from gmdb.storage.pinned_pages import pack_locks

    locks = memory.locks[: memory.get("lock_high")]
    loads = memory.loads[: memory.get("load_count")]
    ids = np.flatnonzero(locks["action"])
    ids = ids[_is_unseen(memory, locks["transaction"][ids], scn)]
    entered = loads[loads["number"] != 0]
    return pack_locks(ids, locks[ids], entered[_is_unseen(memory, entered["transaction"], scn)])


def _is_unseen(memory: TransactionMemory, slots: np.ndarray, scn: int) -> np.ndarray:
    committed = memory.transactions["scn"][slots]
    return (committed <= 0) | (committed > scn)
