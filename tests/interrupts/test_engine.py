"""Operations that are hit by signals whose handlers raise have happened whole or not at all, and others go on."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

INTERRUPTS = os.environ.get("GMDB_INTERRUPTS", "400")
SEED = os.environ.get("GMDB_INTERRUPTS_SEED", "1")
PATIENCE = 600.0
HOT = ("heap insert", "heap update", "heap delete", "find by key", "insert", "update", "select", "commit", "rollback")


def run(module: str, *arguments: str) -> None:
    """In a process of its own, whose main thread is interrupted."""
    command = [sys.executable, "-m", f"tests.interrupts.{module}", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ended.returncode == 0, ended.stdout[-6000:] + ended.stderr[-4000:]
    assert ended.stderr == ""


@pytest.mark.parametrize("where", ["here", "through an owner"])
def test_operations_that_are_hit_at_random_moments(where: str) -> None:
    count = INTERRUPTS if where == "here" else str(int(INTERRUPTS) // 4)
    run("hunt", "--interrupts", count, "--seed", SEED, *(["--remote"] if where != "here" else []))


def test_operations_that_are_hit_at_any_point() -> None:
    """At some points of the most frequent ones, another of them with each seed; ``make soak`` takes all."""
    names = [part for name in HOT for part in ("--operation", name)]
    run("points", *names, "--stride", "29", "--offset", str(int(SEED) % 29), "--mode", "later", "--mode", "alone")


def test_operations_that_are_hit_again_while_they_clean_up() -> None:
    names = [part for name in ("update many", "commit", "rollback to") for part in ("--operation", name)]
    run("points", *names, "--stride", "97", "--second", "12", "--mode", "later", "--handler", "deadline")
