#!/usr/bin/env python3
"""Writes the reference solution of an assignment into a folder from `lockstep assignment new`.

usage: solve.py NAME DIR     NAME is a folder here, such as ring_all_reduce
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../../src")]
import mistakes  # pylint: disable=wrong-import-position
import public_headers  # pylint: disable=wrong-import-position


def solve(sources, folder, changes=()):
    """Applies these changes to the reference, and writes the files that then differ from the
    handout, with includes that work outside of this tree. `sources` is the assignment's folder."""
    given = mistakes.read_folder(os.path.join(sources, "handout"))
    for name, text in mistakes.changed(mistakes.reference(sources), changes, sources).items():
        if text != given[name]:
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(public_headers.rewritten(text))


def join_adapters(folder):
    """Moves the adapters to the end of a student's source, so that less is compiled."""
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
    sources = os.path.join(HERE, sys.argv[1])
    if not os.path.isdir(os.path.join(sources, "reference")):
        sys.exit(f"{sources}: there is no folder of a reference here")
    try:
        solve(sources, sys.argv[2])
    except (OSError, ValueError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
