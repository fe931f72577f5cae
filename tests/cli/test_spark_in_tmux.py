"""``gmdb spark`` in a terminal: the bar that Spark's stages feed, and Ctrl-C."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gmdb.cli import output
from gmdb.spark.jobs import TasksDone, in_own_words, tasks_done
from tests.cli.tmux import Terminal, needs_tmux
from tests.verify.build import build_database

SPARK_STARTS_WITHIN = 180.0  # seconds: Java starts, then the workers
PASSED_ON = ("PATH", "HOME", "PYTHONPATH", "JAVA_HOME", "SPARK_LOCAL_IP")


@contextmanager
def command(folder: Path, *arguments: str) -> Iterator[Terminal]:
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    environment |= {"TERM": "screen-256color", "LC_ALL": "C.UTF-8"}
    line = [sys.executable, "-m", "gmdb.cli", "spark", *arguments, "--master", "local[2]"]
    line = ["sh", "-c", 'echo; exec "$@"', "sh", *line]  # tmux moves all up a line when a command ends
    made = Terminal(folder / "tmux", line, environment)
    try:
        yield made
    finally:
        made.end()


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_database(tmp_path_factory.mktemp("bar") / "db.gmdb")


@needs_tmux
@pytest.mark.spark
def test_a_bar_shows_how_far_spark_is_and_goes_away(database: Path, tmp_path: Path) -> None:
    with command(tmp_path, "verify", str(database)) as terminal:
        terminal.wait_for(" tasks, ", SPARK_STARTS_WITHIN)
        terminal.wait_for_end()
        assert "rows: nothing is wrong" in terminal.screen()
        assert " tasks, " not in terminal.screen()


@needs_tmux
@pytest.mark.spark
def test_control_c_cancels_the_job_and_says_so(database: Path, tmp_path: Path) -> None:
    with command(tmp_path, "verify", str(database)) as terminal:
        terminal.wait_for(" tasks, ", SPARK_STARTS_WITHIN)
        terminal.press("C-c")
        terminal.wait_for_end()
        lines = [line for line in terminal.lines() if line and not line.startswith("Pane is dead")]
        assert lines == ["gmdb spark verify: cancelled; what was checked by then is not known to be sound"]


# ---- without Spark


class Tracker:
    """Answers as Spark's does, of two jobs: one is over, and left a stage out; one is at work."""

    def getJobIdsForGroup(self, group: str) -> list[int]:  # noqa: N802
        assert group == "mine"
        return [1, 2]

    def getJobInfo(self, job_id: int) -> object:  # noqa: N802
        return _Info(stageIds=[1, 2] if job_id == 1 else [3, 4], status="SUCCEEDED" if job_id == 1 else "RUNNING")

    def getStageInfo(self, stage_id: int) -> object:  # noqa: N802
        done, total, active = {1: (4, 4, 0), 2: (0, 7, 0), 3: (2, 10, 2)}.get(stage_id, (0, 0, 0))
        if stage_id == 4:
            return None
        return _Info(numCompletedTasks=done, numTasks=total, numActiveTasks=active)


class _Info:
    def __init__(self, **fields: object) -> None:
        self.__dict__.update(fields)


def test_stages_that_spark_need_not_run_count_for_nothing() -> None:
    assert tasks_done(Tracker(), "mine") == TasksDone(done=6, total=14, active=2, stages=3)


def test_the_bar_says_how_many_tasks_and_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.verify.test_command import Terminal as Screen

    now = [0.0]
    monkeypatch.setattr(output.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(sys, "stderr", Screen())
    monkeypatch.setattr(sys, "stdout", Screen())
    monkeypatch.setenv("TERM", "xterm")
    with output.progress_of_tasks("load") as show:
        now[0] = 10.0
        show(20, 80, 3)
        shown = "load [#######-----------------------]  25%  20/80 tasks, 3 running, 2.0/s, 30 s left"
        assert shown in sys.stderr.getvalue()
    assert sys.stderr.getvalue().endswith("\r\x1b[K")
    with output.progress_of_tasks("load", quiet=True) as show:
        assert show is None


def test_an_error_of_a_worker_is_raised_as_itself() -> None:
    from gmdb.errors import Corruption, OperationalError

    said = "Traceback:\n  File x\ngmdb.errors.Corruption: page 4:7 is damaged\n\tat org.apache.spark.X(Y.scala:1)"
    made = in_own_words(RuntimeError(said))
    assert isinstance(made, Corruption)
    assert str(made) == "page 4:7 is damaged"
    deep = (
        "Job aborted.\n\tat org.X.y(Z)\nCaused by: java.lang.Thing: [A_B.C] no such disk\n\tat org.X.y(Z)\n... 9 more"
    )
    made = in_own_words(RuntimeError(deep))
    assert isinstance(made, OperationalError)
    assert str(made) == "Spark: no such disk"
