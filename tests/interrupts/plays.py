"""What is done under fire, and what may have come of it.

An operation makes a ``Play``: a call, and the models that are right after it.  The first is that of nothing done, the
last that of all done; between them are those of calls that consist of several.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from gmdb.errors import Error
from tests.interrupts.striking import Attempt, Strikes
from tests.interrupts.world import Broken, Model, World, differs

ANYTHING = object()


@dataclass
class Play:
    run: Callable[[], Any]
    models: list[Model]
    touches: tuple[str, ...] | None = ()  # tables to be looked at if it is interrupted; None: all
    open_after: Sequence[bool | None] = ()  # of each model: what ``in_transaction`` must be; None: either
    error: type[Exception] | None = None  # how it fails if nobody interrupts it
    expected: Any = ANYTHING  # its result if nobody interrupts it
    settle: Callable[[Attempt], None] | None = None  # cleans up afterwards, and looks at what only this operation knows
    commits: bool = False


Build = Callable[[World, Model, Random], Play | None]


@dataclass(frozen=True)
class Operation:
    name: str
    build: Build
    weight: float = 1.0
    is_statement: bool = False  # one that may come several times under one timer, and in any mode
    remote: bool = True  # works through an owner, too


@dataclass
class Operations:
    known: dict[str, Operation] = field(default_factory=dict)

    def add(self, name: str, **options: Any) -> Callable[[Build], Build]:
        def register(build: Build) -> Build:
            self.known[name] = Operation(name, build, **options)
            return build

        return register


OPERATIONS = Operations()


def sequence(plays: list[Play]) -> Play:
    """Several calls under one timer.  The models of each begin with the last one of the call before."""

    def run() -> None:
        for play in plays:
            play.run()

    models, opened = list(plays[0].models), list(plays[0].open_after or [None] * len(plays[0].models))
    for play in plays[1:]:
        models += play.models[1:]
        opened += list(play.open_after or [None] * len(play.models))[1:]
    names = None if any(p.touches is None for p in plays) else tuple({n for p in plays for n in p.touches or ()})
    return Play(run, models, names, opened, commits=any(play.commits for play in plays))


def judge(world: World, play: Play, attempt: Attempt, strikes: Strikes) -> None:
    """Bring the model up to date with what has happened, or raise Broken."""
    noise = strikes.take_noise()
    if noise:
        raise Broken("ignored", f"an exception was printed and forgotten: {noise}")
    wrong = [number for number, handler in strikes.handlers.items() if signal.getsignal(number) is not handler]
    if wrong and strikes.handlers_were_wrong:
        raise Broken("handler", f"the handler of {wrong[0].name} is {signal.getsignal(wrong[0])} for good")
    strikes.handlers_were_wrong = bool(wrong)  # what stands in for it may be left until the next operation
    if attempt.delivered and not attempt.interrupted:
        error = attempt.error
        if error is None:
            raise Broken("swallowed", "the handler has raised, and the call returned")
        raise Broken("replaced", f"the handler has raised, and the caller got {type(error).__name__}: {error}")
    if attempt.error is not None and not isinstance(attempt.error, play.error or ()):
        raise Broken("unexpected", f"without an interrupt: {type(attempt.error).__name__}: {attempt.error}")
    try:
        if play.settle is not None:
            play.settle(attempt)
        world.model = _resolved(world, play) if attempt.interrupted else _as_told(play, attempt)
    except Error as error:
        raise Broken("unusable", f"afterwards: {type(error).__name__}: {error}") from error


def _as_told(play: Play, attempt: Attempt) -> Model:
    """The model after a call that nobody has interrupted."""
    if attempt.error is not None:
        return play.models[0]
    if play.error is not None:
        raise Broken("unexpected", f"no {play.error.__name__} was raised")
    if play.expected is not ANYTHING and attempt.result != play.expected:
        raise Broken("result", f"{str(attempt.result)[:200]} instead of {str(play.expected)[:200]}")
    return play.models[-1]


def _resolved(world: World, play: Play) -> Model:
    """Which of the models it is after an interrupt."""
    is_open, autocommit = world.db.in_transaction, world.db.autocommit
    if play.commits:
        world.tick()
    seen = world.seen(play.touches)
    told, is_whole = [], False
    opened = play.open_after or [None] * len(play.models)
    for model, expected in reversed(list(zip(play.models, opened, strict=True))):
        difference = differs(seen, model.current, play.touches)
        is_whole |= not difference
        if autocommit != model.autocommit:
            difference += f"; autocommit is {autocommit}"
        if expected is not None and expected != is_open:
            difference += f"; in_transaction is {is_open}"
        if not difference:
            return model
        told.append(difference)
    raise Broken("left open" if is_whole else "half done", f"not as after: {told[0]}; not as before: {told[-1]}")
