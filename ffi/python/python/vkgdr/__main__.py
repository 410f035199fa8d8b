"""``python -m vkgdr``: prints the GPUs with their kinds of memory, and the reason if one cannot be opened."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import textwrap

import vkgdr
from vkgdr import _vkgdr

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from vkgdr.typing import Kind

    Rows = list[tuple[str, list[str]]]

__all__ = ["main"]

_DESCRIPTION = """\
Print every CUDA device with the memory that this package can allocate on it: Vulkan's memory types, their sizes, and
the part of GPU memory that the CPU can map through the PCIe BAR. If a driver or a GPU cannot be used, print the reason
and exit with 1.
"""

_KINDS: tuple[Kind, ...] = ("mapped", "host", "device")

# In terminals with fewer columns each value is printed below its label.
_NARROW = 60


def _bar_of_pci(bus_id: str) -> int | None:
    """Return the size of BAR 1 from sysfs, in bytes; None if it is unknown."""
    try:
        with open(f"/sys/bus/pci/devices/{bus_id.lower()}/resource", encoding="ascii") as file:
            start, end, _ = file.read().splitlines()[1].split()
        size = int(end, 16) - int(start, 16) + 1
    except (OSError, ValueError, IndexError):
        return None
    # An absent BAR is all zeros.
    return size if size > 1 else None


def _facts_of_kind(gpu: vkgdr.Vkgdr, kind: Kind) -> dict[str, Any]:
    try:
        info, memory_type = gpu.memory_info(kind), gpu.memory_type_of(kind)
    except vkgdr.VkgdrError as error:
        return {"error": str(error)}
    return {
        "memory_type": memory_type.index,
        "flags": memory_type.flags,
        "coherent": "HOST_COHERENT" in memory_type.flags if kind != "device" else None,
        "heap": memory_type.heap,
        "heap_size": memory_type.heap_size,
        "free": info.free,
        "total": info.total,
        "source": info.source,
    }


def _facts_of_device(number: int) -> dict[str, Any]:
    facts: dict[str, Any] = {"device": number}
    try:
        gpu = vkgdr.Vkgdr(number)
        kinds = {kind: _facts_of_kind(gpu, kind) for kind in _KINDS}
        bus_id = gpu.pci_bus_id
        facts |= {
            "name": gpu.name,
            "uuid": str(gpu.uuid),
            "pci_bus_id": bus_id,
            "bar_size": kinds["mapped"].get("total"),
            "pci_bar1_size": _bar_of_pci(bus_id),
            "kinds": kinds,
        }
    except vkgdr.VkgdrError as error:
        facts["error"] = str(error)
    return facts


def _facts() -> dict[str, Any]:
    """Collect the properties of all GPUs."""
    facts: dict[str, Any] = {"version": vkgdr.__version__, "cuda_version": None, "devices": []}
    try:
        version = _vkgdr.driver_version()
        facts["cuda_version"] = f"{version // 1000}.{version % 1000 // 10}"
        facts["devices"] = [_facts_of_device(number) for number in range(_vkgdr.device_count())]
        if not facts["devices"]:
            facts["error"] = "the CUDA driver has no device"
    except vkgdr.VkgdrError as error:
        facts["error"] = str(error)
    return facts


def _size(number: int) -> str:
    """Format a number of bytes in binary units."""
    value, unit = float(number), "bytes"
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if value == int(value) else f"{value:.1f} {unit}"


def _row_of_kind(kind: str, facts: dict[str, Any]) -> tuple[str, list[str]]:
    if "error" in facts:
        return kind, [f"none: {facts['error']}"]
    coherence = {True: ", coherent", False: ", not coherent: flush and invalidate", None: ""}[facts["coherent"]]
    total = _size(facts["total"])
    sources = {"budget": "by Vulkan's live budget", "system": "by the system", "cuMemGetInfo": "by cuMemGetInfo"}
    source = sources.get(facts["source"])
    place = (
        "not from Vulkan"
        if facts["memory_type"] is None
        else f"memory type {facts['memory_type']}, heap {facts['heap']}"
    )
    return kind, [
        f"{total}, no live budget" if source is None else f"{_size(facts['free'])} free of {total}, {source}",
        f"{place}{coherence}",
        ", ".join(facts["flags"]) or "no property flags",
    ]


def _row_of_bar(facts: dict[str, Any]) -> tuple[str, list[str]]:
    kinds = facts["kinds"]
    if facts["bar_size"] is None:
        return "BAR", ["none that Vulkan can map"]
    lines = [f"{_size(facts['bar_size'])}, the heap of mapped memory"]
    if kinds["mapped"]["heap"] == kinds["device"].get("heap"):
        lines[0] += ": all of the GPU's memory"
    if facts["pci_bar1_size"] is not None:
        lines.append(f"{_size(facts['pci_bar1_size'])}, PCI's BAR 1 as Linux has it")
    return "BAR", lines


def _rows(facts: dict[str, Any]) -> Rows:
    if "error" in facts:
        return [("cannot be opened", [facts["error"]])]
    rows: Rows = [("UUID", [facts["uuid"]]), ("PCI bus", [facts["pci_bus_id"]]), _row_of_bar(facts)]
    return rows + [_row_of_kind(kind, facts["kinds"][kind]) for kind in _KINDS]


def _wrapped(text: str, width: int, first: str, rest: str) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        # Keep UUIDs, paths and flag names unbroken.
        break_long_words=False,
        break_on_hyphens=False,
    )


def _lines(facts: dict[str, Any], width: int) -> list[str]:
    """Format the properties for a terminal of `width` columns."""
    cuda = "" if facts["cuda_version"] is None else f", the driver has CUDA {facts['cuda_version']}"
    lines = _wrapped(f"vkgdr {facts['version']}{cuda}", width, "", "  ")
    for device in facts["devices"]:
        name = f": {device['name']}" if "name" in device else ""
        lines += ["", *_wrapped(f"CUDA device {device['device']}{name}", width, "", "  ")]
        for label, texts in _rows(device):
            if width < _NARROW or "error" in device:
                lines.append(f"  {label}")
                first, rest = "    ", "    "
            else:
                first, rest = f"  {label:<9}", " " * 11
            for text in texts:
                lines += _wrapped(text, width, first, rest)
                first = rest
    if "error" in facts:
        lines += ["", *_wrapped(f"There is no GPU to use: {facts['error']}", width, "", "  ")]
    return lines


def _failed(facts: dict[str, Any]) -> bool:
    return "error" in facts or any("error" in device for device in facts["devices"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the GPUs, and return the exit code.

    Parameters
    ----------
    arguments : sequence of str, optional
        Command-line arguments; those of the process by default.

    Returns
    -------
    int
        0, or 1 if a driver or a GPU cannot be used.
    """
    parser = argparse.ArgumentParser(prog="python -m vkgdr", description=_DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--json", action="store_true", help="print JSON, with all sizes in bytes")
    parser.add_argument("--version", action="version", version=f"vkgdr {vkgdr.__version__}")
    wants_json = parser.parse_args(arguments).json
    facts = _facts()
    if wants_json:
        import json

        text = json.dumps(facts, indent=2)
    else:
        width = min(max(shutil.get_terminal_size().columns, 20), 100)
        text = "\n".join(_lines(facts, width))
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # The reader closed the pipe. Python flushes stdout again at exit, which must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1 if _failed(facts) else 0


if __name__ == "__main__":
    sys.exit(main())
