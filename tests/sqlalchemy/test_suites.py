"""The suites of SQLAlchemy and Alembic for dialects: in processes of their own, since SQLAlchemy's plugin changes how
pytest collects and reports.

Which of SQLAlchemy's tests are not for gmdb is in suite/requirements.py and, with the reasons, in docs/sqlalchemy.md.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SECONDS_MAX = 600  # the longer one takes half a minute; kernels may have to be compiled first
PASSED_MIN = {"suite": 1460, "alembic_suite": 115}  # so that a suite that skips everything does not count as passed


@pytest.mark.parametrize(("name", "driver"), [("suite", "gmdb"), ("suite", "gmdb+aio"), ("alembic_suite", "gmdb")])
def test_the_dialect_passes_the_suite(name: str, driver: str, tmp_path: Path) -> None:
    suite = tmp_path / name
    shutil.copytree(Path(__file__).with_name(name), suite)  # it writes files beside itself
    command = [sys.executable, "-m", "pytest", "-c", "setup.cfg", "--rootdir", ".", "-q", "-rfE", "--tb=short"]
    found = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [*command, "--dburi", f"{driver}:///{tmp_path / 'suite.gmdb'}?sync=off"],
        cwd=suite,
        env={**os.environ, "PYTHONPATH": found, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None, done.stdout[-2000:]
    assert int(passed[1]) >= PASSED_MIN[name]


def test_the_documentation_says_why_a_requirement_is_not_met() -> None:
    text = (ROOT / "docs/sqlalchemy.md").read_text(encoding="utf-8")
    rules = (Path(__file__).with_name("suite") / "requirements.py").read_text(encoding="utf-8")
    absent = re.search(r'ABSENT = """(.*?)"""', rules, re.DOTALL)
    assert absent is not None
    assert [name for name in absent[1].split() if f"`{name}`" not in text] == []
