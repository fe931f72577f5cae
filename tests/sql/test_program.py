"""The types that gmdb promises to programs, as a strict type checker sees them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.sql import program

ROOT = Path(__file__).resolve().parents[2]


def test_a_program_runs(tmp_path: Path) -> None:
    assert program.main(tmp_path / "p.gmdb") == {"ann": 3, "bob": 9, "cat": 9}
    assert (tmp_path / "p.backup").is_dir()


def test_a_strict_type_checker_finds_nothing_wrong_with_it(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text((ROOT / "tests/sql/program.py").read_text(encoding="utf-8"), encoding="utf-8")
    settings = tmp_path / "mypy.ini"
    settings.write_text("[mypy]\nstrict = true\nfollow_imports = silent\n", encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file", settings, "--cache-dir", ROOT / ".mypy_cache/program"]
    done = subprocess.run(
        [*command, "user.py"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
