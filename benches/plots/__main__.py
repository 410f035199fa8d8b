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

    uv run benches/plots/__main__.py RESULTS.json FOLDER

Plots latency.png and bandwidth.png (copies to and from GPU memory by size), cached-latency.png and cached-bandwidth.png
(copies in cached memory), and allocation.png (by the number of live chunks); omits plots without results.
"""

import argparse
import json
import sys
from pathlib import Path

import matplotlib as mpl
from copies import cached, copies
from pools import allocation


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
