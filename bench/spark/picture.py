"""What was measured, as a picture: seconds by peer, and seconds by rows."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.harness import Result
from bench.spark.growth import Growth, fit

COLORS = {"gmdb": "#1f6feb", "JDBC": "#8b949e", "Parquet": "#2da44e", "source alone": "#d0d7de"}


def draw(file: Path, results: Sequence[Result], measured: Sequence[Growth], heading: str) -> None:
    import matplotlib

    matplotlib.use("Agg")  # draws without a screen
    from matplotlib import pyplot

    panels = len(results) + bool(measured)
    figure, axes = pyplot.subplots(1, panels, figsize=(4.5 * panels, 4.2), squeeze=False, layout="constrained")
    for axis, result in zip(axes[0], results, strict=False):
        _draw_result(axis, result)
    if measured:
        _draw_growth(axes[0][-1], measured)
    figure.suptitle(textwrap.fill(heading, 70 * panels), fontsize=8)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=120)
    pyplot.close(figure)


def _draw_result(axis: Any, result: Result) -> None:
    names = [measured.contender for measured in result.measurements]
    seconds = [measured.median for measured in result.measurements]
    bars = axis.bar(names, seconds, color=[COLORS[name] for name in names])
    axis.bar_label(bars, [f"{value:.1f}" for value in seconds])
    axis.set_ylabel("seconds (median)")
    axis.set_title(result.benchmark.title, fontsize=9)


def _draw_growth(axis: Any, measured: Sequence[Growth]) -> None:
    rows = [growth.rows for growth in measured]
    for name, seconds, marker in (
        ("load", [growth.load_seconds for growth in measured], "s"),
        ("read", [growth.read_seconds for growth in measured], "o"),
    ):
        (line,) = axis.plot(rows, seconds, marker, label=name)
        if len(rows) == 1:
            continue
        fitted = fit(rows, seconds)
        line.set_label(f"{name}: rows^{fitted.exponent:.2f}")
        modelled = [fitted.fixed_seconds + fitted.seconds_per_million * count / 1e6 for count in rows]
        axis.plot(rows, modelled, "--", color=line.get_color(), linewidth=1)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("rows")
    axis.set_ylabel("seconds")
    axis.set_title("gmdb by rows; dashed: a fixed cost and one a row", fontsize=9)
    axis.legend()
