"""Plots of copies: times and bandwidths by size."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from figures import OURS, PEERS, Curves, legend_below, page, save, time_in_words
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

MARKERS = "svv^^"


def bytes_in_words(value: float, _position: object = None) -> str:
    """Format a number of bytes."""
    for limit, unit in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= limit:
            return f"{value / limit:g} {unit}"
    return f"{value:g} B"


def rate_in_words(value: float, _position: object = None) -> str:
    """Format gigabytes per second."""
    return f"{value:g} GB/s" if value >= 1 else f"{value * 1e3:g} MB/s"


def is_ours(name: str) -> bool:
    """Return whether a curve is this library's."""
    return name.startswith(("Memory", "vkgdr", "Pool"))


def draw(axes: Axes, curves: Curves, *, rate: bool) -> None:
    """Plot times, or bandwidths, by size."""
    ours = [name for name in curves if is_ours(name)]
    peers = [name for name in curves if not is_ours(name)]
    for name, points in curves.items():
        points.sort()
        values = [size / median if rate else median for size, median in points]
        if is_ours(name):
            look = {"color": OURS[ours.index(name) % 2], "marker": "o", "linewidth": 2.6, "zorder": 3}
        else:
            index = peers.index(name) % len(PEERS)
            look = {"color": PEERS[index], "marker": MARKERS[index], "linewidth": 1.3, "zorder": 4}
        axes.plot([size for size, _ in points], values, label=name, markersize=4, **look)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(LogLocator(base=2**4, numticks=12))
    axes.xaxis.set_major_formatter(FuncFormatter(bytes_in_words))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(rate_in_words if rate else time_in_words))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(which="major", color="#cccccc", linewidth=0.6)


def two_plots(
    series: dict[str, Curves], names: tuple[str, str], of: str, results: dict[str, Any], folder: Path, *, on_gpu: bool
) -> list[Path]:
    """Plot times and bandwidths, with a panel for each series."""
    files = []
    for name, rate in zip(names, (False, True), strict=True):
        if not series:
            break
        title = f"{'Bandwidth' if rate else 'Latency'} of copies between the CPU's memory and {of}"
        figure, axes = page(title, results, len(series), on_gpu=on_gpu)
        for panel, (what, curves) in zip(axes, series.items(), strict=True):
            draw(panel, curves, rate=rate)
            panel.set_title(what)
            panel.set_xlabel("bytes")
        axes[0].set_ylabel("bandwidth, median" if rate else "time, median")
        legend_below(figure, axes[0])
        files.append(save(figure, folder / name))
    return files


def copies(results: dict[str, Any], folder: Path) -> list[Path]:
    """Plot latency and bandwidth of copies to and from GPU memory."""
    series: dict[str, Curves] = {}
    for sample in results["benches"].get("gpu", {}).get("samples", []):
        point = (sample["bytes"], sample["time"]["median_ns"])
        series.setdefault(sample["series"], {}).setdefault(sample["way"], []).append(point)
    return two_plots(series, ("latency.png", "bandwidth.png"), "GPU memory", results, folder, on_gpu=True)


def cached(results: dict[str, Any], folder: Path) -> list[Path]:
    """Plot copies in cached memory, which are real even on the simulated driver."""
    series: dict[str, Curves] = {}
    for row in results["benches"].get("copies", {}).get("rows", []):
        found = re.match(r"(write|read), (\d+) B\b", row["what"])
        if not found or "ours" not in row:
            continue
        curves = series.setdefault(found[1], {})
        for name, side in (("Memory, host", row["ours"]), (row["peer_is"], row["peer"])):
            curves.setdefault(name, []).append((int(found[2]), side["median_ns"]))
    names = ("cached-latency.png", "cached-bandwidth.png")
    return two_plots(series, names, "cached memory", results, folder, on_gpu=False)
