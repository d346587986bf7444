#!/usr/bin/env python3
"""Compiles each header separately, so that a program can include it without other headers before.
Then compiles the headers of src and program and sim/cluster.hpp as one unit, to find headers that
define the same name.

usage: headers_alone.py ROOT BUILD FOLDER… -- COMPILER [FLAG…]

For each *.hpp under the folders, compiles one line `#include "path from the root"`, without
output. Runs one compiler for each processor. Takes the include folders of libraries from
the build folder's compile_commands.json, if there is one.

Most headers include a large header, directly or through others. Such a header is compiled after a
precompiled copy of the large header. It includes the large header anyway, so the copy adds
nothing. If the large header lacks something, its own compilation fails.
"""

import concurrent.futures
import functools
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

# The maximum number of precompiled headers, and how many headers must include each of them.
MOST_BASES = 12
LEAST_USERS = 12
LINES_OF_A_LIBRARY = 400


def headers(root, folders):
    for folder in folders:
        for path, _, names in os.walk(os.path.join(root, folder)):
            for name in sorted(names):
                if name.endswith(".hpp"):
                    yield os.path.relpath(os.path.join(path, name), root)


def system_includes(build):
    """Returns the include folders of libraries as flags, in the order of their appearance."""
    try:
        with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
            commands = json.load(file)
    except OSError:
        return []
    flags = []
    for command in commands:
        words = shlex.split(command["command"])
        for i, word in enumerate(words):
            if word.startswith("-isystem"):
                folder = word[len("-isystem"):] or words[i + 1]
                flag = "-isystem" + os.path.join(command["directory"], folder)
                if flag not in flags:
                    flags.append(flag)
    return flags


class Includes:
    """The paths from the root that each header includes, in any branch of an #if."""

    def __init__(self, root, found):
        self.own = {}
        for header in found:
            with open(os.path.join(root, header), encoding="utf-8", errors="replace") as file:
                text = file.read()
            # Includes in a condition may have no effect, so such a header is compiled separately.
            plain = not re.search(r"^\s*#\s*(if|ifdef|ifndef)\b", text, re.M)
            self.own[header] = (re.findall(r'^#include "([^"]+)"', text, re.M) if plain else [],
                                set(re.findall(r"^#include (<[^>]+>)", text, re.M)),
                                text.count("\n"))

    @functools.lru_cache(maxsize=None)
    def closure(self, header):
        """Returns the header and all headers of ours that it includes."""
        seen, open_ = set(), [header]
        while open_:
            one = open_.pop()
            if one not in seen and one in self.own:
                seen.add(one)
                open_ += self.own[one][0]
        return frozenset(seen)

    @functools.lru_cache(maxsize=None)
    def size(self, header):
        """Returns a rough cost of compiling the header, in lines of our own code."""
        closure = self.closure(header)
        libraries = set().union(*(self.own[one][1] for one in closure))
        return sum(self.own[one][2] for one in closure) + LINES_OF_A_LIBRARY * len(libraries)

    def bases(self):
        """Returns the headers that are worth being precompiled, the largest first."""
        users = {base: [h for h in self.own if h != base and base in self.closure(h)]
                 for base in self.own}
        saved = dict.fromkeys(self.own, 0)
        chosen = []

        def gain(base):
            return sum(max(0, self.size(base) - saved[user]) for user in users[base])
        while len(chosen) < MOST_BASES:
            best = max((base for base in self.own if len(users[base]) >= LEAST_USERS),
                       key=gain, default=None)
            if best is None or gain(best) == 0:
                break
            chosen.append(best)
            for user in users[best]:
                saved[user] = max(saved[user], self.size(best))
        return sorted(chosen, key=lambda base: -self.size(base))


class Compiler:
    def __init__(self, command, root, folder):
        self.command = command + ["-std=c++20", "-w", "-I" + root]
        self.folder = folder
        self.precompiled = {}

    def precompile(self, base):
        """Makes a precompiled copy, if the header compiles."""
        name = os.path.join(self.folder, base.replace("/", "_"))
        with open(name, "w", encoding="utf-8") as file:
            file.write(f'#include "{base}"\n')
        run = subprocess.run(self.command + ["-x", "c++-header", "-o", name + ".gch", name],
                             capture_output=True, check=False)
        if run.returncode == 0:
            self.precompiled[base] = name

    def first_error(self, together, behind=None):
        """Returns the compiler's first error, or None if the headers compile together."""
        before = ["-include", self.precompiled[behind]] if behind else []
        unit = "".join(f'#include "{header}"\n' for header in together)
        run = subprocess.run(self.command + before + ["-fsyntax-only", "-x", "c++", "-"],
                             input=unit, capture_output=True, text=True, errors="replace",
                             check=False)
        if run.returncode == 0:
            return None
        errors = [line for line in run.stderr.splitlines() if re.search(r"\berror:", line)]
        return (errors or run.stderr.splitlines() or [f"status {run.returncode}"])[0]


def errors_alone(compiler, includes, found):
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        bases = includes.bases()
        list(pool.map(compiler.precompile, bases))

        def behind(header):
            return next((base for base in bases if base != header
                         and base in compiler.precompiled
                         and base in includes.closure(header)), None)
        return list(pool.map(lambda header: compiler.first_error([header], behind(header)), found))


def main():
    if "--" not in sys.argv[4:-1]:
        sys.exit("usage: headers_alone.py ROOT BUILD FOLDER… -- COMPILER [FLAG…]")
    split = sys.argv.index("--")
    root, folders = sys.argv[1], sys.argv[3:split]
    found = list(headers(root, folders))
    with tempfile.TemporaryDirectory() as folder:
        compiler = Compiler(sys.argv[split + 1:] + system_includes(sys.argv[2]), root, folder)
        errors = errors_alone(compiler, Includes(root, found), found)
        for header, error in zip(found, errors):
            if error:
                print(f"{header} does not compile without another include before it: {error}")
        failures = sum(error is not None for error in errors)
        print(f"{len(found)} headers, {failures} do not compile alone")
        library = [header for header in found
                   if header.startswith(("src/", "program/")) or header == "sim/cluster.hpp"]
        together = compiler.first_error(library) if not failures and library else None
    if together:
        print(f"the {len(library)} headers of the library do not compile together: {together}")
    sys.exit(1 if failures or together or not found else 0)


if __name__ == "__main__":
    main()
