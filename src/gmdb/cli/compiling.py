"""``gmdb compile``: machine code for all kernels, made now and on all cores."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import gmdb.storage
from gmdb.cli.terminal import progress_of_steps
from gmdb.errors import OperationalError

OTHERS = Path(gmdb.storage.__file__).with_name("scatter.py")  # has a kernel, and is not among the others

NAME = "compile"
HELP = "compile the kernels for this machine now, instead of each when it is first used"
DESCRIPTION = (
    "Make the machine code of all kernels, on all cores, and keep it in the user's cache (~/.cache/gmdb, or where\n"
    "XDG_CACHE_HOME or GMDB_CACHE_DIR say). It is made once for each version of gmdb; without this command, parts of\n"
    "it when they are first needed. Useful where a program is installed or an image of a machine is built."
)
EXAMPLE = "examples:\n  gmdb compile"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=run)


def run(_arguments: argparse.Namespace) -> int:
    from gmdb.kernel.kept import kept_in

    if kept_in() is None:
        raise OperationalError("machine code cannot be kept; set GMDB_CACHE_DIR to a directory that only you can write")
    started = time.monotonic()
    made = compile_kernels()
    if made:
        print(f"compiled {made} kernels in {time.monotonic() - started:.0f} s; they are kept in {kept_in()}")
    else:
        print(f"all kernels were compiled before; they are kept in {kept_in()}")
    return 0


def compile_kernels() -> int:
    """Compile what is not compiled, with a progress bar; returns how many kernels that were."""
    from gmdb.kernel.compile_all import compile_all

    with progress_of_steps() as show:
        return compile_all([OTHERS], lambda done, total: show("compile the kernels", done, total))
