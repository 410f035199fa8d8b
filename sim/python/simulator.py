"""hatchling's hook that puts the built simulator into the wheel.

``VKGDR_SIM_DIR`` is the folder that ``build.sh`` fills, by default ``sim`` in cargo's target folder; both may be
relative to the script's folder.
``VKGDR_SIM_PLATFORM`` is the wheel's platform, by default this machine's, with its glibc.
"""

import os
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "vkgdr_sim/simulator"


class Simulator(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the files, and the platform that they are for."""

    def initialize(self, _version: str, build_data: dict[str, Any]) -> None:
        """Add the files before the wheel is written."""
        target = os.environ.get("CARGO_TARGET_DIR") or "target"
        simulator = os.environ.get("VKGDR_SIM_DIR") or Path(target, "sim")
        folder = Path(self.root, "..", simulator).resolve()
        if not (folder / "vkgdr-sim").exists():
            raise FileNotFoundError(f"{folder} has no simulator: run `make` in {Path(self.root).parent} first")
        # Wheels have no links: `libcuda.so` of a wheel is a file, see build.sh.
        files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
        files = [path for path in files if path.relative_to(folder).parts[0] != "cache"]
        build_data["force_include"] = {str(path): f"{PACKAGE}/{path.relative_to(folder)}" for path in files}
        platform = os.environ.get("VKGDR_SIM_PLATFORM") or sysconfig.get_platform().replace("-", "_")
        build_data["tag"] = f"py3-none-{platform}"
        build_data["pure_python"] = False
