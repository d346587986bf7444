#!/usr/bin/env python3
"""Finds includes that cross a wall between the folders, or between their rooms.

usage: walls.py ROOT

A folder sees another folder if it may include its files. sim and gpu see src, but src sees neither
of them. sim and gpu do not see each other. Only program sees all three, and only lessons and tests
see everything. Only sim includes Eigen. Only gpu includes CUDA and its libraries. The file of a
CUDA kernel includes neither Eigen nor fmt, because nvcc cannot compile them well.

A room is a folder of the first or second level, such as sim, sim/check or src/core. Folders in a
room belong to it. Two rooms may not include each other. Only sim/check sees files in sim/check.
"""

import os
import re
import sys

CUDA = r"(cuda|cublas|cudnn|curand|cusparse|cusolver|cutensor|nccl|nvrtc|nvtx|nvml|thrust/|cub/" \
       r"|cooperative_groups|device_launch_parameters|vector_types|mma\.h)"
EIGEN = r"(unsupported/)?Eigen/"

# (files, includes they must not have, the rule)
WALLS = [
    (r"src/", r"(sim|gpu|program|lessons|tests)/", "src sees no other folder"),
    (r"src/", EIGEN, "src does not include Eigen"),
    (r"src/", CUDA, "src does not include CUDA"),
    (r"src/chart/", r"src/(?!chart/|core/|text/)", "src/chart sees only src/core and src/text"),
    (r"sim/", r"(gpu|program|lessons|tests)/", "sim sees only src"),
    (r"sim/", CUDA, "sim does not include CUDA"),
    (r"gpu/", r"(sim|program|lessons|tests)/", "gpu sees only src"),
    (r"gpu/", EIGEN, "gpu does not include Eigen"),
    (r"program/", r"(lessons|tests)/", "program sees only src, sim and gpu"),
    (r"program/", EIGEN, "program does not include Eigen"),
    (r"program/", CUDA, "program does not include CUDA"),
    (r".*\.cuh?$", EIGEN, "a kernel's file includes no Eigen"),
    (r".*\.cuh?$", r"fmt/", "a kernel's file includes no fmt"),
    (r"src/core/", r"src/(?!core/)", "src/core sees no other room"),
    (r"src/os/", r"src/(?!os/|core/)", "src/os sees no other room but core"),
    (r"src/text/", r"src/(?!text/|core/)", "src/text sees no other room but core"),
    (r"(?!sim/check/|tests/)", r"sim/check/", "only sim/check and tests include files of sim/check"),
    (r"gpu/kernels/", r"gpu/(?!kernels/)", "gpu/kernels sees nothing else of gpu"),
    (r"lessons/grader/", r"gpu/", "lessons/grader does not see gpu"),
    (r"lessons/(\d|page/|grader/|assignments/)", r"lessons/tools/", "lessons do not see lessons/tools"),
    (r"lessons/tools/", r"lessons/(?!tools/|page/)", "of lessons, tools see only lessons/page"),
]

INCLUDE = re.compile(r'^\s*#\s*include\s*(<[^>]+>|"[^"]+")')
SOURCES = (".hpp", ".cpp", ".h", ".c", ".cc", ".hh", ".inl", ".ipp", ".cu", ".cuh")
FOLDERS = ("src", "sim", "gpu", "program", "lessons", "tests")


def source_files(root):
    for folder in FOLDERS:
        for path, _, names in os.walk(os.path.join(root, folder)):
            for name in sorted(names):
                if name.endswith(SOURCES):
                    yield os.path.relpath(os.path.join(path, name), root)


def seen_from_root(root, file, include):
    """Returns the included path from the root, even if the include is relative to its file."""
    beside = os.path.normpath(os.path.join(os.path.dirname(file), include))
    if os.path.exists(os.path.join(root, beside)):
        return beside
    return os.path.normpath(include)


def includes(root):
    """Yields each include: its file, its line number, its text, and its path."""
    for file in source_files(root):
        with open(os.path.join(root, file), encoding="utf-8", errors="replace") as text:
            for number, line in enumerate(text, 1):
                match = INCLUDE.match(line)
                if match:
                    yield file, number, match[1], seen_from_root(root, file, match[1][1:-1])


def breaches(root):
    """Returns lines "file:line: include: rule", and the number of includes read."""
    found, looked_at = [], 0
    for file, number, written, include in includes(root):
        looked_at += 1
        found += [f"{file}:{number}: {written}: {rule}" for files, forbidden, rule in WALLS
                  if re.match(files, file) and re.match(forbidden, include)]
    return found, looked_at


def room_of(path):
    return "/".join(path.split("/")[:-1][:2])


def circles(root):
    """Returns sentences about rooms that include each other."""
    imports = {}  # (room, included room): one such include
    for file, number, _, include in includes(root):
        if include.startswith(tuple(folder + "/" for folder in FOLDERS)):
            imports.setdefault((room_of(file), room_of(include)), f"{file}:{number}")
    return [f"{one} and {other} import each other: {here}, {imports[other, one]}"
            for (one, other), here in sorted(imports.items())
            if one < other and (other, one) in imports]


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: walls.py ROOT")
    found, looked_at = breaches(sys.argv[1])
    found += circles(sys.argv[1])
    print(*found, sep="\n", end="\n" if found else "")
    print(f"{looked_at} includes, {len(found)} of them are not allowed")
    sys.exit(1 if found or not looked_at else 0)


if __name__ == "__main__":
    main()
