"""Signals whose handlers raise, sent so that they hit a call: by a timer, by another thread, or at a given opcode.

A handler of Python's runs at certain points only: where a function begins, where a loop jumps back, and where a call
of C code returns.  ``AtOpcode`` makes a signal pending right before an opcode of a traced frame, and has the
interpreter handle it where it always does, which a trace function that raises itself would not.
"""

from __future__ import annotations

import ctypes
import dis
import faulthandler
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any

import gmdb

HUNG = 60.0  # seconds without progress after which the process is given up
_PACKAGE = Path(gmdb.__file__).parent
_TRACED = ("contextlib", "weakref", "_weakrefset", "threading")


class Deadline(Exception):
    """What a program's own handler may raise: no KeyboardInterrupt, and caught by ``except Exception``."""


@dataclass
class Attempt:
    """A call that was to be hit.  ``places``: the frames in which the last handler ran, the innermost first."""

    delivered: int  # how many times the handler ran and raised
    interrupted: bool  # and what it raised came out of the call
    error: BaseException | None  # what else came out
    result: Any
    seconds: float
    places: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        return " < ".join(self.places[:4])


class Strikes:
    """Installs a handler, runs calls under fire, and tells what came of each."""

    def __init__(self) -> None:
        self._noise: list[Any] = []
        self._active = False
        self._delivered = 0
        self._places: list[str] = []  # where it was handled last
        self._kind: type[BaseException] = KeyboardInterrupt
        self._again: Callable[[], None] | None = None
        self.handlers: dict[signal.Signals, Any] = {}
        self.handlers_were_wrong = False  # after the last operation
        self._before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM)}
        for number in (signal.SIGINT, signal.SIGALRM):
            self.use(number)
        sys.unraisablehook = self._noise.append  # no function of Python's, which could be hit, too
        threading.excepthook = self._noise.append

    def take_noise(self) -> str:
        """What would have been printed since: "Exception ignored in", and exceptions of other threads."""
        told = []
        for what in self._noise:
            place = " < ".join(places_of(what.exc_traceback)[:3])
            origin = getattr(what, "object", None) or getattr(what, "thread", "")
            told.append(f"{what.exc_type.__name__}: {what.exc_value} in {origin} at {place}")
        self._noise.clear()
        return "; ".join(told)

    def _handle(self, _signal: int, frame: FrameType | None) -> None:
        if not self._active:
            return  # it came too late
        self._delivered += 1
        self._places = list(_frames_from(frame))
        if self._again is not None:
            again, self._again = self._again, None
            again()
        raise self._kind

    def use(self, number: signal.Signals, kind: type[BaseException] = KeyboardInterrupt) -> None:
        """From now on the handler is ours for ``number`` and raises ``kind``."""
        self._kind = kind
        self.handlers[number] = self._handle
        signal.signal(number, self.handlers[number])

    def use_pythons_own(self) -> None:
        """From now on the handler of SIGINT is the one that every program has which sets none."""
        self._kind = KeyboardInterrupt
        self.handlers[signal.SIGINT] = signal.default_int_handler
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def close(self) -> None:
        """Put everything back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        sys.unraisablehook, threading.excepthook = sys.__unraisablehook__, threading.__excepthook__

    def run(
        self,
        function: Callable[[], Any],
        arm: Callable[[], None],
        disarm: Callable[[], None],
        again: Callable[[], None] | None = None,
        is_sent: Callable[[], bool] = lambda: False,
    ) -> Attempt:
        """Call something under fire; ``again`` is called by the handler, before it raises, to send another signal.

        ``is_sent`` says whether a signal was sent, for handlers that do not count.
        """
        self._delivered, self._again, self._places = 0, again, []
        error: BaseException | None = None
        result = None
        start = time.perf_counter()
        try:
            self._active = True
            arm()
            result = function()
            disarm()
            self._active = False
        except BaseException as caught:
            self._active = False
            error = caught
        seconds = time.perf_counter() - start
        disarm()
        if self.handlers[signal.SIGINT] is signal.default_int_handler:
            self._delivered += is_sent()
        places = tuple(self._places)
        if error is None:
            return Attempt(self._delivered, False, None, result, seconds, places)
        interrupted = self._delivered > 0 and type(error) is self._kind
        places = places or tuple(places_of(error.__traceback__))
        error.__traceback__ = error.__context__ = error.__cause__ = None
        return Attempt(self._delivered, interrupted, None if interrupted else error, None, seconds, places)


def places_of(trace: TracebackType | None) -> list[str]:
    """Where an exception came through, the innermost frame first."""
    found = []
    while trace is not None:
        found.append(_place_of(trace.tb_frame.f_code, trace.tb_lineno))
        trace = trace.tb_next
    return found[::-1]


def _frames_from(frame: FrameType | None) -> Iterator[str]:
    """This frame and those that have called it, up to those of this harness."""
    while frame is not None and frame.f_code.co_filename != __file__:
        yield _place_of(frame.f_code, frame.f_lineno)
        frame = frame.f_back


def _place_of(code: CodeType, line: int | None) -> str:
    return f"{os.sep.join(code.co_filename.split(os.sep)[-2:])}:{line} {code.co_name}"


# ---- ways to send them


class ByTimer:
    """A timer's SIGALRM after some seconds, and perhaps another soon after."""

    number = signal.SIGALRM

    def __init__(self, strikes: Strikes, chance: random.Random) -> None:
        self._strikes, self._chance = strikes, chance

    def run(self, function: Callable[[], Any], delay: float, twice: bool) -> Attempt:
        second = self._chance.choice((5e-6, 2e-5, 1e-4, 1e-3)) * (1 + self._chance.random())
        return self._strikes.run(
            function,
            lambda: _start_timer(max(delay, 1e-6)),
            lambda: _start_timer(0.0),
            (lambda: _start_timer(second)) if twice else None,
        )


def _start_timer(seconds: float) -> None:
    signal.setitimer(signal.ITIMER_REAL, seconds)


class ByThread:
    """Another thread that sends SIGINT to the main one: so many calls of ``sleep(0)`` later, or seconds."""

    number = signal.SIGINT

    def __init__(self, strikes: Strikes) -> None:
        self._strikes = strikes
        self._orders: list[float] = []
        self._ready, self._idle = threading.Semaphore(0), threading.Event()
        self._target = threading.get_ident()
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while True:
            self._ready.acquire()
            deadline = time.perf_counter() + self._orders.pop()
            while (left := deadline - time.perf_counter()) > 0 and not self._idle.is_set():
                time.sleep(min(left, 1e-3))
            if not self._idle.is_set():
                signal.pthread_kill(self._target, signal.SIGINT)
            self._idle.set()

    def run(self, function: Callable[[], Any], delay: float, twice: bool) -> Attempt:
        del twice

        def arm() -> None:
            self._idle.clear()
            self._orders.append(delay)
            self._ready.release()

        attempt = self._strikes.run(function, arm, self._idle.set)
        while self._orders:
            time.sleep(0)  # the thread has not even begun
        return attempt


class AtOpcode:
    """A SIGINT right before the n-th opcode of the frames of gmdb, and of what it uses to hold things.

    ``second``: another one so many opcodes after the first was handled.
    """

    number = signal.SIGINT

    def __init__(self, strikes: Strikes, is_traced: Callable[[CodeType], bool] | None = None) -> None:
        self._strikes = strikes
        self._is_traced = is_traced or _is_traced
        self._left = 0
        self.seen = 0
        self.is_sent = False

    def run(self, function: Callable[[], Any], at: int, second: int | None = None) -> Attempt:
        self.is_sent, self.seen = False, 0
        self._left = at

        def again() -> None:
            assert second is not None
            self._left = second
            sys.settrace(self._enter)  # frames that were traced before are traced on

        def stop() -> None:
            sys.settrace(None)

        return self._strikes.run(
            function,
            lambda: sys.settrace(self._enter),
            stop,
            again if second is not None else None,
            lambda: self.is_sent,
        )

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        del event, argument
        if not self._is_traced(frame.f_code):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._step

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        del argument
        if event == "opcode" and frame.f_code.co_code[frame.f_lasti] in _MAY_MATTER:
            self._left -= 1
            self.seen += 1
            if self._left == -1:
                self.is_sent = True
                sys.settrace(None)  # else the next trace function would be where it is handled
                _PENDING.send  # noqa: B018
        return self._step


class _Sender(int):
    """``send``: C's ``raise`` as an attribute, for where a call returns the interpreter looks for signals at once."""

    send = property(ctypes.PyDLL(None)["raise"])


_PENDING = _Sender(signal.SIGINT)


def _opcodes_that_may_matter() -> frozenset[int]:
    """Those that may call something or jump back: in front of the others a signal waits for one of these."""
    begin = ("CALL", "BEFORE_WITH", "FOR_ITER", "GET_ITER", "SEND", "STORE_ATTR", "STORE_SUBSCR", "BINARY_", "CONTAINS")
    return frozenset(
        number
        for name, number in dis.opmap.items()
        if name.startswith(begin) or "BACKWARD" in name or name in ("WITH_EXCEPT_START", "LOAD_ATTR", "YIELD_VALUE")
    )


_MAY_MATTER = _opcodes_that_may_matter()
_known: dict[CodeType, bool] = {}


def _is_traced(code: CodeType) -> bool:
    known = _known.get(code)
    if known is None:
        path = Path(code.co_filename)
        known = _known[code] = _PACKAGE in path.parents or path.stem in _TRACED
    return known


# ---- somebody who notices that nothing goes on


class Watchdog:
    """Ends the process with status 3, and says where every thread stands, if there is no ``step`` for long."""

    def __init__(self, seconds: float = HUNG) -> None:
        self._seconds, self._at, self._doing = seconds, time.monotonic(), ""
        threading.Thread(target=self._watch, daemon=True).start()

    def step(self, doing: str) -> None:
        self._at, self._doing = time.monotonic(), doing

    def _watch(self) -> None:
        while True:
            faulthandler.dump_traceback_later(2 * self._seconds, exit=True)  # if even this thread hangs
            time.sleep(1)
            if time.monotonic() - self._at > self._seconds:
                print(f"! hung for {self._seconds:.0f} s: {self._doing}", flush=True)
                faulthandler.dump_traceback(all_threads=True)
                os._exit(3)
