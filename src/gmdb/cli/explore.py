"""``gmdb explore``: a database in the browser."""

from __future__ import annotations

import argparse
import threading
import webbrowser

from gmdb.cli.ending import until_told_to_end
from gmdb.cli.serve import port_number
from gmdb.cli.verbs import add_database

NAME = "explore"
HELP = "look at a database in the browser"
DESCRIPTION = (
    "Show a database in the browser: a map of all its pages, any page with the meaning of each byte, segments and\n"
    "indexes, versions of rows and who sees them, transactions, locks and the log as it is written, and what two\n"
    "moments differ in. The database may be closed, open in another process, crashed or damaged; nothing is changed.\n"
    "The page comes from this machine alone, for whoever has the URL, until Ctrl-C. Nothing is fetched from elsewhere."
)
EXAMPLE = "examples:\n  gmdb explore shop.gmdb\n  gmdb explore shop.gmdb --no-browser --port 8080"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_database(parser)
    parser.add_argument("--port", type=port_number, default=0, help="the port (any that is free)")
    parser.add_argument("--no-browser", action="store_true", help="only print the URL")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from gmdb.explore.moments import Moments
    from gmdb.explore.web import ExplorerServer

    with (
        until_told_to_end() as wait,
        Moments(arguments.database) as moments,
        ExplorerServer(moments, arguments.port) as server,
    ):
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
        print(f"{arguments.database} is at {server.url} ; Ctrl-C ends it", flush=True)
        if not arguments.no_browser:
            webbrowser.open(server.url)
        wait()
        server.shutdown()
    return 0
