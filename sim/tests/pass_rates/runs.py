"""Runs files of tests, each in a process of its own, and collects the state of each test."""

import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import processes
import table

# Seconds.
LIMIT = 600

# The state of each test, "pass", "skip" or "fail", and the text of its error.
States = dict[str, tuple[str, str]]


def timed(command: list[str]) -> tuple[str, str]:
    """Run a command; return what it printed, and how it ended: "", "time-out" or "crash"."""
    printed, code = processes.timed(command, LIMIT, stderr=subprocess.STDOUT)
    return printed, "time-out" if code is None else "crash by signal" if code < 0 else ""


def unittest_module(module: str) -> States:
    """Run a module of unittest's.

    Those that fail run again, each in a process of its own: a kernel's fault ends its context, and with that the tests
    after it in the same process.
    """
    states = in_one_process(module)
    failed = [test for test, (state, _) in states.items() if state == "fail" and test != module]
    for test in failed if len(states) > 1 else []:
        states |= in_one_process(test)
    return states


def in_one_process(module: str) -> States:
    """Run a module, a class or a test of unittest's."""
    printed, end = timed([sys.executable, str(Path(__file__).parent), "module", module])
    lines = [json.loads(line[5:]) for line in printed.splitlines() if line.startswith("TEST ")]
    states: States = {}
    for test, state, text in lines:
        # A failed subtest comes before its test.
        if states.get(test, ("",))[0] != "fail":
            states[test] = (state, text)
    if end:
        states[module] = ("fail", end)
    return states


def pytest_file(file: str) -> States:
    """Run a file by pytest."""
    with TemporaryDirectory() as temporary:
        report = Path(temporary, "report.xml")
        # pycuda's tests of big arrays take more memory than most machines have, whose kernel ends the process then.
        options = ["-q", "-p", "no:cacheprovider", "-o", "addopts=", "-k", "not big_array", f"--junit-xml={report}"]
        printed, end = timed([sys.executable, "-m", "pytest", *options, file])
        cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
    states: States = {}
    for case in cases:
        test = f"{case.get('classname')}::{case.get('name')}"
        bad, skipped = case.find("failure"), case.find("skipped")
        bad = case.find("error") if bad is None else bad
        if bad is not None:
            states[test] = ("fail", bad.get("message", ""))
        else:
            states[test] = ("pass", "") if skipped is None else ("skip", skipped.get("message", ""))
    if end or not cases:
        states[file] = ("fail", end or printed.strip().splitlines()[-1])
    return states


def run_all(name: str, files: list[str], run: Callable[[str], States], output: Path) -> None:
    """Run files on all processors. The results are written after each, for a run that is cut short."""
    started = time.monotonic()
    results: dict[str, Any] = {"name": name, "files": len(files), "done": 0, "states": {}}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = {pool.submit(run, file): file for file in files}
        try:
            for done in as_completed(runs):
                states = done.result()
                results["done"] += 1
                results["seconds"] = time.monotonic() - started
                results["states"] |= states
                output.write_text(json.dumps(results, indent=1))
                counts = dict(Counter(state for state, _ in states.values()))
                print(f"{results['done']}/{len(files)} {runs[done]} {counts}", flush=True)
        except KeyboardInterrupt:
            # At once: the threads would start the next tests.
            processes.kill_all()
            os._exit(130)
    print(table.row(results))
