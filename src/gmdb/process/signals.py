"""Signals: where an exception that a signal handler raises may come out.

Python runs signal handlers in the main thread, between any two of its instructions; Ctrl-C raises KeyboardInterrupt
there.  In the middle of an operation, between a kernel's return and the line that takes note of it, such an exception
would leave half of a change behind.  So every operation runs with signals *held*: handlers run at once, as always,
but an exception that one of them raises is kept, the operation is interrupted, and the exception is raised where
it has ended.

Invariants
 1. While signals are held no exception of a handler is raised, except by ``check``, at places chosen for it.
 2. An exception that was kept is raised when the outermost operation ends, with or without an error.
 3. Outside of operations handlers are the program's own; if one could not be put back, because a signal came at that
    very moment, its stand-in does what the handler would do.
 4. Threads other than the main one run no handlers: for them nothing is held.

Not here: what it takes to end an operation (transaction/interrupts.py).
"""

from __future__ import annotations

import gc
import os
import signal
import threading
from _signal import getsignal  # type: ignore[import-not-found]  # without the wrapper that turns its results into enum members
from _signal import signal as set_handler
from _thread import get_ident, interrupt_main, start_new_thread
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from types import FrameType, TracebackType
from typing import Any, Generic, Protocol, TypeVar

from gmdb.errors import CursorInvalid, InterfaceError
from gmdb.process.finalizers import Closed, close_abandoned

T = TypeVar("T")
# All for which programs have handlers that raise.  Those for faults of the thread itself (SIGSEGV, …) and real-time
# signals are left out: checking each costs every operation time.
_SIGNALS = tuple(
    number
    for name in (
        "INT",
        "ALRM",
        "TERM",
        "HUP",
        "QUIT",
        "USR1",
        "USR2",
        "VTALRM",
        "PROF",
        "CHLD",
        "PIPE",
        "IO",
        "URG",
        "XCPU",
        "XFSZ",
        "TSTP",
        "TTIN",
        "TTOU",
        "CONT",
        "WINCH",
        "PWR",
    )
    if (number := int(getattr(signal, f"SIG{name}", 0)))
)


class Interruptible(Protocol):
    """Something that can be asked to end soon."""

    def interrupt(self) -> None: ...


class _State:
    """What is held, in the main thread."""

    def __init__(self) -> None:
        self.main = threading.main_thread().ident
        self.depth = 0  # operations that are running, one within the other
        self.handling = 0  # handlers that are running within an operation
        self.is_ending = False  # the outermost operation has done its work: there is nothing to interrupt
        self.is_finalizing = False  # within a finalizer, and no operation
        self.postponed: list[int] = []  # signals that have arrived meanwhile
        self.target: Interruptible | None = None  # what the outermost operation works with
        self.raised: list[BaseException] = []  # by handlers, in order
        self.helpers: list[threading.Lock] = []  # each is free once the thread that interrupts for a handler is done
        self.handlers: list[Any] = []  # the program's, by signal, as they were when an operation last began
        self.stand_ins: list[tuple[int, int, Any, _StandIn]] = []  # position and number of a signal, its handlers


class _StandIn:
    """A handler while signals are held: it runs the program's own, and keeps what that raises."""

    __slots__ = ("handler",)

    def __init__(self, handler: Callable[[int, FrameType | None], Any]) -> None:
        self.handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not _state.depth:
            self.handler(number, frame)
            return
        if _state.is_finalizing:
            _state.postponed.append(number)
            return
        _state.handling += 1
        try:
            self.handler(number, frame)
        except BaseException as error:
            _state.raised.append(error)
            if _state.target is not None and not _state.is_ending:
                _state.target.interrupt()
        finally:
            _state.handling -= 1


def in_helper_thread(interrupt: Callable[[], None]) -> None:
    """Interrupt from another thread: the one that a handler runs in may have any lock that this takes.

    The operation under way does not end before it is done, so that no later one is interrupted.
    """
    done = threading.Lock()
    done.acquire()

    def run() -> None:
        try:
            interrupt()
        finally:
            done.release()

    if _state.depth and get_ident() == _state.main:
        _state.helpers.append(done)
    start_new_thread(run, ())


def _replace_handlers() -> None:
    handlers = list(map(getsignal, _SIGNALS))
    if handlers != _state.handlers:
        _note_handlers(handlers)
    for n, _, own, _ in _state.stand_ins:
        if handlers[n] is not own:  # but equal, as two objects for one bound method are
            _note_handlers(handlers)
            break
    for _, number, _, stand_in in _state.stand_ins:
        set_handler(number, stand_in)


def _note_handlers(handlers: list[Any]) -> None:
    """No garbage is collected meanwhile: what a handler raises in a finalizer, before it is replaced, would be lost."""
    collects = gc.isenabled()
    gc.disable()
    try:
        own = [handler.handler if type(handler) is _StandIn else handler for handler in handlers]
        python = [n for n, handler in enumerate(own) if callable(handler)]
        _state.stand_ins = [(n, _SIGNALS[n], own[n], _StandIn(own[n])) for n in python]
        _state.handlers = own
    finally:
        if collects:
            gc.enable()


def _put_handlers_back() -> None:
    try:
        for _, number, handler, stand_in in _state.stand_ins:
            if getsignal(number) is stand_in:  # else it was put back, or the program has set another one meanwhile
                set_handler(number, handler)
    except BaseException:  # from a handler that was put back already
        _put_handlers_back()
        raise


class Held:
    """Signals are held within; what a handler raises meanwhile is raised at the end, and ``target`` is interrupted."""

    __slots__ = ("_target",)

    def __init__(self, target: Interruptible | None = None) -> None:
        self._target = target

    def __enter__(self) -> None:
        if get_ident() != _state.main:
            close_abandoned()
            return
        if _state.depth:
            if _state.handling:
                raise InterfaceError("a signal handler cannot use a database while an operation on one is under way")
            _state.depth += 1
            return
        _state.depth = 1
        try:
            _state.target = self._target
            _replace_handlers()
        except BaseException:
            _state.depth = 0
            _put_handlers_back()
            raise
        _close_abandoned()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if get_ident() != _state.main:
            return
        if _state.depth > 1:
            _state.depth -= 1
            return
        try:
            _state.is_ending = True
            while _state.helpers:
                _state.helpers.pop().acquire()
            _put_handlers_back()
        finally:
            _state.depth, _state.is_ending = 0, False
            raised, _state.raised = _state.raised, []
        if raised:
            try:
                raise raised[0]
            finally:
                del raised


class HeldToFinalize(Held):
    """For finalizers, where Python drops exceptions: signals are sent again when the finalizer is done."""

    __slots__ = ()

    def __enter__(self) -> None:
        super().__enter__()
        if _state.depth == 1 and get_ident() == _state.main:
            _state.is_finalizing = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        is_over = _state.is_finalizing and _state.depth == 1 and get_ident() == _state.main
        if is_over:
            _state.is_finalizing = False
        super().__exit__(kind, error, trace)
        if is_over:
            postponed, _state.postponed = _state.postponed, []
            for number in postponed:
                start_new_thread(interrupt_main, (number,))  # type: ignore[arg-type]


_state = _State()
held = Held()  # for operations that nothing interrupts, or that look by ``check``
held_to_finalize = HeldToFinalize()
os.register_at_fork(after_in_child=_state.__init__)  # type: ignore[misc]  # the thread that forked is the main one


def _close_abandoned() -> None:
    """An operation within another one does not wait: it may hold what another thread's close needs."""
    close_abandoned(patiently=_state.depth == 1 and get_ident() == _state.main)


def check() -> None:
    """Raise what a signal handler has raised since the operation began; called where the operation can end."""
    if _state.raised and get_ident() == _state.main:
        raise _state.raised.pop(0)


class HeldIterator(Generic[T]):
    """An iterator whose every step is an operation.

    A step that fails, or whose result is lost to an interrupt, is the last, so that a read with a gap is noticed.
    """

    __slots__ = ("_held", "_is_broken", "_steps")

    def __init__(self, iterator: Iterator[T], operation: Held, on_end: Callable[[], None] | None = None) -> None:
        """``on_end`` is called after the last step.

        Steps are taken by any thread, also while another one is in an operation: DuckDB and Arrow read in threads of
        their own.
        """
        self._steps: Closed[T] | None = Closed(iterator, on_end)
        self._held = operation
        self._is_broken = False

    def __iter__(self) -> HeldIterator[T]:
        return self

    def __next__(self) -> T:
        if self._is_broken:
            raise CursorInvalid("a step of this read has failed or was interrupted; read again")
        if self._steps is None:
            raise StopIteration
        self._is_broken = True
        with self._held:
            try:
                value = next(self._steps.iterator)
            except StopIteration:
                self._release()
                self._is_broken = False
                raise
            except BaseException:
                self._release()
                raise
        self._is_broken = False
        return value

    def close(self) -> None:
        """Release what the read holds."""
        with self._held:
            self._release()

    def _release(self) -> None:
        self._steps = None
        _close_abandoned()


class Flattened(chain[T]):
    """The members of the pieces of an iterator, one by one, at the cost of one step a piece."""

    pieces: Any

    @classmethod
    def of(cls, pieces: Iterator[Any]) -> Flattened[T]:
        """``pieces``: a HeldIterator, as ``operation`` makes one of a generator function."""
        flattened: Any = cls.from_iterable(pieces)
        flattened.pieces = pieces
        return flattened

    def close(self) -> None:
        """Release what the read holds."""
        self.pieces.close()


class LetThrough:
    """Within an operation: the program's own code runs, for as long as it takes; handlers may raise there."""

    __slots__ = ("_depth",)

    def __enter__(self) -> None:
        self._depth = 0
        if _state.depth and get_ident() == _state.main and not _state.handling:
            check()
            self._depth = _state.depth
            _put_handlers_back()
            _state.depth = 0

    def __exit__(self, *_: object) -> None:
        if self._depth:
            _state.depth = self._depth
            _replace_handlers()


def let_through(source: Iterable[T]) -> Iterator[T]:
    """The steps of an iterable of the program's, in each of which handlers may raise."""
    with LetThrough():
        steps = iter(source)
    while True:
        with LetThrough():
            try:
                step = next(steps)
            except StopIteration:
                return
        yield step
