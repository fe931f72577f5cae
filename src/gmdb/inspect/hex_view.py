"""A page's bytes in hexadecimal, beside what they are: the names and, on a terminal, the colours of its regions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

from gmdb.format.anatomy import regions
from gmdb.format.layout import Region
from gmdb.inspect.canvas import printable

PER_LINE = 16
_NAMES_MAX = 60
_COLOURS = ("\033[36m", "\033[33m", "\033[32m", "\033[35m", "\033[34m", "\033[31m")
_DIM, _OFF = "\033[2m", "\033[0m"
_SHOWN = bytes(byte if 32 <= byte < 127 else ord("·") for byte in range(256))
_UNNAMED = ("free", "unused")


def hex_lines(page: bytes, coloured: bool, full: bool) -> Iterator[str]:
    """The page's lines; without ``full``, lines that are as the one before and begin nothing are left out."""
    found = regions(page)
    paints = _paints(page, found) if coloured else []
    begins: dict[int, list[Region]] = {}
    for region in found:
        begins.setdefault(region.offset // PER_LINE * PER_LINE, []).append(region)
    left_out = 0
    previous = b""
    for start in range(0, len(page), PER_LINE):
        raw = page[start : start + PER_LINE]
        begun = begins.get(start, [])
        if not full and raw == previous and not begun:
            left_out += 1
            continue
        if left_out:
            yield f"       … {left_out} lines more like it"
            left_out = 0
        previous = raw
        yield _line(start, raw, begun, paints)
    if left_out:
        yield f"       … {left_out} lines more like it"


def _line(start: int, raw: bytes, begun: list[Region], paints: list[str]) -> str:
    cells = raw.hex(" ").split()
    if paints:
        cells = [f"{paint}{cell}{_OFF}" for paint, cell in zip(paints[start : start + PER_LINE], cells, strict=True)]
    shown = " ".join(cells[:8]) + "  " + " ".join(cells[8:])
    text = raw.translate(_SHOWN).decode("latin-1")
    return f"{start:>6}  {shown}  {text}  {_names(begun)}".rstrip()


def _names(begun: list[Region]) -> str:
    """The regions that begin on a line; those of one structure are told by its name once."""
    told: list[str] = []
    last = ""
    for region in begun:
        owner, dot, name = region.name.rpartition(".")
        said = name if dot and owner == last else region.name
        last = owner if dot else ""
        told.append(said)
    text = " ".join(told)
    return printable(text if len(text) <= _NAMES_MAX else text[: _NAMES_MAX - 1] + "…")


def _paints(page: bytes, found: list[Region]) -> list[str]:
    """A colour for every byte: neighbours that are of different structures have different ones."""
    colours = cycle(_COLOURS)
    made = [""] * len(page)
    owner, colour = "", ""
    for region in found:
        own = region.name.rpartition(".")[0] or region.name
        if region.name in _UNNAMED:
            colour, owner = _DIM, own
        elif own != owner:
            colour, owner = next(colours), own
        for at in range(region.offset, region.end):
            made[at] = colour
    return made
