"""The unit tests of a crate, each run in a process of its own."""

import json
import re
import subprocess
from pathlib import Path

import runs


def build(folder: Path, features: str) -> str:
    """Build the unit tests of a crate with the features alone; return their program."""
    command = ["cargo", "test", "--lib", "--no-run", "--locked", "--message-format=json"]
    command += [f"--manifest-path={folder}/Cargo.toml", "--no-default-features", f"--features={features}"]
    built = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    [program] = [name for line in built.splitlines() if (name := json.loads(line).get("executable"))]
    return str(program)


def tests(binary: str) -> list[str]:
    """Return the names of the tests in a program."""
    listed = subprocess.run([binary, "--list", "--format=terse"], check=True, stdout=subprocess.PIPE, text=True).stdout
    return [line.removesuffix(": test") for line in listed.splitlines() if line.endswith(": test")]


def run_test(binary: str, test: str) -> runs.States:
    """Run one test of a program of tests."""
    printed, end = runs.timed([binary, "--exact", test, "--test-threads=1"])
    # A test that should panic says so after its name.
    if re.search(rf"^test {test}( - should panic)? \.\.\. ok$", printed, re.MULTILINE):
        return {test: ("pass", "")}
    if re.search(rf"^test {test} \.\.\. ignored", printed, re.MULTILINE):
        return {test: ("skip", "ignored")}
    # Behind the names of the test and the thread.
    return {test: ("fail", end or printed.partition("panicked at")[2][:1000] or printed[-1000:])}
