"""The memory behind the lock area and the transaction table, entered into the global area.

Both are as large as they may ever get, but only what is used takes real memory.
Transaction numbers are never used again; slots of the table are, once nothing refers to them.
"""

from __future__ import annotations

import numpy as np

from gmdb.errors import LocksExhausted
from gmdb.format.address import NO_PAGE
from gmdb.format.row import NO_LOCK
from gmdb.kernel.area import STATE
from gmdb.kernel.locks import ACTIVE, LOAD, LOCK, LOCKS_MAX, ROLLED_BACK, TRANSACTION, TRANSACTIONS_MAX
from gmdb.kernel.visibility import ROW_BUFFER
from gmdb.storage.store import PageStore

LOADS_MAX = 1 << 12
UNDO_PAGES_MAX = 1 << 20


class TransactionMemory:
    def __init__(self, store: PageStore) -> None:
        self.locks = np.zeros(LOCKS_MAX, LOCK)
        self.transactions = np.zeros(TRANSACTIONS_MAX, TRANSACTION)
        self.loads = np.zeros(LOADS_MAX, LOAD)
        self._scratch = np.zeros(2 * ROW_BUFFER, np.uint8)
        self._free_slots: list[int] = []
        self._slot_high = 0
        self.next_number = store.control["next_transaction"]
        self.state = store.state
        self._fields = {name: STATE.fields[name][1] // 8 for name in STATE.names or ()}  # type: ignore[index]
        self.set("scn", 1)
        self.set("oldest", 1)
        self.set("locks", self.locks.ctypes.data)
        self.set("lock_free", NO_LOCK)
        self.set("lock_limit", NO_LOCK)
        self.set("transactions", self.transactions.ctypes.data)
        self.set("loads", self.loads.ctypes.data)
        self.set("undo_page", NO_PAGE)
        self.set("undo_limit", UNDO_PAGES_MAX)
        self.set("scratch", self._scratch.ctypes.data)

    def get(self, field: str) -> int:
        return self.state[self._fields[field]]

    def set(self, field: str, value: int) -> None:
        self.state[self._fields[field]] = value

    @property
    def scn(self) -> int:
        """The newest commit."""
        return self.state[self._fields["scn"]]

    # ---- transactions

    def begin(self) -> int:
        """A slot for a transaction that starts now."""
        slot = self._free_slots.pop() if self._free_slots else self._slot_high
        if slot == self._slot_high:
            self._slot_high += 1
        entry = self.transactions[slot]
        entry["number"] = self.next_number
        entry["scn"] = ACTIVE
        entry["locks"] = 0
        self.next_number += 1
        return slot

    def commit(self, slot: int) -> int:
        """Make the transaction's changes everyone's; answers its SCN.  Costs the same however many they are."""
        scn = self.scn + 1
        self.transactions[slot]["scn"] = scn
        self.set("scn", scn)
        return scn

    def mark_rolled_back(self, slot: int) -> None:
        self.transactions[slot]["scn"] = ROLLED_BACK

    def number(self, slot: int) -> int:
        return int(self.transactions[slot]["number"])

    def free(self, slot: int) -> None:
        """Nothing refers to the transaction any more."""
        assert self.transactions[slot]["locks"] == 0
        self._free_slots.append(slot)

    # ---- bulk loads

    def enter_load(self, slot: int, statement: int) -> int:
        """Make a transaction's bulk load known; answers the number that its pages carry.

        That is the transaction's; a further load of the same transaction has one of its own, for its statement.
        """
        number = self.number(slot)
        used = self.get("load_count")
        if number in self.loads["number"][:used]:
            number = self.next_number
            self.next_number += 1
        free = np.flatnonzero(self.loads["number"][:used] == 0)
        at = int(free[0]) if len(free) else used
        if at == LOADS_MAX:
            raise LocksExhausted(f"{LOADS_MAX} bulk appends are not yet seen by everyone; commit, or end long reads")
        self.loads[at]["transaction"] = slot
        self.loads[at]["statement"] = statement
        self.loads[at]["number"] = number
        self.set("load_count", max(used, at + 1))
        return number

    def forget_load(self, slot: int) -> None:
        """Everyone sees the transaction's bulk loads, or nobody ever will."""
        entries = self.loads[: self.get("load_count")]
        entries["number"][entries["transaction"] == slot] = 0
