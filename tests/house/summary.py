#!/usr/bin/env python3
"""Prints "N passed, N failed, N skipped" for a Meson test log.

usage: summary.py TESTLOG.json MESON_STATUS

If a test is a Catch2 program (v2 or v3), its test cases count; the last lines of its output
say how many there are. Any other test counts as one. The exit status is 0 if something ran
and nothing failed.
"""

import json
import re
import sys

ALL_PASSED = re.compile(r"^All tests passed \(.* in (\d+) test cases?\)$")
CASES = re.compile(r"^test cases: +(\d+) \|(.*)$")
NO_CASES = re.compile(r"^No tests ran$")


def catch2_counts(stdout):
    """Returns (passed, failed, skipped) test cases, or None if Catch2 did not write the output."""
    for line in reversed(stdout.rstrip().splitlines()[-3:]):
        if match := ALL_PASSED.match(line):
            return int(match[1]), 0, 0
        if NO_CASES.match(line):
            return 0, 0, 0
        if match := CASES.match(line):
            # A test case that "failed as expected" has passed.
            failed = re.search(r"(\d+) failed(?! as expected)", match[2])
            skipped = re.search(r"(\d+) skipped", match[2])
            failed, skipped = (int(m[1]) if m else 0 for m in (failed, skipped))
            return int(match[1]) - failed - skipped, failed, skipped
    return None


def count(test):
    """Returns (passed, failed, skipped) for one entry of the log."""
    result = test["result"]
    cases = catch2_counts(test.get("stdout") or "")
    if result == "EXPECTEDFAIL":
        return 1, 0, 0
    if result == "SKIP":
        # Catch2 v3 exits with the number of failed assertions, which may be 77.
        return cases if cases and cases[1] else (0, 0, 1)
    if result == "OK":
        return cases or (1, 0, 0)
    if cases and cases[:2] == (0, 0) and cases[2]:
        return cases  # Catch2 v3 exits with 4 if every test case was skipped
    passed, failed, skipped = cases or (0, 0, 0)
    return passed, max(failed, 1), skipped  # it may have crashed or hung after its last case


def read_log(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as log:
            return [json.loads(line) for line in log if line.strip()]
    except (OSError, ValueError) as error:
        print(f"summary.py: {error}", file=sys.stderr)
        return []


def summarize(tests, meson_status):
    """Returns the summary line and the exit status."""
    passed, failed, skipped = (sum(column) for column in zip((0, 0, 0), *map(count, tests)))
    unexplained = meson_status != 0 and all(test["result"] in ("OK", "SKIP") for test in tests)
    nothing_ran = passed + skipped == 0
    if failed == 0 and (unexplained or nothing_ran):
        print(f"summary.py: meson test ended with status {meson_status}; "
              f"of {len(tests)} tests, {passed} passed and none failed", file=sys.stderr)
        failed = 1
    line = f"{passed} passed, {failed} failed, {skipped} skipped"
    return line, 0 if failed == 0 else 1


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: summary.py TESTLOG.json MESON_STATUS")
    line, status = summarize(read_log(sys.argv[1]), int(sys.argv[2]))
    print(line)
    sys.exit(status)


if __name__ == "__main__":
    main()
