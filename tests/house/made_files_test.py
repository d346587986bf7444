#!/usr/bin/env python3
"""No file that one of our commands makes may be committed. The tree has only files that people
write.

Arguments: the root of the source tree. If it is no git checkout, the test is skipped (status 77).

Made files are: files of a record, in any folder; pictures with more lines than people draw; and
files of kinds that are never written by hand. A lesson's `values.txt` and
tests/lessons/transcript.txt are also made, but tests need them for comparisons.
"""

import os
import re
import subprocess
import sys

MOST_PICTURE_LINES = 60
KINDS = re.compile(r"\.(a|bin|csv|deb|gz|html|o|pdf|png|pyc|safetensors|so|whl|zip)$")


def record_files(root):
    """Returns the names that src/report/record.cpp gives to a record's files."""
    with open(os.path.join(root, "src/report/record.cpp"), encoding="utf-8") as file:
        listed = re.search(r"kFiles\{(.*?)\};", file.read(), re.DOTALL).group(1)
    return set(re.findall(r'"([^"]+)"', listed))


def made(root, path, of_records):
    """Returns why the file is a made file; nothing if it is not."""
    if os.path.basename(path) in of_records:
        return "a lesson's record has a file with this name"
    if KINDS.search(path):
        return "files of this kind are made by a program, not written"
    if path.endswith(".svg"):
        with open(os.path.join(root, path), encoding="utf-8") as file:
            lines = file.read().count("\n")
        if lines > MOST_PICTURE_LINES:
            return f"a picture of {lines} lines, expected at most {MOST_PICTURE_LINES}"
    return ""


def main():
    root = sys.argv[1]
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, text=True,
                            check=False)
    if listed.returncode != 0:
        print("skipped: this folder is not a git checkout")
        return 77
    of_records = record_files(root)
    paths = [path for path in listed.stdout.split("\0")
             if path and os.path.exists(os.path.join(root, path))]
    wrong = [f"{path}: {reason}" for path in paths if (reason := made(root, path, of_records))]
    print("\n".join(wrong))
    return 1 if wrong or not of_records else 0


if __name__ == "__main__":
    sys.exit(main())
