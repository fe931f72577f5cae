"""A client's link to whoever owns the database: messages there and answers back, for as long as the connection lives.

An owner may go.  The link then finds the next one, or becomes it, and goes on: a session that had nothing open is made
anew there, with the same settings, and what had not been done is asked for again.  The program notices only what it
must (decisions/0041):

  LostWithOwner    a transaction, or something else that was open there, is gone.  Until the program rolls back, or ends
                   the block that was open, every call says so: nothing of it is done half.
  OutcomeUnknown   something that lasts was asked for, and no answer came

Invariants
 1. What may have been done, and would last, is never asked for twice by itself.
 2. A session that differs from a new one with its settings is never replaced silently.
 3. Finding an owner ends: with an owner, an error after ``patience``, an interrupt, or the connection's close.
"""

from __future__ import annotations

import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, Protocol

import pyarrow as pa

from gmdb.database.connection import Connection
from gmdb.database.operations import Again, declared_in
from gmdb.errors import InterfaceError, LostWithOwner, OutcomeUnknown, OwnerGone, StatementInterrupted
from gmdb.process import signals
from gmdb.process.signals import Held, HeldIterator
from gmdb.server import sockets
from gmdb.server.channel import Channel, Gone, gone_message
from gmdb.server.wire import Head, TableThere, error_from, to_plain, value_of

INTERVAL = 0.02  # seconds between two looks for an owner
SHORT = 1000  # rows of a batch that is likely to be the only one
WAS_OPEN = "what was open there is lost: try again"

# ---- What may be asked for again.

_AGAIN = {
    **{name: declared.again for name, declared in declared_in(Connection).items()},
    **dict.fromkeys(("heap", "fetch", "rows", "rows_by_key", "next_rows", "select", "select_rows"), Again.ALWAYS),
    **dict.fromkeys(("select_by", "send_ahead", "send_piece", "lob_open", "lob_read"), Again.ALWAYS),
    **dict.fromkeys(("work", "require_writable", "statement", "statement_rows"), Again.ALWAYS),
    **dict.fromkeys(("insert", "update", "delete", "lock", "share", "leave", "append"), Again.UNCOMMITTED),
    **dict.fromkeys(("statement_update", "statement_delete", "statement_lock"), Again.UNCOMMITTED),
    **dict.fromkeys(("statement_start_over",), Again.UNCOMMITTED),
}
_COMMENTS = re.compile(r"(?:\s|\(|--[^\n]*(?:\n|$)|/\*.*?\*/)*", re.S)
_WORDS = (
    (re.compile(r"(?:select|values|begin|start|describe|show|reset|set(?!\s+autocommit))\b", re.I), Again.ALWAYS),
    (re.compile(r"(?:insert|update|delete|merge|with|savepoint|release)\b", re.I), Again.UNCOMMITTED),
    (re.compile(r"(?:commit|end|set)\b", re.I), Again.COMMITS),
    (re.compile(r"rollback(?:\s+(?:work|transaction))?\s*;?\s*$", re.I), Again.ROLLS_BACK),
    (re.compile(r"(?:rollback|truncate|alter|comment|explain)\b", re.I), Again.UNCOMMITTED),
    (re.compile(r"(?:create|drop)\s+(?!tablespace\b)", re.I), Again.UNCOMMITTED),
)


def again_of(op: str, arguments: tuple[Any, ...]) -> Again:
    """Whether an operation can be asked for again; of a statement its first words say so."""
    if op not in ("execute", "execute_many"):
        return _AGAIN.get(op, Again.NEVER)
    text = str(arguments[0]) if arguments else ""
    begin = _COMMENTS.match(text)
    at = begin.end() if begin is not None else 0
    return next((again for words, again in _WORDS if words.match(text, at)), Again.NEVER)


# ---- The link.


class Finder(Protocol):
    """Finds the owner of a database, now: a channel to it, or why there is none.  ``patience``: seconds to go on."""

    patience: float

    def __call__(self, options: Head) -> Channel | str: ...


class Link:
    """``find``: how to find the next owner; None: the link ends with the first."""

    def __init__(self, channel: Channel, options: Head, find: Finder | None = None) -> None:
        self.route = channel.route
        self.local = channel.connection  # once this process is the owner: its own connection in the session's place
        self.blocks = 0  # context managers that were entered in the owner, one within the other
        self.busy = threading.RLock()  # as a session has it
        self.held = Held(weakref.proxy(self))  # no reference cycle: it is freed as soon as nothing uses it
        self._pid = os.getpid()
        self._channel: Channel | None = channel
        self._options = options  # of a session that is made anew
        self._find = find
        self._was_begun = False  # a transaction is to be begun anew
        self._time_zone = "UTC"
        self._only_reads = False  # unless a transaction is said to do more
        self._must_end = ""  # by the program, since it is lost: a "transaction", or the "block" that is open
        self._lock = threading.RLock()
        self._closed = False
        self._is_finding = self._is_interrupted = False
        self._number = 0  # of the last message
        self._held_back: list[Callable[[], None]] = []

    # ---- messages

    def ask(self, op: str, *arguments: Any, **options: Any) -> Any:
        """Ask the owner for an operation and wait for its result, or raise what it raised."""
        return self._ask(None, op, arguments, options)[1]

    def ask_for(self, op: str, *arguments: Any, **options: Any) -> tuple[Channel, Any]:
        """The same for what has numbers as its result, with the channel to which they belong."""
        return self._ask(None, op, arguments, options)

    def ask_there(self, channel: Channel, op: str, *arguments: Any, **options: Any) -> Any:
        """Ask for something about a number of this channel."""
        return self._ask(channel, op, arguments, options)[1]

    def _ask(
        self, there: Channel | None, op: str, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[Channel, Any]:
        self.require_open()
        for send in tuple(self._held_back):
            send()
        sent = bytearray()
        head: Head = {"op": op, "arguments": [to_plain(value, sent) for value in arguments]}
        if options:
            head["options"] = to_plain(options, sent)
        with self._lock, self.held:
            until = 0.0
            while True:
                channel = self._channel
                if channel is None or not channel.is_there():
                    if self._is_ended_by(op, arguments):
                        return _nobody, None
                    until = until or time.monotonic() + self._patience
                    channel = self._next_channel(there, until)
                elif there is not None and there is not channel:
                    raise self._lost(WAS_OPEN)
                self._number += 1
                try:
                    answer, body = channel.ask({**head, "asked": self._number}, sent)
                    break
                except Gone as gone:
                    if gone.begun:
                        self._require_repeatable(channel, op, arguments)
                    self._let_go(channel)
                    self._require_open()  # or it is not the owner that went
        if "error" in answer:
            raise error_from(answer)
        return channel, value_of(answer.get("result"), body)

    # ---- when the owner is gone

    def _let_go(self, channel: Channel) -> None:
        """Note what is lost with a channel that is of no use any more."""
        self._channel = None
        channel.give_up()
        state = channel.state
        in_transaction = state.was_begun or not state.autocommit
        if state.is_missed:
            self._must_end = "transaction" if in_transaction else "block" if self.blocks else "call"
        self._was_begun = state.was_begun and not state.is_missed
        self._only_reads, self._time_zone = state.only_reads, state.time_zone
        usual = {"autocommit": state.autocommit, "isolation": state.isolation, "lock_timeout": state.lock_timeout}
        self._options = {**self._options, **usual}

    def _require_repeatable(self, channel: Channel, op: str, arguments: tuple[Any, ...]) -> None:
        """No answer came.  Come back if nothing that lasts may have been done; then it can be asked for again."""
        state, again = channel.state, again_of(op, arguments)
        each_commits = state.autocommit and not state.was_begun
        if op == "leave":
            lasts = each_commits and self.blocks <= 1 and bool(arguments[1])
        elif again is Again.UNCOMMITTED:
            lasts = each_commits and not self.blocks
        else:
            lasts = again is Again.NEVER or (again is Again.COMMITS and state.is_missed)
        if not lasts:
            return
        self._let_go(channel)
        if again is Again.COMMITS or self._must_end == "call":
            self._must_end = ""
        what = "the transaction was committed" if again is Again.COMMITS else "what it was asked for was done"
        raise OutcomeUnknown(
            f"{gone_message(self.route)}, before it answered: whether {what} is unknown; look before you do it again"
        )

    def _is_ended_by(self, op: str, arguments: tuple[Any, ...]) -> bool:
        """Whether this ends what is lost, and needs no owner."""
        if self._channel is not None:
            self._let_go(self._channel)
        again = again_of(op, arguments)
        if again not in (Again.ROLLS_BACK, Again.COMMITS) or self._must_end == "block":
            return False
        was_lost, self._must_end = self._must_end == "transaction", ""
        if was_lost and again is Again.COMMITS:
            raise self._lost("the transaction is rolled back: run it again")
        if op not in ("rollback", "commit"):
            return False  # there is more to it
        self._was_begun = False
        return True

    def _next_channel(self, there: Channel | None, until: float) -> Channel:
        """Find the next owner, unless something is lost that the program must know of."""
        if self._must_end == "transaction":
            raise self._lost("the transaction is rolled back: call rollback(), and run it again")
        if self._must_end or there is not None:
            self._must_end = self._must_end.replace("call", "")
            raise self._lost(WAS_OPEN)
        while True:
            channel = self._found(until)
            try:
                if self._only_reads:
                    modes = to_plain({"read_only": True}, bytearray())
                    channel.ask({"op": "set_all_transactions", "arguments": [], "options": modes}, bytearray())
                if self._time_zone != "UTC":
                    arguments = [to_plain(one, bytearray()) for one in (f"set time zone '{self._time_zone}'", ())]
                    channel.ask({"op": "execute", "arguments": arguments}, bytearray())
                if self._was_begun:
                    channel.ask({"op": "begin", "arguments": []}, bytearray())
            except Gone:
                channel.give_up()
                continue
            if self._closed:
                channel.close()
            self._require_wanted()
            self._channel, self.route, self.local = channel, channel.route, channel.connection
            return channel

    def _lost(self, what: str) -> LostWithOwner:
        return LostWithOwner(f"{gone_message(self.route)}; {what}")

    @property
    def _patience(self) -> float:
        return 0.0 if self._find is None else self._find.patience

    def _found(self, until: float) -> Channel:
        """A channel to whoever is the owner now, which may be this process."""
        if self._find is None:
            raise self._lost("connect again")
        self._is_finding, self._is_interrupted = True, False
        try:
            while True:
                self._require_wanted()
                found = self._find(self._options)
                if not isinstance(found, str):
                    return found
                if time.monotonic() > until:
                    raise self._lost(f"nobody has opened it since: {found}")
                time.sleep(INTERVAL)
        finally:
            self._is_finding = False

    def _require_wanted(self) -> None:
        signals.check()
        self._require_open()
        if self._is_interrupted:
            raise StatementInterrupted("the statement was interrupted")

    def _require_open(self) -> None:
        if self._closed:
            raise InterfaceError("the connection is closed")

    # ---- as a session has it

    def finish_read_if_idle(self) -> None:
        """Part of a session's interface; the owner does it."""

    def finish_failed(self) -> None:
        """Part of a session's interface; the owner does it."""

    def interrupt(self) -> None:
        """Have the owner end what it is doing for this client.  Needs no lock, and no answer."""
        if self._is_finding:
            self._is_interrupted = True
        channel = self._channel
        if self._pid == os.getpid() and not self._closed and channel is not None:
            channel.interrupt(self._number)

    def require_open(self) -> None:
        if self._pid != os.getpid():
            raise sockets.forked(self.route.directory, self._pid)
        self._require_open()

    @property
    def closed(self) -> bool:
        return self._closed

    # ---- what consists of several messages

    @contextmanager
    def holding_back(self, send: Callable[[], None]) -> Iterator[None]:
        """While changes are collected, to send many at once: ``send`` is called before any other message."""
        self._held_back.append(send)
        try:
            yield
        finally:
            self._held_back.remove(send)

    @contextmanager
    def block(self) -> Iterator[None]:
        """While a context manager is entered in the owner."""
        self.blocks += 1
        try:
            yield
        finally:
            self.blocks -= 1
            if not self.blocks and self._must_end == "block":  # which is over now
                self._must_end = ""

    def send(self, table: TableThere, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Head:
        """Send batches to a table; returns the owner's answer to all of them."""
        self.require_open()
        with self._lock:
            channel = self._channel
            if channel is None or not channel.is_there():
                if channel is not None:
                    self._let_go(channel)
                channel = self._next_channel(None, time.monotonic() + self._patience)
        try:
            head = channel.send(table, schema, batches)
        except Gone as gone:
            with self._lock:
                if gone.begun:
                    self._require_repeatable(channel, "append", ())
                self._let_go(channel)
                self._must_end = self._must_end.replace("call", "")
            raise self._lost("what was appended is lost: try again") from None
        if "error" in head:
            raise error_from(head)
        return head

    def batches(
        self, channel: Channel, scan: int, schema: pa.Schema, again: Callable[[], pa.RecordBatchReader] | None = None
    ) -> pa.RecordBatchReader:
        """The batches of a scan that was begun there.  ``again`` begins another if not even the first one came."""
        again = None if channel.state.is_missed else again
        steps = _read(self, channel.batches(scan), schema, again, self._number)
        return pa.RecordBatchReader.from_batches(schema, HeldIterator(steps, self.held))

    # ---- the end

    def close(self) -> None:
        """End the session; what is still being read may be read to its end.  Closing twice does nothing."""
        if self._closed or self._pid != os.getpid():
            return
        self._closed = True
        channel = self._channel
        if channel is not None:
            channel.close()


class _Nobody:
    """In the place of a channel, where none is needed."""


_nobody: Any = _Nobody()


def _read(
    link: Link,
    steps: Iterator[pa.RecordBatch],
    schema: pa.Schema,
    again: Callable[[], pa.RecordBatchReader] | None,
    asked: int,
) -> Iterator[pa.RecordBatch]:
    """The batches of a scan; nothing is given out before a short one is known to be whole, if it can be had again."""
    try:
        begin = list(islice(steps, 1))
        if again is not None and begin and len(begin[0]) < SHORT:
            begin += islice(steps, 1)
    except OwnerGone:
        if again is None or link._number != asked or link.closed:  # by now it would be another instant
            raise
        reader = again()
        if reader.schema != schema:
            raise
        yield from reader
        return
    yield from begin
    yield from steps
