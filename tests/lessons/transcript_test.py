#!/usr/bin/env python3
"""Compares what the first lesson prints in a pipe with transcript.txt in this folder. The lesson
has every kind of block that a page can have, so this tests the layout of all blocks. The other
lessons' findings are in their values.txt.

Arguments: the program. With LOCKSTEP_UPDATE=1 the test writes transcript.txt instead of comparing.
"""

import difflib
import os
import subprocess
import sys
import tempfile

program = os.path.abspath(sys.argv[1])
with tempfile.TemporaryDirectory() as out:
    printed = subprocess.run([program, "lesson", "gradient-accumulation", "--out", "record"],
                             cwd=out, capture_output=True, text=True, check=True).stdout

transcript = os.path.join(os.path.dirname(os.path.abspath(__file__)), "transcript.txt")
if os.environ.get("LOCKSTEP_UPDATE"):
    with open(transcript, "w", encoding="utf-8") as file:
        file.write(printed)
    sys.exit(0)

with open(transcript, encoding="utf-8") as file:
    expected = file.read()
sys.stdout.writelines(difflib.unified_diff(expected.splitlines(True), printed.splitlines(True),
                                           transcript, "printed", n=1))
sys.exit(printed != expected)
