#!/usr/bin/env -S uv run
# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "matplotlib==3.11.2",
#     "contourpy==1.3.3",
#     "cycler==0.12.1",
#     "fonttools==4.68.0",
#     "kiwisolver==1.5.1",
#     "numpy==2.4.6",
#     "packaging==26.3",
#     "pillow==13.0.0",
#     "pyparsing==3.3.3",
#     "python-dateutil==4.0.0",
#     "tzdata==2026.6",
# ]
# ///
"""Plot the results of `cargo xtask bench`, results.json, as PNG files.

    uv run benches/plots.py RESULTS.json FOLDER

Plots latency.png and bandwidth.png (copies to and from GPU memory by
size), cached-latency.png and cached-bandwidth.png (copies in cached memory), and allocation.png (by the number of live
chunks); omits plots without results.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, StrMethodFormatter

# Points by the name of the curve: x, and the median in nanoseconds.
Curves = dict[str, list[tuple[float, float]]]

# Okabe and Ito's colour-blind safe palette; this library's curves are thicker.
OURS = ("#d55e00", "#e69f00")
PEERS = ("#000000", "#0072b2", "#56b4e9", "#009e73", "#cc79a7")
MARKERS = "svv^^"


def bytes_in_words(value: float, _position: object = None) -> str:
    """Format a number of bytes."""
    for limit, unit in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= limit:
            return f"{value / limit:g} {unit}"
    return f"{value:g} B"


def time_in_words(value: float, _position: object = None) -> str:
    """Format a number of nanoseconds."""
    for limit, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if value >= limit:
            return f"{value / limit:g} {unit}"
    return f"{value:g} ns"


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


def page(title: str, results: dict[str, Any], panels: int, *, on_gpu: bool) -> tuple[Figure, list[Axes]]:
    """Create a figure whose title names the machine, with a watermark if the GPU is simulated."""
    machine = results["machine"]
    figure, axes = plt.subplots(1, panels, figsize=(6.5 * panels, 5.4), sharey=True, squeeze=False)
    where = [machine.get("driver") if on_gpu else None, machine.get("cpu"), machine.get("date")]
    where += ["QUICK run"] if machine.get("quick") else []
    figure.suptitle(f"{title}\n" + ", ".join(part for part in where if part), fontsize=10)
    if on_gpu and machine.get("simulated"):
        note = "SIMULATED: no GPU, not a measure of hardware"
        figure.text(0.5, 0.5, note, fontsize=26, color="#cc0000", alpha=0.18, rotation=18, ha="center", va="center")
    return figure, list(axes[0])


def legend_below(figure: Figure, axes: Axes) -> None:
    """Add one legend below all panels."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=min(4, len(labels)), fontsize=9, frameon=False)
    rows = -(-len(labels) // 4)
    figure.tight_layout(rect=(0, 0.03 + 0.045 * rows, 1, 1))


def copies(results: dict[str, Any], folder: Path) -> list[Path]:
    """Plot latency and bandwidth of copies to and from GPU memory."""
    series: dict[str, Curves] = {}
    for sample in results["benches"].get("gpu", {}).get("samples", []):
        point = (sample["bytes"], sample["time"]["median_ns"])
        series.setdefault(sample["series"], {}).setdefault(sample["way"], []).append(point)
    return two_plots(series, ("latency.png", "bandwidth.png"), "GPU memory", results, folder, on_gpu=True)


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


def curves_of_pools(results: dict[str, Any]) -> dict[str, Curves]:
    """Collect the times of a pair of allocation and free by the number of live chunks, for each operation."""
    drivers = "simulated drivers" if results["machine"].get("simulated") else "the drivers"
    panels: dict[str, Curves] = {}
    for row in results["benches"].get("pool", {}).get("rows", []):
        found = re.match(r"pool, (.+), (beside|replacing)[^\d]* (\d+) live", row["what"])
        if not found or "ours" not in row:
            continue
        lengths, operation, live = found[1], found[2], int(found[3])
        curves = panels.setdefault(operation, {})
        if row["peer_is"] == "offset-allocator":
            curves.setdefault(f"vkgdr, {lengths}", []).append((live, row["ours"]["median_ns"]))
            curves.setdefault(f"offset-allocator, {lengths}", []).append((live, row["peer"]["median_ns"]))
        elif "to" in lengths:
            # One curve is enough: the drivers' time does not depend on the lengths.
            curves.setdefault(f"{drivers}, {lengths}", []).append((live, row["peer"]["median_ns"]))
    return panels


def allocation(results: dict[str, Any], folder: Path) -> list[Path]:
    """Plot the time of a pair of allocation and free by live chunks, real except for the drivers' curve."""
    panels = curves_of_pools(results)
    if not panels:
        return []
    figure, axes = page("Allocate and free, by live chunks", results, len(panels), on_gpu=False)
    lengths_seen = {name.split(", ", 1)[1]: None for curves in panels.values() for name in curves}
    colour = dict(zip(lengths_seen, (*OURS, *PEERS), strict=False))
    styles = {"vkgdr": ("-", "o", 2.6), "offset-allocator": ("--", "s", 1.3)}
    for panel, (operation, curves) in zip(axes, panels.items(), strict=True):
        for name, points in curves.items():
            who, lengths = name.split(", ", 1)
            style, marker, width = styles.get(who, (":", "^", 1.3))
            points.sort()
            panel.plot(
                [point[0] for point in points],
                [point[1] for point in points],
                label=name,
                linestyle=style,
                marker=marker,
                markersize=4,
                linewidth=width,
                color=colour[lengths],
            )
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        panel.yaxis.set_major_formatter(FuncFormatter(time_in_words))
        panel.grid(which="major", color="#cccccc", linewidth=0.6)
        panel.set_title(
            "frees the last allocation" if operation == "beside" else "replaces one of the live chunks, at random"
        )
        panel.set_xlabel("live chunks")
    axes[0].set_ylabel("time of a pair, median")
    legend_below(figure, axes[0])
    return [save(figure, folder / "allocation.png")]


def save(figure: Figure, file: Path) -> Path:
    """Save and close a figure."""
    figure.savefig(file, dpi=110)
    plt.close(figure)
    return file


def main() -> int:
    """Plot everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    mpl.use("agg")
    results = json.loads(options.results.read_text())
    options.folder.mkdir(parents=True, exist_ok=True)
    for plot in (copies, cached, allocation):
        for file in plot(results, options.folder):
            print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
