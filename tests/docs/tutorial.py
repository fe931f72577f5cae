"""Runs a tutorial as a reader would: its Python in one process, its commands in a shell, all in one directory.

A ``text`` block says what the block before it prints; ``…`` stands for anything, also for lines.  Steps run in their
order, so commands see what Python has left, and Python goes on in the same process while commands run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = "--- end of step"


@dataclass
class Step:
    kind: str
    code: str
    expected: str | None = None


def steps_of(text: str) -> list[Step]:
    steps: list[Step] = []
    for kind, body in _BLOCK.findall(text):
        if kind == "text":
            steps[-1].expected = body
        elif kind in ("python", "sh"):
            steps.append(Step(kind, body))
    return steps


def run(steps: list[Step], directory: Path) -> list[str]:
    """What each step printed."""
    script = directory / "tutorial.py"
    script.write_text("\n".join(_python(step) for step in steps), encoding="utf-8")
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        [sys.executable, script.name],
        cwd=directory,
        env={**os.environ, "PATH": programs, "COLUMNS": "120"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout.split(f"{_MARK}\n")[:-1]


def _python(step: Step) -> str:
    code = step.code
    if step.kind == "sh":
        code = f"import subprocess, sys\nsys.stdout.flush()\nsubprocess.run({step.code!r}, shell=True)"
    return f"{code}\nprint({_MARK!r}, flush=True)"


def matches(printed: str, expected: str) -> bool:
    pattern = re.escape(_trimmed(expected)).replace("…", ".*")
    return re.fullmatch(pattern, _trimmed(printed), re.DOTALL) is not None


def _trimmed(text: str) -> str:
    """Without spaces at the ends of lines, which editors take away."""
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
