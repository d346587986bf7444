#!/usr/bin/env python3
"""Prints how large the tree and its parts are.

usage: figures.py ROOT [--operation NAME]

Prints the files below ROOT by kind, and their lines. For each room (a folder of the first or
second level) it prints the number of C++ and CUDA sources, their lines and median, and the lines
of all files. It prints the same for the gradings of assignments. It lists the classes whose members
are defined in more than two files. Finally it lists the files, without tests, that name one device
operation: the given one, by default `rms_norm`. To compare with an older commit, check out the
older commit into another folder and run this script on both folders.
"""

import argparse
import collections
import os
import re
import statistics

SOURCES = (".hpp", ".cpp", ".cu", ".cuh", ".h")
# The folders of builds, of git and of caches are not counted.
NOT_COUNTED = re.compile(r"^(\.git|build[^/]*|\.cache|subprojects)$|^__pycache__$")
FOLDERS = ("src", "sim", "gpu", "program", "lessons", "tests")
# "void Pipeline::run(" at the beginning of a line, with or without a type before it.
MEMBER = re.compile(r"^(?:[A-Za-z_\[][\w:<>,&*\s\[\]]*?[\s&*])?(\w+)(?:<[^>]*>)?::~?\w+\s*(?:<[^>]*>)?\(")
# Reasons why these classes are defined in more than two files.
REASONS = {
    "lockstep::sim::CpuDevice": "how operations are computed, a file a family of operations",
    "lockstep::gpu::Device": "how operations are computed, a file a family of operations",
    "lockstep::gpu::Process": "open() is a file for each build: none, a module to load, and it",
}
NAMESPACE = re.compile(r"^namespace ([\w:]+) \{")


def all_files(root):
    for path, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not NOT_COUNTED.match(name))
        for name in sorted(names):
            yield os.path.relpath(os.path.join(path, name), root)


def is_source(file):
    return file.endswith(SOURCES) and file.split("/")[0] in FOLDERS


def lines_of(root, file):
    with open(os.path.join(root, file), encoding="utf-8", errors="replace") as text:
        return text.read().splitlines()


def room_of(file):
    parts = file.split("/")
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


def kind_of(file):
    """Returns a file's kind. Transcripts, pictures and mistakes of lessons have separate kinds."""
    name = os.path.basename(file)
    if name in ("values.txt", "transcript.txt", "expected.txt", "mistakes.txt", "mutants.json"):
        return name
    return os.path.splitext(name)[1] or name


def print_kinds(lengths):
    kinds = collections.defaultdict(list)
    for file, lines in lengths.items():
        place = "tests" if file.startswith("tests/") else ""
        kinds[f"{place + ': ' if place else ''}{kind_of(file)}"].append(lines)
    print(f"{'kind':34} {'files':>6} {'lines':>7}")
    for kind, lines in sorted(kinds.items(), key=lambda item: -sum(item[1])):
        if sum(lines) >= 500:
            print(f"{kind:34} {len(lines):6} {sum(lines):7}")
    print(f"{'all':34} {len(lengths):6} {sum(lengths.values()):7}\n")


def print_rooms(lengths):
    """`lengths` has every file's number of lines. The last column counts lines of all files."""
    rooms = collections.defaultdict(list)
    whole = collections.Counter()
    for file, lines in lengths.items():
        whole[room_of(file)] += lines
        if is_source(file):
            rooms[room_of(file)].append(lines)

    def row(name, lines, everything=""):
        median = statistics.median(lines) if lines else 0
        print(f"{name:34} {len(lines):6} {sum(lines):7} {median:7.0f} {everything:>9}")

    print(f"{'room':34} {'files':>6} {'lines':>7} {'median':>7} {'all files':>9}")
    for room, lines in sorted(rooms.items()):
        row(room, lines, whole[room])
    sources = {file: lines for file, lines in lengths.items() if is_source(file)}
    row("gradings of assignments", [lines for file, lines in sources.items()
                                    if re.match("lessons/assignments/.*/grading/", file)])
    row("all", list(sources.values()), sum(lengths.values()))
    row("beside tests", [lines for file, lines in sources.items() if file[:6] != "tests/"])


def print_spread_classes(texts):
    """Maps classes to the files that define their members. Namespaces are part of the names."""
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
    """Lists the files that name the operation, its struct or its launcher."""
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
    texts = {file: lines_of(given.root, file) for file in all_files(given.root)}
    lengths = {file: len(text) for file, text in texts.items()}
    print_kinds(lengths)
    print_rooms(lengths)
    texts = {file: text for file, text in texts.items() if is_source(file)}
    print_spread_classes(texts)
    print_operation(texts, given.operation)


if __name__ == "__main__":
    main()
