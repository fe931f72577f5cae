"""Reading all columns, reading one, loading: the same work for every peer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.harness import Attempt, Benchmark, Contender, Summary
from bench.spark.peers import Loader, Peer
from bench.spark.source import DIGEST, GMDB_COLUMNS, KEY, Source, digest_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

READ_TARGETS = {"JDBC": 5.0, "Parquet": 0.6}
LOAD_TARGETS = {"JDBC": 5.0, "Parquet": 0.4}


def read_benchmarks(peers: Sequence[Peer], source: Source) -> list[Benchmark]:
    """The peers have the source's rows already."""
    everything = [Contender(peer.name, source.digest, partial(reading, peer)) for peer in peers]
    one = [Contender(peer.name, source.keys, partial(reading_key, peer)) for peer in peers]
    what = f"{source.rows:,} rows of {len(GMDB_COLUMNS)} columns"
    return [
        Benchmark("read", f"read {what}", everything, _for(peers, READ_TARGETS)),
        Benchmark("read-key", f"read one column of {what}", one),
    ]


def load_benchmarks(peers: Sequence[Loader], source: Source, rows: DataFrame) -> list[Benchmark]:
    contenders = [Contender(peer.name, source.keys, partial(loading, peer, rows)) for peer in peers]
    what = f"load {source.rows:,} rows of {len(GMDB_COLUMNS)} columns"
    return [Benchmark("load", what, contenders, _for(peers, LOAD_TARGETS))]


def _for(peers: Sequence[Loader], targets: dict[str, float]) -> dict[str, float]:
    names = {peer.name for peer in peers}
    return {name: target for name, target in targets.items() if name in names}


@contextmanager
def reading(peer: Peer, _: Path) -> Iterator[Attempt]:
    """From ``spark.read`` to a sum over every column."""
    yield Attempt(lambda: read_everything(peer.read()), lambda sums: digest_of(tuple(sums)))


def read_everything(table: DataFrame) -> tuple:
    return tuple(table.selectExpr(*DIGEST).collect()[0])


@contextmanager
def reading_key(peer: Peer, _: Path) -> Iterator[Attempt]:
    def run() -> tuple:
        return tuple(peer.read_key().selectExpr(f"count({KEY})", f"sum({KEY})").collect()[0])

    yield Attempt(run, lambda sums: Summary(*sums))


@contextmanager
def loading(peer: Loader, rows: DataFrame, _: Path) -> Iterator[Attempt]:
    """From the source into an empty table."""
    peer.clear()
    yield Attempt(partial(peer.load, rows), lambda _: peer.loaded())
    peer.clear()
