"""The work of verifying, in pieces that can be done anywhere: on threads of this process, or on other machines.

``verifier.checks`` plans pieces in rounds, and holds what comes of them against each other.  A piece can be pickled,
and so can its result.  It finds everything else that it needs in its ``Workplace``.

Invariants
 1. A piece's result depends on the files and on the piece alone, not on where or beside what it is done.
 2. Results are taken in the order of the pieces, so that findings come in one order wherever the work was done.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from gmdb.catalog.schema import TableDefinition
from gmdb.format.row import MIN_OCCUPIED
from gmdb.kernel.verify import NOTE
from gmdb.verify.mapping import MappedPages
from gmdb.verify.reader import VerifiedFiles
from gmdb.verify.rows import Rules

RUN_SIZE = 1 << 20  # bytes that are read at once
INLINE_PIECES = 8  # up to so many, threads cost more than they bring
Progress = Callable[[int], AbstractContextManager[Callable[[int], None]]]
Verdicts = Mapping[int, np.ndarray]  # by device: a byte for each page in use


class Piece(Protocol):
    @property
    def page_count(self) -> int:
        """How many pages it looks at, so that others can tell how far the work is."""

    def check(self, work: Workplace) -> Any:
        """Do it; answers what was found."""


@dataclass(frozen=True)
class Round:
    """Pieces that can be done at the same time.  ``verdicts``: what earlier rounds found of each page."""

    pieces: Sequence[Piece]
    tables: Mapping[int, TableDefinition]
    verdicts: Verdicts | None = None


class _Memory(threading.local):
    """Memory that a thread uses again for each of its pieces."""

    def __init__(self) -> None:
        self.pages = np.zeros(RUN_SIZE, np.uint8)
        self.notes = np.empty(2 * RUN_SIZE // MIN_OCCUPIED, NOTE)


class Workplace:
    """What the pieces of a round need, wherever they are done."""

    def __init__(
        self, files: VerifiedFiles, tables: Mapping[int, TableDefinition], verdicts: Verdicts | None = None
    ) -> None:
        self.files, self.tables, self._verdicts = files, tables, verdicts
        self.rules = Rules(tables)
        self.memory = _Memory()
        self._lock = threading.Lock()

    @property
    def mapped(self) -> MappedPages:
        """All pages in memory; only known once they all have a verdict."""
        with self._lock:
            return self._mapped

    @cached_property
    def _mapped(self) -> MappedPages:
        assert self._verdicts is not None
        return MappedPages(self.files, self._verdicts)


def run_on_threads(files: VerifiedFiles, work: Round, progress: Progress | None) -> list[Any]:
    """Do the pieces of a round in this process, on all cores; compiled checks run without the GIL."""
    if progress is None:
        return list(_results(files, work))
    done = []
    total = sum(piece.page_count for piece in work.pieces)
    with progress(total) as step, closing(_results(files, work)) as results:
        for piece, result in zip(work.pieces, results, strict=True):
            done.append(result)
            step(piece.page_count)
    return done


def _results(files: VerifiedFiles, work: Round) -> Generator[Any, None, None]:
    place, pieces = Workplace(files, work.tables, work.verdicts), work.pieces
    threads = min(len(os.sched_getaffinity(0)), len(pieces)) if len(pieces) > INLINE_PIECES else 1
    if threads == 1:
        yield from (piece.check(place) for piece in pieces)
        return
    with ThreadPoolExecutor(threads, "gmdb-verify") as pool:
        yield from pool.map(lambda piece: piece.check(place), pieces)
