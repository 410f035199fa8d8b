"""One module of unittest's tests in this process: a line of JSON for each test."""

import json
import os
import sys
import unittest


class Results(unittest.TextTestResult):
    """Prints a line of JSON for each test: its name, its state and the text of its error."""

    def _print(self, state: str, test: unittest.TestCase, text: str = "") -> None:
        print("TEST", json.dumps([test.id(), state, text]), file=sys.stdout, flush=True)

    def addSuccess(self, test):  # noqa: N802 - unittest's
        super().addSuccess(test)
        self._print("pass", test)

    def addFailure(self, test, err):  # noqa: N802
        super().addFailure(test, err)
        self._print("fail", test, f"{err[0].__name__}: {err[1]}")

    def addError(self, test, err):  # noqa: N802
        super().addError(test, err)
        # unittest takes pytest's skips for errors.
        state = "skip" if err[0].__name__ == "Skipped" else "fail"
        self._print(state, test, f"{err[0].__name__}: {err[1]}")

    def addSkip(self, test, reason):  # noqa: N802
        super().addSkip(test, reason)
        self._print("skip", test, reason)

    def addExpectedFailure(self, test, err):  # noqa: N802
        super().addExpectedFailure(test, err)
        self._print("pass", test)

    def addSubTest(self, test, subtest, err):  # noqa: N802
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._print("fail", test, f"{err[0].__name__}: {err[1]}")


def run_module(name: str) -> None:
    """Run one module of unittest's in this process."""
    suite = unittest.defaultTestLoader.loadTestsFromName(name)
    unittest.TextTestRunner(resultclass=Results, verbosity=0, stream=open(os.devnull, "w")).run(suite)  # noqa: SIM115
