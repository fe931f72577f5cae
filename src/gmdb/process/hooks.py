"""Hooks: how a layer calls one above it, which it does not know.

The lower object has a hook where it needs the layer above; the upper one connects a function to it, when a
database is opened.  Without one the hook does what its default does.  All upward calls go through hooks, and
docs/architecture.md lists them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Hook(Generic[P, R]):
    """A call to a layer above.  ``function``: what is connected, or the default."""

    __slots__ = ("function",)

    def __init__(self, default: Callable[P, R]) -> None:
        self.function = default

    def connect(self, function: Callable[P, R]) -> None:
        """Have this function called from now on, in place of what was connected."""
        self.function = function

    def __call__(self, *arguments: P.args, **options: P.kwargs) -> R:
        return self.function(*arguments, **options)
