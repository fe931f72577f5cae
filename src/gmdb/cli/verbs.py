"""Commands that have verbs: a verb is a module with NAME, HELP, DESCRIPTION, EXAMPLE, ``add_arguments`` and ``run``."""

from __future__ import annotations

import argparse
from typing import Any


def add_verb(verbs: Any, verb: Any) -> argparse.ArgumentParser:
    """Make a verb known; answers the parser for its arguments."""
    made: argparse.ArgumentParser = verbs.add_parser(
        verb.NAME,
        help=verb.HELP,
        description=verb.DESCRIPTION,
        epilog=verb.EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return made
