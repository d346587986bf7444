"""Installs a copy of the library, for tests of programs outside of this tree."""

import os
import shlex
import shutil
import subprocess
import sys

MESON = shlex.split(os.environ.get("MESON", "meson"))


def skip_without(*programs, root):
    """Skips the test if a program or fmt's headers are not installed."""
    lacking = [program for program in programs if not shutil.which(program)]
    if os.path.isdir(os.path.join(root, "bundled")):
        lacking.append("fmt")
    if lacking:
        print(f"skipped: {lacking[0]} is not installed, but a user's program needs it")
        sys.exit(77)


class Installed:
    """A copy of the library in a folder. `prefix` is the folder's copy of the final prefix."""

    def __init__(self, build, folder):
        # Meson lets tests find the libraries of the build folder. But here a program must
        # use the installed libraries.
        paths = os.environ.get("LD_LIBRARY_PATH", "").split(":")
        os.environ["LD_LIBRARY_PATH"] = ":".join(
            path for path in paths if not path.startswith(os.path.abspath(build)))
        subprocess.run([*MESON, "install", "-C", build, "--no-rebuild", "--quiet", "--destdir",
                        folder], check=True, stdout=subprocess.DEVNULL)
        [self.packages] = [path for path, _, names in os.walk(folder) if "lockstep.pc" in names]
        [self.program] = [os.path.join(path, "lockstep") for path, _, names in os.walk(folder)
                          if "lockstep" in names and os.path.basename(path) == "bin"]
        self.prefix = os.path.dirname(os.path.dirname(self.program))

    def flags(self, *wanted):
        """Returns what pkg-config prints, as if the copy were at its final place."""
        environment = dict(os.environ, PKG_CONFIG_PATH=self.packages)
        return subprocess.run(["pkg-config", f"--define-variable=prefix={self.prefix}", *wanted,
                               "lockstep"], env=environment, check=True, capture_output=True,
                              text=True).stdout.split()
