"""Operations that are one kernel call: whether that may be done, right away, without a look at anything in Python.

Such a kernel has a gate (runtime/python_api.py): it runs while nobody else uses the session or holds the guard.  If
it may not do its work it returns NOT_NOW, and has done nothing; the operation is then done step by step.  Within
PageStore.under_guard there is no gate, for the locks are held.
"""

from __future__ import annotations

from gmdb.kernel.page.area import state_of
from gmdb.kernel.runtime.call import call_at
from gmdb.kernel.runtime.compiler import routine


@routine
def may_change(area, target, gate):
    """Whether a row can be changed: by this definition of the table, in a transaction that is open.

    Not while others wait: they come first.
    """
    call = call_at(target.call)
    return call.plain and target.held == call.stamp and not state_of(area).has_queues and _is_idle(area, gate)


@routine
def may_read(area, target, gate):
    """Whether rows can be read: by this definition of the table, and by the newest commit."""
    call = call_at(target.call)
    return call.latest and target.seen == call.stamp and _is_idle(area, gate)


@routine
def note_read(area, call):
    """What ``is_as_read`` compares with."""
    state = state_of(area)
    call.read_lsn, call.read_scn = state.log_start + state.log_end, state.scn


@routine
def is_as_read(area, call):
    """Whether nobody has changed or committed anything since rows were read: the guard need not be held meanwhile."""
    state = state_of(area)
    is_same = call.read_lsn == state.log_start + state.log_end and call.read_scn == state.scn
    return state.log_buffer != 0 and is_same


@routine
def _is_idle(area, gate):
    state = state_of(area)
    return not state.is_closed and not (gate and state.is_working)


@routine
def begin_work(area, gate):
    """From here on objects are made, for which finalizers may run: none of these may use the database."""
    if gate:
        state_of(area).is_working = 1


@routine
def end_work(area, gate):
    if gate:
        state_of(area).is_working = 0
