#!/usr/bin/env python3
"""What a lesson prints in a pipe is its expected.txt, on every machine.

Arguments: the program, the lesson's slug, its folder. With LOCKSTEP_UPDATE=1 it writes
expected.txt and timeline.svg instead of comparing.
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

wrong = False
for name, printed in (("expected.txt", done.stdout), ("timeline.svg", picture)):
    path = os.path.join(folder, name)
    if os.environ.get("LOCKSTEP_UPDATE"):
        with open(path, "w", encoding="utf-8") as file:
            file.write(printed)
        continue
    with open(path, encoding="utf-8") as file:
        expected = file.read()
    if printed != expected:
        wrong = True
        sys.stdout.writelines(difflib.unified_diff(
            expected.splitlines(True), printed.splitlines(True), path, "printed", n=1))
sys.exit(wrong)
