"""What a kernel returns when it has no result: negative numbers, which Python turns into exceptions or acts on."""

DONE = 0
NEED_SPACE = -1  # no page is free below the end of any device: grow one and call again
DAMAGED = -2  # a page failed its first check; its id is in the global area
NOT_FOUND = -3  # no such page, slot or row
DELETED = -4  # the row is deleted
NO_ROOM = -5  # the page has too few free bytes
TOO_LONG = -6  # a value has more bytes than its column allows
ROW_TOO_LARGE = -7  # a row has more bytes than an empty page takes
LOCKED = -8  # another transaction holds the row: wait for it
CHANGED = -9  # another transaction committed a change of the row after the snapshot was taken
LOCKS_FULL = -10  # no lock id is free
UNDO_FULL = -11  # the undo space is used up
INVISIBLE = -12  # the snapshot sees no version of the row
BUSY = -13  # pages change while they are read: take the guard and call again
LOG_FULL = -14  # the log buffer has no room for another group: write it out and call again
KEY_TOO_LONG = -15  # an index key has more bytes than an entry may have
RECORDS_FULL = -18  # the list of the transaction's undo records is full: make it longer and call again
HASHES_CLASH = -17  # versions of one row have several long keys with the same hash
DUPLICATE = -16  # a unique index has the key already
ABSENT = -21  # the index has no entry of a row like this
NOT_NOW = -20  # the operation cannot be done in one call: do it step by step
NOT_PLAIN = -19  # a value is not one that kernels take from Python, or make: format/codec.py does it
