"""What the benchmarks' command lines share."""

from __future__ import annotations

import argparse


def positive(text: str) -> int:
    """A number such as ``1_000_000``."""
    number = int(text.replace("_", ""))
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number
