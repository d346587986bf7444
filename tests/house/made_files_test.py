#!/usr/bin/env python3
"""No file that one of our commands makes is committed: the tree contains only what people write.

Arguments: the root of the source tree. Skipped (exit status 77) if that is no checkout.

Made files are: the files of a record, in any folder; pictures with more lines than a person
draws; and files of kinds that no source is written in. A lesson's `values.txt` and
tests/lessons/transcript.txt are made, too, but are kept for tests to compare with.
"""

import os
import re
import subprocess
import sys

MOST_PICTURE_LINES = 60
KINDS = re.compile(r"\.(a|bin|csv|deb|gz|html|o|pdf|png|pyc|safetensors|so|whl|zip)$")


def record_files(root):
    """The names that src/report/record.cpp gives the files of a record."""
    with open(os.path.join(root, "src/report/record.cpp"), encoding="utf-8") as file:
        listed = re.search(r"kFiles\{(.*?)\};", file.read(), re.DOTALL).group(1)
    return set(re.findall(r'"([^"]+)"', listed))


def made(root, path, of_records):
    """Says why the file is a made one, or nothing."""
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
