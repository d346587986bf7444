#!/usr/bin/env python3
"""Says how large the tree is, and where it is cut into pieces.

usage: figures.py ROOT [--operation NAME]

Prints, for the C++ and CUDA sources below ROOT: files and lines of each room (a folder of
the first or second level) and their median; classes whose members are defined in more than
two files; and the files, beside tests, that one operation of a device is written in: those
that name `rms_norm`, or the operation that is given. To compare with an older commit, check
that out into a folder of its own and run this script over both.
"""

import argparse
import collections
import os
import re
import statistics

SOURCES = (".hpp", ".cpp", ".cu", ".cuh", ".h")
FOLDERS = ("src", "sim", "gpu", "program", "lessons", "tests")
# "void Pipeline::run(" at the beginning of a line, behind a type or not.
MEMBER = re.compile(r"^(?:[A-Za-z_\[][\w:<>,&*\s\[\]]*?[\s&*])?(\w+)(?:<[^>]*>)?::~?\w+\s*(?:<[^>]*>)?\(")
# Why a class lies in more than two files after all.
REASONS = {
    "lockstep::sim::Device": "how operations are computed, a file a family of operations",
    "lockstep::gpu::Device": "how operations are computed, a file a family of operations",
    "lockstep::gpu::Process": "open() is a file for each build: none, a module to load, and it",
}
NAMESPACE = re.compile(r"^namespace ([\w:]+) \{")


def sources(root):
    for folder in FOLDERS:
        for path, folders, names in os.walk(os.path.join(root, folder)):
            folders.sort()
            for name in sorted(names):
                if name.endswith(SOURCES):
                    yield os.path.relpath(os.path.join(path, name), root)


def lines_of(root, file):
    with open(os.path.join(root, file), encoding="utf-8", errors="replace") as text:
        return text.read().splitlines()


def room_of(file):
    parts = file.split("/")
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


def print_rooms(lengths):
    rooms = collections.defaultdict(list)
    for file, lines in lengths.items():
        rooms[room_of(file)].append(lines)
    print(f"{'room':34} {'files':>6} {'lines':>7} {'median':>7}")
    for room, lines in sorted(rooms.items()):
        print(f"{room:34} {len(lines):6} {sum(lines):7} {statistics.median(lines):7.0f}")
    for what, keep in (("all", lambda _: True), ("beside tests", lambda f: f[:6] != "tests/")):
        lines = [n for file, n in lengths.items() if keep(file)]
        print(f"{what:34} {len(lines):6} {sum(lines):7} {statistics.median(lines):7.0f}")


def print_spread_classes(texts):
    """Classes by the files that define their members; a namespace is part of the name."""
    files = collections.defaultdict(set)
    for file, text in texts.items():
        if file.startswith("tests/") or file.endswith(".hpp"):
            continue
        namespace = next((m[1] for m in map(NAMESPACE.match, text) if m), "")
        for line in text:
            member = MEMBER.match(line)
            if member and member[1][0].isupper():
                files[f"{namespace}::{member[1]}"].add(file)
    print("\nclasses whose members are defined in more than two files:")
    for name, where in sorted(files.items(), key=lambda item: (-len(item[1]), item[0])):
        if len(where) > 2:
            print(f"{len(where):4}  {name}: {', '.join(sorted(where))}")
            print(f"      reason: {REASONS.get(name, 'none')}")


def print_operation(texts, operation):
    """A file is one that names the operation, as itself, as a struct or as a launcher."""
    struct = "".join(word.capitalize() for word in operation.split("_"))
    named = re.compile(rf"\b((do|launch)_)?({operation}|{struct})\b")
    where = [file for file, text in texts.items()
             if not file.startswith("tests/") and any(named.search(line) for line in text)
             and file.split("/")[0] in ("src", "sim", "gpu", "program", "lessons")]
    layers = [file for file in where if file.startswith(("src/nn/", "src/parallel/", "lessons/0"))]
    where = [file for file in where if file not in layers]
    print(f"\nfiles in which the operation {operation} is written: {len(where)}")
    for file in where:
        print(f"      {file}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root")
    parser.add_argument("--operation", default="rms_norm")
    given = parser.parse_args()
    texts = {file: lines_of(given.root, file) for file in sources(given.root)}
    print_rooms({file: len(text) for file, text in texts.items()})
    print_spread_classes(texts)
    print_operation(texts, given.operation)


if __name__ == "__main__":
    main()
