"""Compare what the interpreter accepts with NVIDIA's ptxas, on every module that the interpreter's own tests load.

    python tests/ptxas.py FOLDER

`make ptxas` fills the folder. An interpreter accepts a module if each of its kernels can be launched. Prints the
differences by reason, and exits with 1 where one has none.
"""

import os
import re
import subprocess
import sys
import sysconfig
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PTXAS = Path(sysconfig.get_path("purelib"), "nvidia/cu13/bin/ptxas")
# The oldest GPU that this ptxas knows: code for older ones is compiled for it.
OLDEST = 75
# Patterns of ptxas's errors in modules that are accepted here.
ACCEPTED = {
    "Debug information not found": "debug sections are not read",
    "Source location .* used in inlined_at": "source lines are not checked",
    "Duplicate definition|Inconsistent redefinition": "joined modules repeat weak and external definitions",
    "Parsing error near '-'": "an address may be a name less a number",
    "Incorrect number of elements in vector": "the rest of a vector is zero",
    "State space mismatch": "a load without a state space reaches parameters, too",
    "Invalid initial value symbol": "an initial value may name a function that follows",
}
# Patterns of our errors in modules that ptxas accepts.
REFUSED = {
    "supported": "the simulator lacks it (README, What is refused)",
    "not defined in this module": "each module stands alone: an external variable needs the linker",
    "not declared as a register": "a register has one name: %r01 is not %r1",
    r"expected before '[-+*/%&|^<>~(\[]": "there are neither constant expressions nor elements of arrays",
    "at most 524288 bytes of local": "a driver refuses it when it is loaded",
    "larger than 1 GiB|array is too large": "variables have 1 GiB at most",
    "table of lop3 has eight bits": "ptxas cuts larger tables off",
}


def compiled(file: Path) -> tuple[Path, str, str]:
    """Return a file, the interpreter's error, and that of ptxas; empty where there is none."""
    text, _, ours = file.read_text().rpartition("\n// ")
    target = re.search(r"^\s*\.target\s+sm_(\d+)(\w*)", text, re.MULTILINE)
    number, variant = (int(target[1]), target[2]) if target else (OLDEST, "")
    gpu = f"sm_{number}{variant}" if number >= OLDEST else f"sm_{OLDEST}"
    command = [PTXAS, "-arch", gpu, "-o", "/dev/null", file]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    errors = re.findall(r"(?:error|fatal)\s*: (.*)", run.stderr) or [run.stderr.strip() or f"code {run.returncode}"]
    return file, ours, errors[0] if run.returncode else ""


def main() -> None:
    """Compare the modules of the folder."""
    [folder] = sys.argv[1:]
    files = sorted(Path(folder).glob("*.ptx"))
    reasons: Counter[str] = Counter()
    unknown = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for file, ours, theirs in pool.map(compiled, files):
            if bool(ours) == bool(theirs):
                continue
            known = (REFUSED if ours else ACCEPTED).items()
            reason = next((reason for pattern, reason in known if re.search(pattern, ours or theirs)), None)
            if reason is None:
                unknown.append(f"{file}: {f'refused: {ours}' if ours else f'accepted, ptxas: {theirs}'}")
            else:
                reasons[reason] += 1
    different = reasons.total() + len(unknown)
    print(f"{len(files)} modules, {len(files) - different} as ptxas, {different} not:")
    for reason, count in reasons.most_common():
        print(f"{count:5}  {reason}")
    if unknown or not files:
        sys.exit("\n".join(["without a reason:", *unknown]))


if __name__ == "__main__":
    main()
