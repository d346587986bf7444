#!/usr/bin/env python3
"""The tree must stay within the limits of budget.txt in this folder.

Arguments: the root of the source tree, the build folder. If the root is no git checkout, or there
is no git, the test is skipped (exit status 77).
"""

import os
import subprocess
import sys

import lint

BUDGET = os.path.join(os.path.dirname(os.path.abspath(__file__)), "budget.txt")
GENERATED = ("values.txt", "transcript.txt")


def budget():
    with open(BUDGET, encoding="utf-8") as file:
        rows = [line.split() for line in file if not line.startswith("#")]
    return {name: int(most) for name, most, *_ in rows}


def lines_of(path):
    with open(path, "rb") as file:
        return file.read().count(b"\n")


def first_lesson_sources(root, build):
    """Returns how many sources are compiled for the first lesson, alone or with others."""
    inputs = subprocess.run(["ninja", "-C", build, "-t", "inputs", "lessons/first-lesson"],
                            capture_output=True, text=True, check=True).stdout.split()
    return sum(command["output"] in inputs and not source.endswith("_unit.cpp")
               for source, command in lint.compiled(root, build).items())


def main():
    root, build = (os.path.realpath(path) for path in sys.argv[1:])
    listed = lint.git(root, "ls-files")
    if listed is None:
        lint.skip(f"{root} is not a git checkout")
    paths = [path for path in (os.path.join(root, name) for name in listed) if os.path.isfile(path)]
    used = {"lines": sum(map(lines_of, paths)),
            "generated_lines": sum(lines_of(path) for path in paths
                                   if os.path.basename(path) in GENERATED),
            "first_lesson": first_lesson_sources(root, build)}
    limits = budget()
    for name, count in used.items():
        print(f"{name}: {count} of {limits[name]}")
    over = [name for name, count in used.items() if count > limits[name]]
    if over:
        print("over the budget:", *over, f"- make it smaller, or raise it in {BUDGET} and say why")
    return 1 if over or not used["first_lesson"] else 0


if __name__ == "__main__":
    sys.exit(main())
