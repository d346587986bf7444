#!/usr/bin/env python3
"""The experiments of a lesson must give the values in its values.txt, on every machine, with and
without full checking.

Arguments: the program `values`, the lesson's slug, its folder. With LOCKSTEP_UPDATE=1 the test
writes values.txt instead of comparing.
"""

import difflib
import os
import subprocess
import sys

program, slug, folder = sys.argv[1:]


def values(*more):
    done = subprocess.run([program, slug, *more], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.returncode)   # the program has printed why
    return done.stdout.splitlines(True)


def differ(expected, found, names):
    """Prints the lines that differ. Returns whether any line differs."""
    lines = list(difflib.unified_diff(expected, found, *names, n=0))
    sys.stdout.writelines(lines)
    return bool(lines)


found = values()
values_txt = os.path.join(folder, "values.txt")
if os.environ.get("LOCKSTEP_UPDATE"):
    with open(values_txt, "w", encoding="utf-8") as file:
        file.writelines(found)
    sys.exit(0)

with open(values_txt, encoding="utf-8") as file:
    expected = file.readlines()
apart = differ(expected, found, (values_txt, "found"))
apart |= differ(found, values("full"), ("with cheap checks", "with all checks"))
sys.exit(apart)
