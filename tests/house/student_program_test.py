#!/usr/bin/env python3
"""The program in the README builds against the installed library and prints what is promised.

Arguments: the project's root, the build folder, the compiler's command.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

root, build, *compiler = sys.argv[1:]
if not shutil.which("pkg-config") or os.path.isdir(os.path.join(root, "bundled")):
    print("skipped: what a student's program needs besides, pkg-config and fmt, is not installed")
    sys.exit(77)
MESON = shlex.split(os.environ.get("MESON", "meson"))

with open(os.path.join(root, "README.md"), encoding="utf-8") as file:
    readme = file.read()
program = re.search(r"```cpp\n(.*?)```", readme, re.S)[1]

with tempfile.TemporaryDirectory() as folder:
    subprocess.run([*MESON, "install", "-C", build, "--no-rebuild", "--quiet", "--destdir",
                    folder], check=True, stdout=subprocess.DEVNULL)
    [config] = [os.path.join(path, name) for path, _, names in os.walk(folder)
                for name in names if name == "lockstep.pc"]
    environment = dict(os.environ, PKG_CONFIG_PATH=os.path.dirname(config),
                       PKG_CONFIG_SYSROOT_DIR="")
    with open(config, encoding="utf-8") as file:
        text = file.read()
    with open(config, "w", encoding="utf-8") as file:
        file.write(re.sub(r"(?m)^prefix=", f"prefix={folder}", text))
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "lockstep"], env=environment,
                           check=True, capture_output=True, text=True).stdout.split()
    with open(f"{folder}/ring.cpp", "w", encoding="utf-8") as file:
        file.write(program)
    subprocess.run([*compiler, "-std=c++20", "-Wall", "-Wextra", "-Werror",
                    f"{folder}/ring.cpp", *flags, "-o", f"{folder}/ring"], check=True)
    printed = subprocess.run([f"{folder}/ring"], check=True, capture_output=True,
                             text=True).stdout
    expected = "sum 10, 48 bytes sent\n" * 4 + "all done after 14 us\n"
    if printed != expected:
        sys.exit(f"printed:\n{printed}expected:\n{expected}")

    # What cannot be is a sentence.
    done = subprocess.run([f"{folder}/ring"], capture_output=True, text=True, check=False,
                          env={**os.environ, "LOCKSTEP_CHECK": "Full"})
    if (done.returncode, done.stderr) != (2, "LOCKSTEP_CHECK is 'Full'; it may be full or cheap\n"):
        sys.exit(f"with LOCKSTEP_CHECK=Full it ended with {done.returncode} and:\n{done.stderr}")

    # The mistake that the README invites to.
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
    done = subprocess.run([f"{folder}/wrong"], capture_output=True, text=True, check=False)
    if done.returncode != 1 or "F11" not in done.stderr or f"wrong.cpp:{line}" not in done.stderr:
        sys.exit(f"the wrong program ended with {done.returncode} and:\n{done.stderr}")
