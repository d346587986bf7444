#!/usr/bin/env python3
"""The program in program/README.md must build with the installed library and print what the page
says.

Arguments: the project's root, the build folder, the compiler's command.
"""

import os
import re
import subprocess
import sys
import tempfile

from installed import Installed, skip_without

root, build, *compiler = sys.argv[1:]
skip_without("pkg-config", root=root)

with open(os.path.join(root, "program/README.md"), encoding="utf-8") as file:
    page = file.read()
program = re.search(r"```cpp\n(.*?)```", page, re.S)[1]

with tempfile.TemporaryDirectory() as folder:
    flags = Installed(build, folder).flags("--cflags", "--libs")
    with open(f"{folder}/ring.cpp", "w", encoding="utf-8") as file:
        file.write(program)
    subprocess.run([*compiler, "-std=c++20", "-Wall", "-Wextra", "-Werror",
                    f"{folder}/ring.cpp", *flags, "-o", f"{folder}/ring"], check=True)
    printed = subprocess.run([f"{folder}/ring"], check=True, capture_output=True,
                             text=True).stdout
    expected = "sum 10, 48 bytes sent\n" * 4 + "all done after 14 us\n"
    if printed != expected:
        sys.exit(f"printed:\n{printed}expected:\n{expected}")

    # For an impossible setting the program prints a sentence.
    done = subprocess.run([f"{folder}/ring"], capture_output=True, text=True, check=False,
                          env={**os.environ, "LOCKSTEP_CHECK": "Full"})
    expected = ("ring: LOCKSTEP_CHECK is 'Full'; it may be full or cheap, or full without classes "
                "from F21 to F29, as in full,-F21\n")
    if (done.returncode, done.stderr) != (2, expected):
        sys.exit(f"with LOCKSTEP_CHECK=Full it ended with {done.returncode} and:\n{done.stderr}")

    # The page asks the reader to make this mistake.
    wrong = program.replace(
        "rank.world().group().send(going, right).recv(coming, left).start().wait();",
        "rank.world().send(going, right).wait();\n"
        "        rank.world().recv(coming, left).wait();")
    assert wrong != program
    line = wrong[: wrong.index("world().send(")].count("\n") + 1
    with open(f"{folder}/wrong.cpp", "w", encoding="utf-8") as file:
        file.write(wrong)
    subprocess.run([*compiler, "-std=c++20", f"{folder}/wrong.cpp", *flags, "-o",
                    f"{folder}/wrong"], check=True)
    done = subprocess.run([f"{folder}/wrong"], capture_output=True, text=True, check=False,
                          cwd=folder)
    if done.returncode != 1 or "F11" not in done.stderr or f"wrong.cpp:{line}" not in done.stderr:
        sys.exit(f"the wrong program ended with {done.returncode} and:\n{done.stderr}")
    if not done.stderr.endswith("are in wrong.stopped, with the pictures wait_for_graph.svg\n"):
        sys.exit(f"the wrong program does not say where its pictures are:\n{done.stderr}")
    if not os.path.exists(f"{folder}/wrong.stopped/wait_for_graph.svg"):
        sys.exit("the wrong program has left no picture")
