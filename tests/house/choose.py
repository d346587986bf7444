#!/usr/bin/env python3
"""Says which tests `./lockstep test` runs, and what must be built for them.

usage: choose.py ROOT BUILD everyone|changed|all

Tests of the suite `rare` take long and seldom find what the other tests do not find. Each rare
test has a second suite, in RARE. RARE says on which sources the test depends.

everyone: no rare tests, except those of the suite `gpu` if there is a GPU's driver.
changed: also rare tests whose sources differ from the commit that last changed .ci/tested-since,
as in continuous integration. In a clone that lacks this commit, all tests are run.
all: all tests. If all of them passed, you may change the date in .ci/tested-since, in the commit
that passed.

Prints lines: "build TARGET", "leave SUITE", "say SENTENCE".
"""

import json
import os
import re
import shutil
import sys

import lint

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../gpu"))
import find_cuda  # noqa: E402

BUILD_FILES = r"(^|/)meson(\.build|_options\.txt)$"
# The subject of a suite, and the sources on which its tests depend.
RARE = {
    "headers": ("each header alone", r"\.(hpp|cuh)$"),
    "hostile": ("hostile submissions",
                r"^(lessons/(grader|assignments)|src/os|tests/grader)/"),
    "grading": ("gradings by the whole grader",
                r"^(lessons/(grader|assignments)|program|src/(course|os)|tests/grader)/"),
    "package": ("the package, and programs that use the installed library",
                rf"^lockstep$|^lessons/runner/(make_package\.py|man/)|^program/|"
                rf"^src/public_headers|^tests/house/(package|installed|own|student)|{BUILD_FILES}"),
    "bundle": ("bundles for machines without apt",
               rf"^lockstep$|^gpu/.*\.py$|^tests/house/bundle|{BUILD_FILES}"),
    "emulated": ("the GPU twin on an emulation",
                 r"^(gpu|sim|src/(core|device|comm)|tests/(gpu|device|comm))/"),
    "gpu": ("the GPU twin as nvcc compiles it", r"^(gpu|src/device|src/comm|tests/gpu)/"),
}
RECORD = ".ci/tested-since"


def left_out(root, mode):
    """Returns the suites of RARE that are not run."""
    if mode == "all":
        return []
    if mode == "everyone":
        return [suite for suite in RARE if suite != "gpu" or not find_cuda.has_driver()]
    files = lint.changed(root, RECORD) if shutil.which("git") else None
    if files is None:
        return []
    return [suite for suite, (_, sources) in RARE.items()
            if not any(re.search(sources, file) for file in files)]


def targets(build, leaves):
    """Returns what ninja must make for the remaining tests."""
    def read(name):
        with open(os.path.join(build, "meson-info", name), encoding="utf-8") as file:
            return json.load(file)
    made = {target["id"]: target["filename"] for target in read("intro-targets.json")}
    wanted = {ident for test in read("intro-tests.json")
              if not any(suite.split(":")[-1] in leaves for suite in test["suite"])
              for ident in test["depends"]}
    return sorted({os.path.relpath(name, build) for ident in wanted for name in made[ident]})


def main():
    root, build, mode = sys.argv[1:]
    leaves = left_out(root, mode)
    for suite in leaves:
        print("leave", suite)
    if mode == "all":
        print("build all\nbuild meson-test-prereq")
    else:
        for target in targets(os.path.realpath(build), leaves):
            print("build", target)
    if leaves:
        why = ("since nothing that they depend on has changed" if mode == "changed" else
               "unless you say ./lockstep test --all")
        print(f"say left out, {why}: {'; '.join(RARE[suite][0] for suite in leaves)}")


if __name__ == "__main__":
    main()
