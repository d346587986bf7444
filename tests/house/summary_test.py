#!/usr/bin/env python3
"""Runs summary.py on outputs in the forms of Catch2 v2 and v3 and Meson."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

import summary

RULE = "=" * 79 + "\n"
V2_PASSED = RULE + "All tests passed (12 assertions in 3 test cases)\n\n"
V2_ONE = "Filters: a\n" + RULE + "All tests passed (1 assertion in 1 test case)\n\n"
V2_FAILED = (RULE + "test cases:  4 | 2 passed |  1 failed | 1 failed as expected\n"
             "assertions: 79 | 1 passed | 77 failed | 1 failed as expected\n\n")
V2_ONLY_EXPECTED = (RULE + "test cases: 1 | 1 failed as expected\n"
                    "assertions: 1 | 1 failed as expected\n\n")
V2_NO_ASSERTIONS = RULE + "test cases: 2 | 2 passed\nassertions: - none -\n\n"
NO_TESTS = "No test cases matched 'x'\n" + RULE + "No tests ran\n\n"
V3_MIXED = (RULE + "test cases: 6 | 3 passed | 1 skipped | 2 failed\n"
            "assertions: 9 | 7 passed | 2 failed\n\n")
V3_ALL_SKIPPED = RULE + "test cases: 2 | 2 skipped\nassertions: - none -\n\n"


def entry(result, stdout=""):
    return {"name": "a test", "result": result, "stdout": stdout}


class OneTest(unittest.TestCase):
    def check(self, result, stdout, expected):
        self.assertEqual(summary.count(entry(result, stdout)), expected)

    def test_catch2_cases_are_counted(self):
        self.check("OK", V2_PASSED, (3, 0, 0))
        self.check("OK", V2_ONE, (1, 0, 0))
        self.check("OK", V2_NO_ASSERTIONS, (2, 0, 0))
        self.check("OK", V2_ONLY_EXPECTED, (1, 0, 0))
        self.check("FAIL", V2_FAILED, (3, 1, 0))
        self.check("FAIL", V3_MIXED, (3, 2, 1))
        self.check("FAIL", V3_ALL_SKIPPED, (0, 0, 2))

    def test_another_program_counts_as_one(self):
        self.check("OK", "", (1, 0, 0))
        self.check("OK", V2_FAILED + "four\nmore\nlines\nfollow\n", (1, 0, 0))
        self.check("FAIL", "", (0, 1, 0))
        self.check("EXPECTEDFAIL", V2_FAILED, (1, 0, 0))
        self.check("UNEXPECTEDPASS", "", (0, 1, 0))

    def test_a_crash_or_a_hang_is_a_failure(self):
        for result in ("FAIL", "ERROR", "TIMEOUT", "INTERRUPT"):
            self.check(result, "cut o", (0, 1, 0))
            self.check(result, V2_PASSED, (3, 1, 0))
        self.check("FAIL", NO_TESTS, (0, 1, 0))

    def test_status_77_is_skipped_unless_it_counts_failures(self):
        self.check("SKIP", "", (0, 0, 1))
        self.check("SKIP", V2_PASSED, (0, 0, 1))
        self.check("SKIP", V2_FAILED, (3, 1, 0))


class WholeLog(unittest.TestCase):
    def check(self, log, meson_status, line, status):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "testlog.json")
            if log is not None:
                with open(path, "w", encoding="utf-8") as file:
                    file.write(log)
            run = subprocess.run([sys.executable, "-B", summary.__file__, path, str(meson_status)],
                                 capture_output=True, text=True, check=False)
        self.assertEqual((run.stdout, run.returncode), (line + "\n", status))

    def test_counts_are_added(self):
        good = [entry("OK", V2_PASSED), entry("OK"), entry("SKIP")]
        self.check("\n".join(map(json.dumps, good)), 0, "4 passed, 0 failed, 1 skipped", 0)
        bad = good + [entry("FAIL", V3_MIXED), entry("TIMEOUT")]
        self.check("\n".join(map(json.dumps, bad)), 2, "7 passed, 3 failed, 2 skipped", 1)
        skipped = good + [entry("FAIL", V3_ALL_SKIPPED)]
        self.check("\n".join(map(json.dumps, skipped)), 1, "4 passed, 0 failed, 3 skipped", 0)

    def test_failures_count_though_mesons_status_has_wrapped_to_zero(self):
        self.check(json.dumps(entry("FAIL")), 0, "0 passed, 1 failed, 0 skipped", 1)

    def test_no_test_is_no_success(self):
        for log in (None, "", "{cut o", json.dumps(entry("OK", NO_TESTS))):
            self.check(log, 0, "0 passed, 1 failed, 0 skipped", 1)

    def test_a_failure_of_meson_itself_is_told(self):
        self.check(json.dumps(entry("OK")), 1, "1 passed, 1 failed, 0 skipped", 1)


if __name__ == "__main__":
    unittest.main()
