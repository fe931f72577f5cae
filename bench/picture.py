"""Figures as pictures: how gmdb compares, and how cost grows."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.growth import Curve
from bench.harness import Result

COLORS = {"SQLite": "#8b949e", "DuckDB": "#d29922", "gmdb": "#1f6feb"}
PANELS_A_ROW = 4


def draw_results(file: Path, results: Sequence[Result], heading: str) -> None:
    """A bar for each comparison with a peer: how many times as fast gmdb is, from the least up; the line is 1."""
    pyplot = _pyplot()
    compared = [(result.ratio(peer), result, peer) for result in results for peer in result.measurements[1:]]
    compared.sort(key=lambda one: -one[0])
    figure, axis = pyplot.subplots(figsize=(9, 0.24 * len(compared) + 1.2), layout="constrained")
    labels = [f"{textwrap.shorten(result.benchmark.title, 60)}: {peer.contender}" for _, result, peer in compared]
    ratios = [ratio for ratio, _, _ in compared]
    spreads = [_spread(result, peer.seconds) for _, result, peer in compared]
    errors = [
        [max(ratio - low, 0) for ratio, (low, _) in zip(ratios, spreads, strict=True)],
        [max(high - ratio, 0) for ratio, (_, high) in zip(ratios, spreads, strict=True)],
    ]
    colors = [COLORS.get(peer.contender, "#6e7781") for _, _, peer in compared]
    bars = axis.barh(labels, ratios, xerr=errors, color=colors, error_kw={"linewidth": 0.8, "ecolor": "#57606a"})
    axis.bar_label(bars, [f"{ratio:.2g}\N{MULTIPLICATION SIGN}" for ratio in ratios], padding=4, fontsize=7)
    axis.axvline(1, color="#cf222e", linewidth=1)
    axis.set_xscale("log")
    axis.tick_params(axis="y", labelsize=7)
    axis.set_xlabel(
        "gmdb's speed as a multiple of the peer's; thin lines: the slowest and the fastest round", fontsize=7
    )
    figure.suptitle(heading, fontsize=8)
    _save(pyplot, figure, file)


def _spread(result: Result, peer: Sequence[float]) -> tuple[float, float]:
    """The ratio of each round, in which both took turns: the least and the most."""
    ratios = [theirs / mine for mine, theirs in zip(result.measurements[0].seconds, peer, strict=True)]
    return min(ratios), max(ratios)


def draw_growth(file: Path, curves: Sequence[Curve], heading: str) -> None:
    pyplot = _pyplot()
    rows = math.ceil(len(curves) / PANELS_A_ROW)
    figure, axes = pyplot.subplots(
        rows, PANELS_A_ROW, figsize=(4 * PANELS_A_ROW, 3.4 * rows), squeeze=False, layout="constrained"
    )
    for axis in axes.flat[len(curves) :]:
        axis.axis("off")
    for axis, curve in zip(axes.flat, curves, strict=False):
        _draw_curve(axis, curve)
    figure.suptitle(heading, fontsize=8)
    _save(pyplot, figure, file)


def _draw_curve(axis: Any, curve: Curve) -> None:
    for contender, points in curve.points.items():
        sizes, medians = [point.size for point in points], [point.median for point in points]
        (line,) = axis.plot(sizes, medians, "o-", label=contender, color=COLORS.get(contender), markersize=3)
        least, most = [point.least for point in points], [point.most for point in points]
        axis.fill_between(sizes, least, most, alpha=0.2, color=line.get_color())
    axis.set_xscale("symlog" if any(p.size == 0 for points in curve.points.values() for p in points) else "log")
    axis.set_yscale("log")
    axis.set_xlabel(curve.axis)
    axis.set_ylabel(curve.unit)
    axis.set_title(curve.title, fontsize=9)
    axis.grid(True, which="major", alpha=0.3)
    axis.legend(fontsize=7)


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")  # draws without a screen
    from matplotlib import pyplot

    return pyplot


def _save(pyplot: Any, figure: Any, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=120)
    pyplot.close(figure)
