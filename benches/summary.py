#!/usr/bin/env python3
"""Combine the results of the benches into one table and one JSON file.

    python benches/summary.py SOURCE [--json FILE] [--table FILE] [--all] [--strict]

SOURCE is a folder of the benches' JSON files (with python_peer.json from python_peer.py), the bench.json written by a
GPU machine's run.sh, or a file written by this program. Of rows with the same text before the first comma the table
shows the worst; --all shows all. The exit code is 0 even if goals are missed; with --strict it is 1 then.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from python_peer import GOALS as PYTHON_GOALS
from python_peer import INSTEAD as PYTHON_INSTEAD

Report = dict[str, Any]

SIMULATED = (
    "SIMULATED driver, no GPU: times of drivers and of GPU memory are not times of hardware. "
    "Ratios show what this library adds on the CPU."
)
QUICK = "QUICK run: too few measurements to judge the goals."

# The order of the benches in the table; others follow.
ORDER = ("pool", "copies", "vkgdr", "vkgdr-c", "python_peer", "gpu")

# The keys of a report that describe the machine and the run.
MACHINE = ("driver", "simulated", "nvidia_driver", "cpu", "cores", "kernel", "date", "quick")


@dataclass
class Line:
    """One row of the table."""

    what: str
    # Rows of the same group share one row of the short table.
    group: tuple[str, ...]
    met: bool | None
    ours: str = ""
    peer: str = ""
    ratio: str = ""
    goal: str = ""
    # The result relative to the goal: up to 1 it is met, above it is missed.
    strain: float = 0.0
    # The amount by which the goal is missed, as text.
    excess: str = ""
    # Whether the row has a goal that could not be judged.
    unjudged: bool = False


def time(nanoseconds: float | None) -> str:
    """Format a number of nanoseconds with a suitable unit."""
    if nanoseconds is None:
        return "-"
    for limit, unit in ((1e3, "ns"), (1e6, "us"), (1e9, "ms")):
        if nanoseconds < limit:
            return f"{nanoseconds / (limit / 1e3):.3g} {unit}" if nanoseconds < limit * 0.9995 else f"1000 {unit}"
    return f"{nanoseconds / 1e9:.3g} s"


def line_of(bench: str, row: dict[str, Any]) -> Line:
    """Convert a row of a report to a line of the table."""
    goal, met = row.get("goal"), row.get("met")
    line = Line(row["what"], (bench, row["what"].split(",")[0]), met)
    if "skipped" in row:
        line.ours = f"not measured: {row['skipped']}"
        line.group += ("skipped",)
        return line
    if "count" in row:
        number = row["count"]
        line.ours, line.goal, line.strain = f"{number:g}", f"<= {goal:g}", (number + 1e-9) / (goal + 1e-9)
        line.excess = f"{number - goal:g} too many"
        return line
    line.ours = time(row["ours"]["median_ns"])
    line.peer = f"{time(row['peer']['median_ns'])}, {row['peer_is']}"
    line.group += (row["peer_is"].split(":")[0], str(goal))
    line.unjudged = goal is not None and met is None
    if "difference_ns" in row:
        result = row["difference_ns"]
        line.ratio, line.goal, line.strain = f"{result:+.2f} ns", f"<= {goal:+g} ns", result / goal
        line.excess = f"{result - goal:.2f} ns too much"
    elif "time_ns" in row:
        result = row["time_ns"]
        line.ratio, line.goal, line.strain = time(result), f"<= {goal:g} ns", result / goal
        line.excess = f"{result - goal:.2f} ns too much"
    elif "times_as_fast" in row:
        result = row["times_as_fast"]
        line.ratio, line.goal, line.strain = f"1 / {result:.3g}", f"<= 1 / {goal:g}", goal / result
        line.excess = f"{result:.3g} times as fast instead of {goal:g}"
    else:
        result = row["ratio"]
        line.ratio, line.strain = f"{result:.4g}", result / (goal or 1.0)
        if goal is not None:
            line.goal = f"<= {goal:g}"
            line.excess = f"{line.strain:.3g} times the goal"
    return line


def python_report(samples: dict[str, dict[str, list[float]]]) -> Report:
    """Convert the samples of python_peer.py to a report; its ratio is that of the minima."""

    def side(seconds: list[float]) -> dict[str, float]:
        ninetieth = sorted(seconds)[len(seconds) * 9 // 10]
        values = {"min_ns": min(seconds), "median_ns": statistics.median(seconds), "p90_ns": ninetieth}
        return {name: round(value * 1e9, 3) for name, value in values.items()}

    rows: list[dict[str, Any]] = []
    for name, goal in PYTHON_GOALS.items():
        theirs = PYTHON_INSTEAD.get(name, name)
        ours, peer = samples["ours"].get(name), samples["peer"].get(theirs)
        if not ours or not peer:
            rows.append({"what": f"Python: {name}", "skipped": "one of the packages lacks it"})
            continue
        ratio = round(min(ours) / min(peer), 6)
        rows.append(
            {
                "what": f"Python: {name}",
                "ours": side(ours),
                "peer_is": "vkgdr 0.1" if theirs == name else f"vkgdr 0.1's {theirs}",
                "peer": side(peer),
                "rounds": len(ours),
                "ratio": ratio,
                "goal": goal,
                "met": None if goal is None else ratio <= goal,
            }
        )
    return {"rows": rows, "samples": []}


def reports_of(source: Path) -> dict[str, Report]:
    """Read the reports, by the names of the benches."""
    if source.is_dir():
        files = {file.stem: json.loads(file.read_text()) for file in sorted(source.glob("*.json"))}
    else:
        content = json.loads(source.read_text())
        # Written by this program, or by a GPU machine: there by file name, with criterion's estimates among them.
        files = content.get("benches") or {
            Path(name).stem: report for name, report in content.items() if name.startswith("bench/")
        }
    if "python_peer" in files and "rows" not in files["python_peer"]:
        files["python_peer"] = python_report(files["python_peer"])
    reports = {name: report for name, report in files.items() if isinstance(report, dict) and "rows" in report}
    if not reports:
        raise SystemExit(f"{source}: no bench results found")
    return dict(sorted(reports.items(), key=lambda item: ORDER.index(item[0]) if item[0] in ORDER else len(ORDER)))


def summarise(reports: dict[str, Report]) -> dict[str, Any]:
    """Combine the reports into one JSON value."""
    machine: dict[str, Any] = {}
    for report in reports.values():
        for name in MACHINE:
            if name in report:
                machine[name] = report[name]
        machine |= report.get("facts", {})
    notes = [SIMULATED] if machine.get("simulated") else []
    notes += [QUICK] if machine.get("quick") else []
    return {"machine": machine, "notes": notes, "benches": reports}


def shortened(lines: list[Line]) -> list[Line]:
    """Keep the worst line of each group, with a note of the group's size."""
    groups: dict[tuple[str, ...], list[Line]] = {}
    for line in lines:
        groups.setdefault(line.group, []).append(line)
    short = []
    for group in groups.values():
        worst = max(group, key=lambda line: (line.met is False, line.strain))
        if len(group) > 1:
            missed = sum(line.met is False for line in group)
            note = f" (worst of {len(group)}" + (f", {missed} missed)" if missed else ")")
            worst = replace(worst, what=worst.what + note)
        short.append(worst)
    return short


def table_of(lines: list[Line]) -> str:
    """Format lines as a table."""
    verdict = {True: "yes", False: "NO", None: ""}
    cells = [("what", "ours", "peer", "ratio", "goal", "met")]
    for line in lines:
        met = "needs a GPU" if line.unjudged else verdict[line.met]
        cells.append((line.what, line.ours, line.peer, line.ratio, line.goal, met))
    # The reason of a skipped row may extend into the next columns.
    widths = [max(len(row[i]) for row in cells if not (i == 1 and not row[3] and not row[4])) for i in range(6)]
    rows = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    rows.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(rows)


def heading(summary: dict[str, Any]) -> str:
    """Format the machine and the notes."""
    machine = summary["machine"]
    parts = [machine.get("driver"), machine.get("nvidia_driver"), machine.get("cpu")]
    parts += [f"{machine['cores']} cores"] if "cores" in machine else []
    parts += [f"copy routine {machine['copy routine']}"] if "copy routine" in machine else []
    parts.append(machine.get("date"))
    return "\n".join([" | ".join(part for part in parts if part), *summary["notes"]])


def verdict_of(lines: list[Line], shown: list[Line]) -> str:
    """Format the number of goals met, and the misses among the shown lines."""
    missed = [line for line in lines if line.met is False]
    judged = sum(line.met is not None for line in lines)
    unjudged = sum(line.unjudged for line in lines)
    text = f"{judged - len(missed)} of {judged} goals met"
    text += f", {unjudged} need a GPU" if unjudged else ""
    for line in shown:
        if line.met is not False:
            continue
        against = f" against {line.peer.split(', ', 1)[1]}" if line.peer else ""
        text += f"\n  missed: {line.what}{against}: {line.ratio or line.ours}, goal {line.goal}: {line.excess}"
    return text


def main() -> int:
    """Read the reports, print the table and write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything to FILE")
    parser.add_argument("--table", type=Path, metavar="FILE", help="write the table with all rows to FILE")
    parser.add_argument("--all", action="store_true", help="print all rows")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a goal is missed")
    options = parser.parse_args()
    summary = summarise(reports_of(options.source))
    lines = [line_of(bench, row) for bench, report in summary["benches"].items() for row in report["rows"]]

    def text(shown: list[Line]) -> str:
        return f"{heading(summary)}\n\n{table_of(shown)}\n\n{verdict_of(lines, shown)}\n"

    if options.json:
        options.json.write_text(json.dumps(summary, indent=1) + "\n")
    if options.table:
        options.table.write_text(text(lines))
    print(text(lines if options.all else shortened(lines)), end="")
    return 1 if options.strict and any(line.met is False for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
