"""Plot of the pool's allocations by the number of live chunks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from figures import OURS, PEERS, Curves, legend_below, page, save, time_in_words
from matplotlib.ticker import FuncFormatter, StrMethodFormatter


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
