"""Which systems the extension module runs on, as wheels name them (PEP 600): what the linked file asks for decides.

It asks for the functions of Python's stable interface, and for some of the C library, without naming a version of
either; so it needs the first version of the C library that has each of them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from gmdb.kernel.build.parts import C_LIBRARY
from gmdb.kernel.build.target import Target

OLDEST = (2, 17)  # of the C library: what gmdb rests on has no wheels for an older one
_SYMBOL = re.compile(r"\s(?P<where>\w+) (?P<name>\w+)(?:@+GLIBC_(?P<version>[\d.]+))?(?: \(\d+\))?$")


def platform_tag(file: Path, target: Target) -> str:
    """``manylinux_…`` if all that the file needs is in every such system; else what says this machine alone."""
    reader, library = shutil.which("readelf"), _c_library()
    if reader is None or library is None or _needed_libraries(reader, file):
        return f"linux_{target.machine}"
    needed = {name for name, where, _ in _symbols(reader, file) if where == "UND"}
    needed = {name for name in needed if not name.startswith(("Py", "_Py"))}
    since: dict[str, tuple[int, ...]] = {}
    for name, where, version in _symbols(reader, library):
        if where != "UND" and version and name in needed:
            since[name] = min(version, since.get(name, version))
    if needed - C_LIBRARY or needed - set(since):
        return f"linux_{target.machine}"
    major, minor = max(OLDEST, *(version[:2] for version in since.values()))
    return f"manylinux_{major}_{minor}_{target.machine}"


def _c_library() -> Path | None:
    """The GNU C library that this process runs with."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith("/libc.so.6"):
            return Path(line[line.index("/") :])
    return None


def _needed_libraries(reader: str, file: Path) -> list[str]:
    return re.findall(r"\(NEEDED\).*\[(.+)\]", _read(reader, "--dynamic", file))


def _symbols(reader: str, file: Path) -> list[tuple[str, str, tuple[int, ...] | None]]:
    """The name of each dynamic symbol, in which section it is (UND: in another file), and since which version."""
    found = []
    for line in _read(reader, "--dyn-syms", file).splitlines():
        if match := _SYMBOL.search(line):
            version = match["version"]
            numbers = tuple(int(number) for number in version.split(".")) if version else None
            found.append((match["name"], match["where"], numbers))
    return found


def _read(reader: str, what: str, file: Path) -> str:
    return subprocess.run([reader, "--wide", what, str(file)], check=True, stdout=subprocess.PIPE, text=True).stdout
