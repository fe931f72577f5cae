"""Linking objects into a shared library, by ``ld`` alone, and what it needs of the systems that it is to run on."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gmdb.errors import KernelsUnavailable

LINKERS = ("ld", "ld.lld")
_OPTIONS = (
    "-shared", "-O1", "-z", "now", "-z", "relro", "-z", "noexecstack", "--gc-sections", "--hash-style=gnu",
    "--build-id=none", "-s",
)  # fmt: skip


def find_linker() -> str:
    for name in LINKERS:
        if path := shutil.which(name):
            return path
    raise KernelsUnavailable(f"there is no linker: none of {', '.join(LINKERS)} is on PATH; binutils has one")


def link(linker: str, objects: Sequence[bytes], into: Path) -> None:
    """Make a shared library of some objects; one that is there already is replaced in one step.

    Processes that have the old one loaded keep it.
    """
    with tempfile.TemporaryDirectory(prefix="gmdb-build-") as place:
        names = []
        for number, code in enumerate(objects):
            names.append(str(Path(place) / f"{number}.o"))
            Path(names[-1]).write_bytes(code)
        linked = Path(place) / into.name
        run = subprocess.run(
            [linker, *_OPTIONS, "-o", str(linked), *names], capture_output=True, text=True, check=False
        )
        if run.returncode:
            raise KernelsUnavailable(f"{linker} failed: {run.stderr.strip()}")
        linked.chmod(0o644)
        beside = into.with_name(f".{into.name}.new")
        shutil.copyfile(linked, beside)
        beside.replace(into)
