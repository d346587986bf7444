#!/usr/bin/env python3
"""What a lesson prints in a pipe is its expected.txt, on every machine, also where all
mistakes are looked for.

Arguments: the program, the lesson's slug, its folder. With LOCKSTEP_UPDATE=1 it writes
expected.txt, and the README's timeline.svg, instead of comparing.
"""

import difflib
import os
import subprocess
import sys
import tempfile

program, slug, folder = sys.argv[1:]
with tempfile.TemporaryDirectory() as out:
    done = subprocess.run([os.path.abspath(program), "lesson", slug, "--out", "record"],
                          cwd=out, capture_output=True, text=True, check=True)
    with open(f"{out}/record/timeline.svg", encoding="utf-8") as file:
        picture = file.read()

full = subprocess.run([program, "lesson", slug, "--check", "full"], capture_output=True,
                      text=True, check=True).stdout
# Only that a record was left is not said.
kept = done.stdout.replace("The record of this run is in record.\n\n", "").rstrip("\n")

expected_txt = os.path.join(folder, "expected.txt")
if os.environ.get("LOCKSTEP_UPDATE"):
    for path, text in ((expected_txt, done.stdout), (f"{folder}/timeline.svg", picture)):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    sys.exit(0)

with open(expected_txt, encoding="utf-8") as file:
    expected = file.read()
sys.stdout.writelines(difflib.unified_diff(
    expected.splitlines(True), done.stdout.splitlines(True), expected_txt, "printed", n=1))
sys.stdout.writelines(difflib.unified_diff(
    kept.splitlines(), full.rstrip("\n").splitlines(), "cheap", "full", n=1))
sys.exit(done.stdout != expected or full.rstrip("\n") != kept)
