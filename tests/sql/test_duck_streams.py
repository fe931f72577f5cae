"""How queries in DuckDB read their tables: lazily, and without leaving a reader open."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from gmdb.errors import DivisionByZero, InterfaceError, StatementInterrupted
from gmdb.sql.duck import instance
from gmdb.sql.duck.execution import DuckResult
from gmdb.sql.duck.instance import Settings, configure
from gmdb.sql.types import BIGINT
from tests.sql.tables import rows_of

BATCH = 10_000
BATCHES = 300


class Numbers:
    """A table of the numbers from 0 on, made while it is read."""

    alias = "t"
    schema = pa.schema([("n", pa.int64())])
    count = None

    def __init__(self, batches: int = BATCHES, fail_at: int | None = None, pause: float = 0.0) -> None:
        self.total = batches
        self.fail_at = fail_at
        self.pause = pause
        self.made = 0
        self.open = 0
        self.started = threading.Event()

    def batches(self, columns: Sequence[int]) -> Iterator[pa.RecordBatch]:
        assert list(columns) in ([0], [])
        return _Reader(self)


class _Reader:
    """A reader that tells its source when it is closed."""

    def __init__(self, source: Numbers) -> None:
        self._source: Numbers | None = source
        self._batches = self._numbers(source)
        source.open += 1

    def __iter__(self) -> _Reader:
        return self

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)

    def close(self) -> None:
        if self._source is not None:
            self._source.open -= 1
            self._source = None

    @staticmethod
    def _numbers(source: Numbers) -> Iterator[pa.RecordBatch]:
        for number in range(source.total):
            source.started.set()
            time.sleep(source.pause)
            if number == source.fail_at:
                raise LookupError("the scan broke")
            source.made += 1
            yield pa.record_batch({"n": pa.array(range(number * BATCH, (number + 1) * BATCH), pa.int64())})


def ask(text: str, source: Numbers) -> DuckResult:
    """DuckDB's own text, of columns that are whole numbers."""
    count = text.partition(" FROM ")[0].count(",") + 1
    return DuckResult([f"c{n}" for n in range(count)], [BIGINT] * count, text, [source], {})


def test_a_limit_leaves_the_rest_of_the_table_unread():
    source = Numbers()
    assert ask("SELECT n FROM t LIMIT 3", source).reader.read_all().num_rows == 3
    assert source.made < BATCHES // 2
    assert source.open == 0


def test_rows_come_while_the_table_is_being_read():
    source = Numbers()
    answer = ask("SELECT n FROM t WHERE n >= 0", source)
    assert answer.reader.read_next_batch().num_rows > 0
    assert source.made < BATCHES
    assert source.open == 1
    answer.close()
    assert source.open == 0


def test_all_rows_come_in_the_order_of_the_table():
    source = Numbers()
    numbers = ask("SELECT n FROM t", source).reader.read_all()["c0"].to_numpy()
    assert (numbers == range(BATCH * BATCHES)).all()
    assert source.open == 0


@pytest.mark.parametrize("started", [False, True])
def test_an_answer_that_is_forgotten_closes_its_readers(started):
    source = Numbers()
    answer = ask("SELECT n FROM t", source)
    if started:
        answer.reader.read_next_batch()
    del answer
    gc.collect()
    assert source.open == 0


def test_a_reader_outlives_the_answer_that_gave_it():
    source = Numbers(batches=20)
    reader = ask("SELECT n FROM t", source).reader
    gc.collect()
    assert reader.read_all().num_rows == 20 * BATCH


@pytest.mark.parametrize(
    "text", ["SELECT sum(n)::bigint FROM t", "SELECT n FROM t", "SELECT a.n FROM t AS a JOIN t AS b ON a.n = b.n"]
)
@pytest.mark.parametrize("fail_at", [0, 100])
def test_a_scans_own_exception_is_raised_and_everything_closed(text, fail_at):
    source = Numbers(fail_at=fail_at)
    with pytest.raises(LookupError, match="the scan broke"):
        ask(text, source).reader.read_all()
    gc.collect()
    assert source.open == 0


def test_a_source_that_cannot_be_opened_raises_its_own_exception():
    class Broken(Numbers):
        def batches(self, columns: Sequence[int]) -> Iterator[pa.RecordBatch]:
            raise PermissionError(f"not {list(columns)}")

    with pytest.raises(PermissionError, match="not"):
        ask("SELECT n FROM t", Broken()).reader.read_all()


def test_a_failing_expression_closes_the_readers():
    source = Numbers()
    with pytest.raises(DivisionByZero, match="division by zero"):
        ask(
            "SELECT x FROM (SELECT CAST(gm_quotient(1, n - 500000) AS BIGINT) AS x FROM t) AS q", source
        ).reader.read_all()
    gc.collect()
    assert source.open == 0


def test_a_statement_can_be_interrupted():
    source = Numbers(pause=0.005)
    answer = ask("SELECT n FROM t", source)
    timer = threading.Timer(0.1, answer.interrupt)
    timer.start()
    with pytest.raises(StatementInterrupted):
        answer.reader.read_all()
    timer.join()
    assert source.made < BATCHES
    assert source.open == 0


def test_closing_waits_for_the_batch_that_is_being_made():
    source = Numbers()
    answer = ask("SELECT n FROM t", source)
    source.pause = 0.2
    time.sleep(0.1)
    answer.close()
    assert source.open == 0


def test_closing_interrupts_another_thread_that_reads():
    source = Numbers(pause=0.005)
    answer = ask("SELECT n FROM t", source)
    timer = threading.Timer(0.1, answer.close)
    timer.start()
    with pytest.raises(StatementInterrupted):
        answer.reader.read_all()
    timer.join()
    assert source.open == 0


def test_many_threads_ask_at_once():
    results: list[Any] = []

    def work(seed: int) -> None:
        random = Random(seed)
        for _ in range(10):
            limit = random.randint(1, 50_000)
            answer = ask(
                f"SELECT count(*), sum(n)::bigint FROM (SELECT n FROM t WHERE n < {limit}) AS q", Numbers(batches=6)
            )
            results.append(rows_of(answer.reader.read_all()) == [(limit, limit * (limit - 1) // 2)])

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 60


def test_a_forked_child_has_an_instance_of_its_own():
    assert rows_of(ask("SELECT count(*) FROM t", Numbers(batches=2)).reader.read_all()) == [(2 * BATCH,)]
    child = os.fork()
    if child == 0:
        found = rows_of(ask("SELECT count(*) FROM t", Numbers(batches=3)).reader.read_all())
        os._exit(0 if found == [(3 * BATCH,)] else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_duckdb_reaches_neither_files_nor_variables():
    connection = instance.cursor()
    hidden = pa.table({"x": [1]})
    assert hidden.num_rows == 1
    with pytest.raises(duckdb.Error):
        connection.execute(f"SELECT * FROM read_csv('{__file__}')")
    with pytest.raises(duckdb.Error):
        connection.execute("SELECT * FROM hidden")
    with pytest.raises(duckdb.Error):
        connection.execute("SET memory_limit = '1GB'")
    connection.close()


def test_settings_come_before_the_first_query():
    ask("SELECT 1", Numbers()).close()
    with pytest.raises(InterfaceError, match="too late"):
        configure(Settings.default())


def test_what_does_not_fit_into_memory_goes_to_the_temporary_directory(tmp_path: Path):
    """In a process of its own, since settings are for the whole process."""
    child = os.fork()
    if child == 0:
        configure(Settings(memory_bytes=48 << 20, threads=2, temp_directory=str(tmp_path / "spill")))
        source = Numbers(batches=200)
        answer = ask("SELECT n, n * 7 % 1000003 AS k FROM t ORDER BY k, n::text", source)
        spilled = any((tmp_path / "spill").iterdir())
        count = sum(batch.num_rows for batch in answer.reader)
        os._exit(0 if spilled and count == 200 * BATCH else 1)
    assert os.waitpid(child, 0)[1] == 0
