"""``python -m gmdb.kernel.build``: compile all kernels ahead, beside their sources or where ``--into`` says."""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import sys
import time
from pathlib import Path

from gmdb.errors import KernelsUnavailable
from gmdb.kernel import ahead


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m gmdb.kernel.build", description="compile all kernels ahead")
    parser.add_argument("--into", type=Path, default=Path(ahead.__file__).parent, help="folder for the module")
    parser.add_argument("--processes", type=int, help="how many to compile in; as many as there are CPUs")
    parser.add_argument("--if-possible", action="store_true", help="where it cannot be done, say so and succeed")
    parser.add_argument("--platform", action="store_true", help="print the systems for which what is there was made")
    options = parser.parse_args()
    target = options.into / ahead.FILE
    try:
        if options.platform:
            return _print_platform(target)
        return _build(target, options.processes)
    except KernelsUnavailable as error:
        if not options.if_possible:
            print(f"gmdb: {error}", file=sys.stderr)
            return 1
        print(f"kernels are not compiled ahead, but when they are first called: {error}")
        return 0


def _print_platform(target: Path) -> int:
    from gmdb.kernel.build.platforms import platform_tag
    from gmdb.kernel.build.target import this_target

    print(platform_tag(target, this_target()))
    return 0


def _build(target: Path, processes: int | None) -> int:
    if importlib.util.find_spec("numba") is None:
        raise KernelsUnavailable("Numba, which compiles kernels, is not installed; install gmdb[jit]")
    from gmdb.kernel.build.whole import build, is_built

    if is_built(target):
        return 0
    beside_sources = Path(ahead.__file__).with_name(ahead.FILE)
    if is_built(beside_sources):
        shutil.copyfile(beside_sources, target)
        return 0
    started = time.monotonic()
    print("compiling the kernels ahead; this takes about a minute", flush=True)
    count = build(target, processes)
    size = target.stat().st_size
    print(f"compiled {count} kernels in {time.monotonic() - started:.0f} s, {size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
