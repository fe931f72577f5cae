"""``gmdb demo``, run the way a newcomer runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gmdb.cli.demo.steps import Story
from tests.integrity import assert_sound

pytestmark = pytest.mark.spark
TOLD = (
    "644 data pages",
    "i = 0, s = 'hello'",
    "the reader 'hello', out of undo",
    "bytes of redo replayed",
    "transfers were committed meanwhile",
    "gmdb explore",
)


def demo(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gmdb.cli", "demo", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})


def test_the_demo_tells_its_story_and_all_agree(tmp_path: Path):
    ran = demo("--keep", str(tmp_path / "kept"))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for told in TOLD:
        assert told in ran.stdout
    assert ran.stdout.count("11,249,925,003") == 4  # twice by Arrow, twice by Spark
    assert "All agree" in ran.stdout
    assert ran.stderr == ""
    assert_sound(tmp_path / "kept" / "demo.gmdb")
    assert_sound(tmp_path / "kept" / "copy.gmdb")


def test_the_demo_does_not_overwrite_what_it_kept(tmp_path: Path):
    (tmp_path / "demo.gmdb").mkdir()
    ran = demo("--keep", str(tmp_path))
    assert ran.returncode == 2
    assert "is there already" in ran.stderr


def test_the_demo_says_what_to_do_where_there_is_no_java(tmp_path: Path):
    ran = demo(JAVA_HOME=str(tmp_path))
    assert ran.returncode == 2
    assert "install" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_answers_that_disagree_are_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    story = Story(tmp_path)
    story.expect("rows", 2, 2)
    assert story.conclude(1.0) == 0
    story.expect("sum", 3, 4)
    assert story.conclude(1.0) == 1
    assert "They do not agree" in capsys.readouterr().out
