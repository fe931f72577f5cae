"""``gmdb demo``: what gmdb does, shown in a minute or two; every number is of this run.

The chapters run in the order of ``CHAPTERS``.  Compiled code and Spark are imported when it runs, since other commands
do not need them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from gmdb.cli.demo import chapters
from gmdb.cli.demo.steps import DATABASE_NAME, Story
from gmdb.errors import InterfaceError

NAME = "demo"
HELP = "make a database, crash it, query it, read it with Spark while it is written, and see that all agree"
DESCRIPTION = (
    "Show what gmdb does: a table of 150,002 rows from Arrow, a page of it drawn byte by byte, two\n"
    "sessions of which one updates and the other reads out of undo, a process that is killed and the recovery after\n"
    "it, an index and a join, Spark reading while writers write, a stream of changes into a second database. Every\n"
    "result is compared with what it must be. Needs Java 17 or later for Spark.\n"
    "Exit status: 0 all agree, 1 they do not, 2 the command failed."
)
EXAMPLE = "examples:\n  gmdb demo\n  gmdb demo --keep shop"
CHAPTERS: tuple[Callable[[Story], None], ...] = (
    chapters.prepare,
    chapters.make_table,
    chapters.draw_page,
    chapters.show_two_sessions,
    chapters.kill_and_recover,
    chapters.index_and_join,
    chapters.read_beside_writers,
    chapters.stream_changes,
    chapters.draw_map,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keep", metavar="DIR", type=Path, help=f"make {DATABASE_NAME} in DIR and leave it there")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from gmdb.spark.jobs import require_java, require_pyspark

    require_pyspark()  # now, and not after a minute
    require_java()
    if arguments.keep is None:
        with tempfile.TemporaryDirectory(prefix="gmdb-demo-") as folder:
            status = run_chapters(Path(folder))
            print("\nTo explore the database: gmdb demo --keep shop, then gmdb explore shop/demo.gmdb")
            return status
    if (arguments.keep / DATABASE_NAME).exists():
        raise InterfaceError(f"{arguments.keep / DATABASE_NAME} is there already; choose another directory")
    arguments.keep.mkdir(parents=True, exist_ok=True)
    status = run_chapters(arguments.keep)
    database = arguments.keep / DATABASE_NAME
    print(f"\nThe database is {database}. Look around: gmdb explore {database}, gmstat segments {database},")
    print(f"gmdb sql {database}")
    return status


def run_chapters(folder: Path) -> int:
    """Run all chapters; 0 if every result was what it must be."""
    story = Story(folder)
    start = time.perf_counter()
    try:
        for chapter in CHAPTERS:
            chapter(story)
    finally:
        story.close()
    return story.conclude(time.perf_counter() - start)
