#!/usr/bin/env python3
"""Puts the reference solution of an assignment into a folder that `lockstep assignment new`
made.

usage: solve.py NAME DIR     NAME is a folder here, such as ring_all_reduce

Files of reference/ are copied, with the includes that they have outside of this tree. Where a solution is a few lines, reference/changes.json has
them: lines of the handout's files, and those that take their place.
"""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../src"))
import public_headers  # pylint: disable=wrong-import-position

CHANGES = "changes.json"


def change(folder, changes):
    """Replaces lines of files in a folder; each must be there once."""
    for one in changes:
        path = os.path.join(folder, one["file"])
        with open(path, encoding="utf-8") as file:
            text = file.read()
        before, after = ("\n".join(one[key]) + "\n" for key in ("from", "to"))
        if text.count(before) != 1:
            raise ValueError(f"{path} has {text.count(before)} times, expected once:\n{before}")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.replace(before, after))


def copy(here, there):
    """Copies a source of this tree to where it is a student's."""
    with open(here, encoding="utf-8") as file:
        text = file.read()
    with open(there, "w", encoding="utf-8") as file:
        file.write(public_headers.rewritten(text))


def solve(sources, folder):
    """`sources` is the assignment's folder."""
    reference = os.path.join(sources, "reference")
    for name in os.listdir(reference):
        if name == CHANGES:
            with open(os.path.join(reference, name), encoding="utf-8") as file:
                change(folder, json.load(file))
        else:
            copy(os.path.join(reference, name), os.path.join(folder, name))


def join_adapters(folder):
    """Moves the adapters behind one of the student's sources, so that less is compiled."""
    adapters = os.path.join(folder, "adapters.cpp")
    with open(adapters, "r+", encoding="utf-8") as file:
        text = file.read()
        file.truncate(0)
    own = min(name for name in os.listdir(folder) if name.endswith(".cpp")
              and name not in ("adapters.cpp", "run.cpp", "test.cpp"))
    with open(os.path.join(folder, own), "a", encoding="utf-8") as file:
        file.write(text)


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: solve.py NAME DIR")
    sources = os.path.join(os.path.dirname(os.path.abspath(__file__)), sys.argv[1])
    if not os.path.isdir(os.path.join(sources, "reference")):
        sys.exit(f"{sources}: there is no folder of a reference here")
    try:
        solve(sources, sys.argv[2])
    except (OSError, ValueError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
