"""Pages that lead round in a circle: whoever follows them is told so, and soon."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.security.cycles import CASES, UNDO_CASES

TITLES = [f"{name} {use.__name__}" for name, (_, uses) in CASES.items() for use in uses]
TITLES += [case.__name__ for case in UNDO_CASES]


@pytest.fixture(scope="module")
def results() -> dict[str, str]:
    """Of each case, what went wrong; in processes of their own, which are ended if they do not end."""
    ended = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "tests.security.cycles"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-4000:]
    results, output = {}, []
    for line in ended.stdout.splitlines():
        if line.startswith("{"):
            found = json.loads(line)
            results[found["name"]] = "\n".join([*output, found["how"]]) if found["code"] else ""
            output = []
        else:
            output.append(line)
    return results


@pytest.mark.parametrize("title", TITLES)
def test_a_circle_is_told_of(results: dict[str, str], title: str) -> None:
    assert not results[title], results[title]
