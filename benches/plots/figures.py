"""Colours, units, and figures that name the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Points by the name of the curve: x, and the median in nanoseconds.
Curves = dict[str, list[tuple[float, float]]]

# Okabe and Ito's colour-blind safe palette; this library's curves are thicker.
OURS = ("#d55e00", "#e69f00")
PEERS = ("#000000", "#0072b2", "#56b4e9", "#009e73", "#cc79a7")


def time_in_words(value: float, _position: object = None) -> str:
    """Format a number of nanoseconds."""
    for limit, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if value >= limit:
            return f"{value / limit:g} {unit}"
    return f"{value:g} ns"


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


def save(figure: Figure, file: Path) -> Path:
    """Save and close a figure."""
    figure.savefig(file, dpi=110)
    plt.close(figure)
    return file
