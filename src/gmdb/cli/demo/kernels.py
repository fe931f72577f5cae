"""The first chapter: machine code for this machine, made once."""

from __future__ import annotations

from pathlib import Path

from gmdb.cli.compiling import compile_kernels
from gmdb.cli.demo.steps import Story


def prepare(story: Story) -> None:
    """Compile what comes next, so that its time is not the compiler's."""
    with story.step("load the kernels") as notes:
        import gmdb.server.connect  # noqa: F401 - what every connection needs
        from gmdb.kernel.kept import kept_in

        made = compile_kernels()
        where = str(kept_in()).replace(str(Path.home()), "~", 1)
        notes.append(f"compiled {made} of them, once; kept in {where}" if made else f"compiled before, kept in {where}")
