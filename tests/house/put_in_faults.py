#!/usr/bin/env python3
"""Puts faults into the sources, one after another, and says which test finds each.

usage: put_in_faults.py ROOT BUILD [--seed N] [--count N] [--of FOLDER]… [--rare] [--list]

The seed draws a fault from all sources: an operator exchanged for another, a dropped statement, or
a number off by one. The script builds the fault and runs the tests into which the file is linked,
until a test fails. Tests in the folder for the file are first; then the fastest are first. With
--rare, tests of the suite `rare` are last. A fault that does not compile is drawn again. With
--list, the script only lists the faults.

Sources are changed in place, and restored even if the script is interrupted. So ROOT must be a
checkout without changes. BUILD must be built, and its tests must have been run there last by
./lockstep test; a test that did not pass then is left out. The script prints a line for each fault, and at
the end the number of faults that were found. If no test finds a fault, this is no error: the fault
may change nothing that matters. Read each such fault. A full run takes hours.
"""

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys

FOLDERS = ("src", "sim", "program", "lessons")
LEFT_OUT = re.compile(r"/(handout|reference|public)/")
EXCHANGES = [(r" < ", " <= "), (r" <= ", " < "), (r" > ", " >= "), (r" >= ", " > "), (r" == ", " != "),
             (r" != ", " == "), (r" \+ ", " - "), (r" - ", " + "), (r" \* ", " / "), (r" / ", " * "),
             (r" && ", " || "), (r" \|\| ", " && "), (r"std::min\b", "std::max"),
             (r"std::max\b", "std::min"), (r" \+= ", " -= "), (r" -= ", " += "),
             (r"\btrue\b", "false"), (r"\bfalse\b", "true")]
NUMBER = re.compile(r"(?<![\w.\"'])(\d{1,4})(?![\w.\"'])")
# A whole statement: a call or an assignment that declares nothing.
STATEMENT = re.compile(r"^\s+(?!return\b|using\b|throw\b|break\b|continue\b|case\b|default\b)"
                       r"[\w.\->\[\]()*]+(\(.*\)|\s*[-+*/|&]?=\s.*);$")


def code_of(line):
    """Returns the line without its comment. Strings are blank but have the same length."""
    blank = re.sub(r'"(\\.|[^"\\])*"', lambda found: '"' + "_" * (len(found[0]) - 2) + '"', line)
    return blank.split("//")[0]


def faults_of(lines, index):
    """Yields wrong versions of a line: (the change, the wrong line)."""
    line, code = lines[index], code_of(lines[index])
    if re.match(r"\s*(#|//|static_assert|template|namespace|using|friend|case)", line):
        return
    for pattern, instead in EXCHANGES:
        for found in re.finditer(pattern, code):
            yield (f"{found[0].strip()} becomes {instead.strip()}",
                   line[:found.start()] + instead + line[found.end():])
    for found in NUMBER.finditer(code):
        yield (f"{found[1]} becomes {int(found[1]) + 1}",
               line[:found.start()] + str(int(found[1]) + 1) + line[found.end():])
    before = code_of(lines[index - 1]).rstrip() if index else ""
    if STATEMENT.match(code.rstrip()) and (not before or before[-1] in ";{}:"):
        yield "dropped", ""


def draw(root, chance, files):
    while True:
        file = chance.choices(list(files), files.values())[0]
        with open(os.path.join(root, file), encoding="utf-8") as source:
            lines = source.read().split("\n")
        index = chance.randrange(len(lines))
        ways = list(faults_of(lines, index))
        if ways:
            return file, index, *chance.choice(ways)


def room_of(file):
    parts = file.split("/")
    return {"sim": "sim", "program": "lessons"}.get(parts[0]) or (
        {"assignments": "grader", "grader": "grader"}.get(parts[1], "lessons")
        if parts[0] == "lessons" else parts[1])


class Tests:
    """The tests of a build folder, and the time of each test's last run."""

    def __init__(self, root, build):
        self.root, self.build = root, build
        made = {target["id"]: target["filename"] for target in self.read("intro-targets.json")}
        self.targets, self.is_rare = {}, {}
        for test in self.read("intro-tests.json"):
            self.targets[test["name"]] = [os.path.relpath(name, build)
                                          for ident in test["depends"] for name in made[ident]]
            self.is_rare[test["name"]] = any(s.endswith(":rare") for s in test["suite"])
        self.seconds = {}  # of the tests that passed
        with open(os.path.join(build, "meson-logs/testlog-all.json"), encoding="utf-8") as file:
            for entry in map(json.loads, file):
                if entry["result"] == "OK":
                    self.seconds[entry["name"].split(" / ")[-1]] = entry["duration"]

    def read(self, name):
        with open(os.path.join(self.build, "meson-info", name), encoding="utf-8") as file:
            return json.load(file)

    def stale(self):
        """Returns the tests into which changed code is linked."""
        explained = subprocess.run(["ninja", "-C", self.build, "-n", "all", "meson-test-prereq"],
                                   capture_output=True, text=True, check=True).stdout
        linked = set(re.findall(r"Linking target (\S+)", explained))
        made = set(re.findall(r"Generating (\S+)", explained))
        return [name for name, targets in self.targets.items()
                if any(t in linked or os.path.splitext(t)[0] in made for t in targets)]

    def in_order(self, room, rare):
        """Returns the stale tests in order: those in tests/ROOM, the fastest; rare ones last."""
        def place(name):
            is_own = any(t.startswith(f"tests/{room}/") for t in self.targets[name])
            return self.is_rare[name], not is_own, self.seconds[name]
        return sorted((name for name in self.stale()
                       if name in self.seconds and (rare or not self.is_rare[name])), key=place)

    def builds(self, name):
        return subprocess.run(["ninja", "-C", self.build, *self.targets[name]],
                              capture_output=True, check=False).returncode == 0

    def passes(self, name):
        return subprocess.run(["meson", "test", "-C", self.build, "--no-rebuild", "--setup", "all",
                               "--logbase", "faultlog", "--timeout-multiplier", "1", name], capture_output=True,
                              check=False).returncode == 0


def finder(tests, file, rare):
    """Returns the name of the test that finds the fault in the file, or "" if no test finds it.
    Returns None if the fault does not compile."""
    order = tests.in_order(room_of(file), rare)
    for name in order:
        if not tests.builds(name):
            return None
        if not tests.passes(name):
            return name
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("root")
    parser.add_argument("build")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--of", action="append", metavar="FOLDER")
    parser.add_argument("--rare", action="store_true")
    parser.add_argument("--list", action="store_true")
    asked = parser.parse_args()
    root = os.path.realpath(asked.root)
    listed = subprocess.run(["git", "-C", root, "ls-files"], capture_output=True, text=True, check=True)
    folders = tuple(f.rstrip("/") + "/" for f in asked.of or FOLDERS)
    files = {}
    for name in listed.stdout.split():
        if name.startswith(folders) and name.endswith((".cpp", ".hpp")) and not LEFT_OUT.search(name):
            with open(os.path.join(root, name), encoding="utf-8") as file:
                files[name] = file.read().count("\n")
    changes = subprocess.run(["git", "-C", root, "status", "--porcelain", "-uno"],
                             capture_output=True, text=True, check=True).stdout
    if changes and not asked.list:
        sys.exit("there are changes in this checkout; a clean one is expected, since sources are changed")
    for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signal_number, lambda *_: sys.exit("interrupted"))
    tests = None if asked.list else Tests(root, os.path.realpath(asked.build))
    chance = random.Random(asked.seed)
    found = tried = 0
    while tried < asked.count:
        file, index, what, instead = draw(root, chance, files)
        place = f"{file}:{index + 1}: {what}"
        if asked.list:
            tried += 1
            print(place)
            continue
        path = os.path.join(root, file)
        with open(path, encoding="utf-8") as source:
            text = source.read()
        lines = text.split("\n")
        was = lines[index].strip()
        lines[index] = instead
        try:
            with open(path, "w", encoding="utf-8") as source:
                source.write("\n".join(lines))
            by = finder(tests, file, asked.rare)
        finally:
            with open(path, "w", encoding="utf-8") as source:
                source.write(text)
        if by is None:
            continue
        tried += 1
        found += by != ""
        print(f"{place}: {'found by ' + by if by else 'NOT FOUND'}: {was}", flush=True)
    if not asked.list:
        print(f"{found} of {tried} found")


if __name__ == "__main__":
    main()
