"""``gmdb demo``, run the way a newcomer runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gmdb.cli.demo import Totals, compare
from tests.integrity import assert_sound

pytestmark = pytest.mark.spark


def demo(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gmdb.cli", "demo", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})


def test_the_demo_shows_a_page_and_three_readers_that_agree(tmp_path: Path):
    ran = demo("--keep", str(tmp_path / "kept"))
    assert ran.returncode == 0, ran.stderr
    assert "644 data pages" in ran.stdout
    assert "i = 0, s = 'hello'" in ran.stdout
    assert ran.stdout.count("11249925003") == 4
    assert "All agree." in ran.stdout
    assert ran.stderr == ""
    assert_sound(tmp_path / "kept" / "demo.gmdb")


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


def test_sums_that_disagree_are_a_failure(capsys: pytest.CaptureFixture[str]):
    assert compare({"Arrow": Totals(1, 2, 3), "Spark": Totals(1, 2, 3)}) == 0
    assert compare({"Arrow": Totals(1, 2, 3), "Spark": Totals(1, 2, 4)}) == 1
    assert "They do not agree" in capsys.readouterr().out
