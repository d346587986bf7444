#!/usr/bin/env python3
"""Puts together what students' programs are built with: the kit.

usage: make_kit.py ROOT KIT STAMP DEPENDENCIES LEFT_OUT LIBRARY…

    include/      headers of the library, but for what assignments ask for
    lib/          the libraries
    pkgconfig/    lockstep-course.pc, for a student's own build
    assignments/  of each assignment, the handout and what the grader adds
    faults/       a page for each kind of mistake
    sources       where Lockstep's own sources are

LEFT_OUT are the stems of sources, separated by commas, whose headers students do without. The
kit can be moved. What was looked at is listed in the
file DEPENDENCIES, for Ninja.
"""

import os
import shutil
import sys

FOLDERS = ["chart", "comm", "core", "cost", "course", "device", "device/operations", "nn", "os",
           "pipeline", "report", "run", "text"]
CONFIG = """\
prefix=${pcfiledir}/..

Name: lockstep-course
Description: A laboratory for distributed training, without what its assignments ask for
Version: 0.1.0
Requires: fmt
Cflags: -I${prefix}/include
Libs: -L${prefix}/lib -llockstep_course -lboost_context -pthread
"""


looked_at = []  # files that were copied, and folders, where others may come


def copy(here, there):
    shutil.copy(here, there)
    looked_at.append(here)
    return there


def copy_headers(root, kit, left_out):
    for folder in FOLDERS:
        here = os.path.join(root, "src", folder)
        there = os.path.join(kit, "include/src", folder)
        os.makedirs(there)
        looked_at.append(here)
        for name in sorted(os.listdir(here)):
            if name.endswith(".hpp") and f"{folder}/{name[:-4]}" not in left_out:
                copy(os.path.join(here, name), there)
    os.makedirs(os.path.join(kit, "include/sim"))
    copy(os.path.join(root, "sim/cluster.hpp"), os.path.join(kit, "include/sim"))


def copy_assignments(root, kit):
    """Never the reference, nor the mutants: only what a student or the grader needs."""
    here = os.path.join(root, "lessons/assignments")
    for name in sorted(os.listdir(here)):
        if not os.path.isdir(os.path.join(here, name, "handout")):
            continue
        there = os.path.join(kit, "assignments", name.replace("_", "-"))
        for part in ["handout", "grading"]:
            looked_at.append(os.path.join(here, name, part))
            shutil.copytree(os.path.join(here, name, part), os.path.join(there, part),
                            copy_function=copy, ignore=shutil.ignore_patterns("*.[ch]pp")
                            if part == "grading" else None)


def copy_faults(root, kit):
    here = os.path.join(root, "lessons/faults")
    looked_at.append(here)
    shutil.copytree(here, os.path.join(kit, "faults"), copy_function=copy)


def main():
    root, kit, stamp, dependencies, left_out, *libraries = sys.argv[1:]
    fresh = kit + ".new"
    shutil.rmtree(fresh, ignore_errors=True)
    copy_headers(root, fresh, set(left_out.split(",")))
    copy_assignments(root, fresh)
    copy_faults(root, fresh)
    os.makedirs(os.path.join(fresh, "lib"))
    for library in libraries:
        copy(library, os.path.join(fresh, "lib"))
    os.makedirs(os.path.join(fresh, "pkgconfig"))
    with open(os.path.join(fresh, "pkgconfig/lockstep-course.pc"), "w", encoding="utf-8") as file:
        file.write(CONFIG)
    with open(os.path.join(fresh, "sources"), "w", encoding="utf-8") as file:
        file.write(root)
    shutil.rmtree(kit, ignore_errors=True)
    os.rename(fresh, kit)
    with open(dependencies, "w", encoding="utf-8") as file:
        names = [name.replace(" ", "\\ ") for name in looked_at]
        file.write(f"{stamp}: " + " ".join(names) + "\n")
    with open(stamp, "w", encoding="utf-8"):
        pass


if __name__ == "__main__":
    main()
