#!/usr/bin/env python3
"""Compiles each header by itself: whoever includes it needs to include nothing before it. Then
the headers of src and program and sim/cluster.hpp together, as one unit: two that define the same name would not compile.

usage: headers_alone.py ROOT BUILD FOLDER… -- COMPILER [FLAG…]

Compiles, without output, one line `#include "path from the root"` for each *.hpp under the
folders, as many at a time as there are processors. Libraries are found where the build
folder's compile_commands.json has them, if there is one.
"""

import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys


def headers(root, folders):
    for folder in folders:
        for path, _, names in os.walk(os.path.join(root, folder)):
            for name in sorted(names):
                if name.endswith(".hpp"):
                    yield os.path.relpath(os.path.join(path, name), root)


def system_includes(build):
    """The include folders of libraries, as flags, in the order in which they are met."""
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


def first_error(together, root, compiler):
    """What the compiler says first, or None if the headers compile together."""
    command = compiler + ["-std=c++20", "-fsyntax-only", "-w", "-I" + root, "-x", "c++", "-"]
    unit = "".join(f'#include "{header}"\n' for header in together)
    run = subprocess.run(command, input=unit, capture_output=True, text=True, errors="replace",
                         check=False)
    if run.returncode == 0:
        return None
    errors = [line for line in run.stderr.splitlines() if re.search(r"\berror:", line)]
    return (errors or run.stderr.splitlines() or [f"status {run.returncode}"])[0]


def main():
    if "--" not in sys.argv[4:-1]:
        sys.exit("usage: headers_alone.py ROOT BUILD FOLDER… -- COMPILER [FLAG…]")
    split = sys.argv.index("--")
    root, folders = sys.argv[1], sys.argv[3:split]
    compiler = sys.argv[split + 1:] + system_includes(sys.argv[2])
    found = list(headers(root, folders))
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        errors = list(pool.map(lambda header: first_error([header], root, compiler), found))
    for header, error in zip(found, errors):
        if error:
            print(f"{header} does not compile alone: {error}")
    failures = sum(error is not None for error in errors)
    print(f"{len(found)} headers, {failures} do not compile alone")
    library = [header for header in found
               if header.startswith(("src/", "program/")) or header == "sim/cluster.hpp"]
    together = first_error(library, root, compiler) if not failures and library else None
    if together:
        print(f"the {len(library)} headers of the library do not compile together: {together}")
    sys.exit(1 if failures or together or not found else 0)


if __name__ == "__main__":
    main()
