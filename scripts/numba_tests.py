"""Runs numba-cuda's own driver and IPC tests with numba's memory manager and with vkgdr's, and lists the differences.

On the simulated GPU, where some tests fail with any manager. Exits with 1 if a test passes with numba's manager alone,
not counting those that numba skips under every external manager.
"""

import importlib
import os
import pkgutil
import subprocess
import sys
import unittest

SUITES = ("numba.cuda.tests.cudadrv", "numba.cuda.tests.cudapy.test_ipc")
MANAGERS = ("default", "vkgdr.numba")
EXTERNAL = "Deallocation specific to Numba memory management"


class Results(unittest.TextTestResult):
    """Prints a line for each test: its state, its name and the reason of a skip."""

    def _print(self, state: str, test: unittest.TestCase, reason: str = "") -> None:
        print("TEST", state, test.id(), reason, file=sys.stdout, flush=True)

    def addSuccess(self, test):  # noqa: D102, N802 - unittest's
        super().addSuccess(test)
        self._print("pass", test)

    def addFailure(self, test, err):  # noqa: D102, N802
        super().addFailure(test, err)
        self._print("fail", test)

    def addError(self, test, err):  # noqa: D102, N802
        super().addError(test, err)
        self._print("fail", test)

    def addSkip(self, test, reason):  # noqa: D102, N802
        super().addSkip(test, reason)
        self._print("skip", test, reason)

    def addSubTest(self, test, subtest, err):  # noqa: D102, N802
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._print("fail", test)


def run_suites() -> None:
    """Run the tests in this process."""
    suite = unittest.TestSuite()
    for name in SUITES:
        module = importlib.import_module(name)
        path = getattr(module, "__path__", None)
        names = [name] if path is None else [f"{name}.{found.name}" for found in pkgutil.iter_modules(path)]
        suite.addTests(unittest.defaultTestLoader.loadTestsFromNames(names))
    unittest.TextTestRunner(resultclass=Results, verbosity=0).run(suite)


def states(manager: str) -> dict[str, str]:
    """Run the tests with a manager in a process of its own; return the state of each."""
    environment = os.environ | {"NUMBA_CUDA_MEMORY_MANAGER": manager}
    command = [sys.executable, __file__, "--suites"]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=3600, check=False)
    if done.returncode:
        sys.exit(f"{manager}: exit code {done.returncode}")
    found: dict[str, str] = {}
    for line in done.stdout.splitlines():
        if line.startswith("TEST "):
            _, state, test, reason = line.split(" ", 3)
            state = "external" if reason == EXTERNAL else state
            # A failed subtest comes before its test.
            found[test] = "fail" if found.get(test) == "fail" else state
    return found


def main() -> None:
    """Compare the two managers."""
    numbas, ours = (states(manager) for manager in MANAGERS)
    differences = {
        test: (numbas.get(test), ours.get(test)) for test in numbas | ours if numbas.get(test) != ours.get(test)
    }
    for test, (before, now) in sorted(differences.items()):
        print(f"{test}: {before} with numba's manager, {now} with vkgdr's")
    passed = [list(of.values()).count("pass") for of in (numbas, ours)]
    print("{} pass with numba's manager, {} with vkgdr's".format(*passed))
    if any(before == "pass" and now != "external" for before, now in differences.values()):
        sys.exit("a test passes with numba's manager alone")


if __name__ == "__main__":
    if "--suites" in sys.argv:
        run_suites()
    else:
        main()
