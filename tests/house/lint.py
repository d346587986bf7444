#!/usr/bin/env python3
"""Checks the form of sources, by clang-format or by clang-tidy.

usage: lint.py ROOT format
       lint.py ROOT tidy BUILD

format: every C++ and CUDA source that git tracks must have the format of .clang-format.
tidy: clang-tidy must find nothing in a C++ source if its code, or its header's code, differs from
the commit that last changed .ci/linted-since. In a clone that lacks this commit, every source is
linted. If nine minutes are not enough for all sources, tidy also fails. It runs in continuous
integration, or by hand: CI=1 lint.py … If you have linted all changed sources, you may change the
date in .ci/linted-since, in the commit with these sources.

If the tools or git are not installed, the exit status is 77, which Meson calls skipped.
"""

import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
LINTED = ".ci/linted-since"
VERSION = "14"  # other versions format differently with the same settings
SOURCES = (".cpp", ".hpp", ".cu", ".cuh", ".h")
LONGEST_SECONDS = 540  # most changes take one minute
# Flags of GCC that clang does not know are not reported. The analyzer follows a fifth of its
# default number of paths in each function. Otherwise a file with one function for each operation
# would take ten minutes.
EXTRA = ["-Wno-unknown-warning-option",
         "-Xclang", "-analyzer-config", "-Xclang", "max-nodes=45000"]
# These programs are laid out by hand. They have comments after code that name a line or give its
# correct twin.
LEFT_OUT = re.compile(r"tests/faults/F\d\d_\w+\.cpp$")


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


def tool(name):
    """Returns the command of the tool in the version for which the settings were written."""
    for candidate in (f"{name}-{VERSION}", name):
        if shutil.which(candidate):
            said = subprocess.run([candidate, "--version"], capture_output=True, text=True)
            if re.search(rf"version {VERSION}\.", said.stdout):
                return candidate
    skip(f"there is no {name} of version {VERSION}")


def git(root, *words):
    if not shutil.which("git"):
        skip("there is no git")
    done = subprocess.run(["git", "-C", root, *words], capture_output=True, text=True)
    return done.stdout.splitlines() if done.returncode == 0 else None


def tracked(root):
    files = git(root, "ls-files")
    if files is None:
        skip(f"{root} is not a git checkout")
    return [f for f in files if f.endswith(SOURCES) and os.path.exists(os.path.join(root, f))]


def check_format(root):
    files = [f for f in tracked(root) if not LEFT_OUT.match(f)]
    done = subprocess.run([tool("clang-format"), "--dry-run", "--Werror", *files], cwd=root,
                          capture_output=True, text=True)
    found = sorted(set(re.findall(r"^(\S+?):\d+:\d+: error:", done.stderr, re.M)))
    for file in found:
        print(f"{file} is not formatted by .clang-format; run: clang-format -i {file}")
    if done.returncode != 0 and not found:
        print(done.stderr)
    print(f"{len(files)} sources, {len(found)} not formatted")
    return done.returncode


def recorded(root, record):
    """Returns the commit that last changed `record`, a file in .ci; None if this clone lacks that
    commit. In a shallow clone, the oldest commit seems to create every file."""
    last = " ".join(git(root, "log", "-1", "--format=%H %P", "--", record) or []).split()
    is_shallow = git(root, "rev-parse", "--is-shallow-repository") == ["true"]
    return None if not last or (is_shallow and len(last) == 1) else last[0]


def changed(root, record):
    """Returns the files that differ from the recorded commit; None if there is no such commit."""
    commit = recorded(root, record)
    return commit and set(git(root, "diff", "--name-only", commit))


# A raw string, a string, a character, or a comment.
TOKEN = re.compile(r'R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/', re.S)


def code_of(text):
    """Returns the text without spaces, comments and contents of strings, in which clang-tidy finds
    nothing. Keeps the comments that tell clang-tidy what to leave out."""
    def kept(token):
        if token[0].startswith(("//", "/*")):
            return token[0] if "NOLINT" in token[0] else ""
        return token[0] if token[0].startswith("'") else '""'
    return re.sub(r'(?:"")+', '""', "".join(TOKEN.sub(kept, text).split()))


def code_changed(root, files, record):
    """Returns the files whose code differs from the recorded commit."""
    commit = recorded(root, record)

    def differs(file):
        path = os.path.join(root, file)
        if not file.endswith(SOURCES) or not os.path.exists(path):
            return True
        before = git(root, "show", f"{commit}:{file}")
        with open(path, encoding="utf-8") as source:
            return before is None or code_of("\n".join(before)) != code_of(source.read())
    return {file for file in files if differs(file)}


def compiled(root, build):
    """Returns, by path from the root, the command that compiles each source: its own command,
    or that of the build's file that includes several sources."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        commands = json.load(file)
    sources = {}
    for command in commands:
        unit = os.path.join(command["directory"], command["file"])
        sources[os.path.relpath(unit, root)] = command
        if unit.endswith("_unit.cpp") and os.path.exists(unit):
            with open(unit, encoding="utf-8") as file:
                for source in re.findall(r'^#include "(.*\.cpp)"$', file.read(), re.M):
                    path = os.path.join(root, source)
                    sources[source] = command | {
                        "file": path,
                        "command": command["command"].replace(command["file"], path)}
    return sources


def units(files, compilable):
    """Returns the sources that must be compiled to check the files. For a header this is the
    source of the same name."""
    sources = {re.sub(r"\.hpp$", ".cpp", f) for f in files}
    return {f for f in sources & compilable if f.endswith(".cpp")}


def tidy(root, build):
    if not os.environ.get("CI"):
        skip("clang-tidy is slow and runs only in continuous integration")
    program = tool("clang-tidy")
    commands = compiled(root, build)
    files = changed(root, LINTED)
    files = set(tracked(root)) if files is None else code_changed(root, files, LINTED)
    files = sorted(units(files, set(commands)))
    started, failed, missed = time.monotonic(), 0, []

    def run(file):
        left = LONGEST_SECONDS - (time.monotonic() - started)
        if left < 1:
            return None
        try:
            return subprocess.run([program, "-p", database, "--quiet",
                                   *(f"--extra-arg={flag}" for flag in EXTRA), file],
                                  cwd=root, capture_output=True, text=True, timeout=left)
        except subprocess.TimeoutExpired:
            return None

    with tempfile.TemporaryDirectory() as database, \
            concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        with open(os.path.join(database, "compile_commands.json"), "w",
                  encoding="utf-8") as out:
            json.dump([commands[file] for file in files], out)
        for file, done in zip(files, pool.map(run, files)):
            if done is None:
                missed.append(file)
            elif done.returncode != 0:
                failed += 1
                print(done.stdout)
    print(f"{len(files)} sources changed, {failed} with findings")
    if missed:
        print(f"not checked within {LONGEST_SECONDS} s:", *missed)
    return 1 if failed or missed else 0


def main():
    if len(sys.argv) == 3 and sys.argv[2] == "format":
        sys.exit(check_format(sys.argv[1]))
    if len(sys.argv) == 4 and sys.argv[2] == "tidy":
        sys.exit(tidy(sys.argv[1], sys.argv[3]))
    sys.exit("usage: lint.py ROOT format | lint.py ROOT tidy BUILD")


if __name__ == "__main__":
    main()
