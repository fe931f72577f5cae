"""``gmdb spark``: work on whole tables and databases, done by Spark.  A verb is a file of its own; this lists them."""

from __future__ import annotations

import argparse
import sys

from gmdb.cli.output import clear_line
from gmdb.cli.spark_stats import StatsVerb
from gmdb.cli.spark_verbs import CreateIndexVerb, ExportVerb, LoadVerb, VerifyVerb, Work
from gmdb.cli.verbs import add_json, add_verb

NAME = "spark"
HELP = "load, export, index, verify and describe with Spark, on this machine or a cluster"
DESCRIPTION = (
    "Work on whole tables and databases with Apache Spark: on all cores of this machine, or on a cluster (--master),\n"
    "whose workers must reach the database by the same path. Needs Java 17 or later, and pip install 'gmdb[spark]'."
)
EXAMPLE = "examples:\n  gmdb spark stats shop.gmdb\n  gmdb spark load --help"
VERBS = (LoadVerb, ExportVerb, CreateIndexVerb, VerifyVerb, StatsVerb)
INTERRUPTED = 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    for verb in VERBS:
        subparser = add_verb(verbs, verb)
        verb.add_arguments(subparser)
        subparser.add_argument("--master", default="local[*]", help="where Spark runs (local[*]: all cores here)")
        add_json(subparser)
        subparser.add_argument("--quiet", action="store_true", help="show no progress bar")
        subparser.set_defaults(run=run, verb=verb)


def run(arguments: argparse.Namespace) -> int:
    from gmdb.spark.jobs import require_java, require_pyspark

    require_pyspark()
    require_java()
    arguments.verb.require(arguments)
    work = Work(arguments.verb.NAME, arguments.master, arguments.quiet)
    try:
        status: int = arguments.verb.run(arguments, work)
    except KeyboardInterrupt:
        clear_line()
        print(f"gmdb spark {arguments.verb.NAME}: cancelled; {arguments.verb.IF_CANCELLED}", file=sys.stderr)
        return INTERRUPTED
    return status
