#!/usr/bin/env python3
"""A bundle, unpacked, builds from what it has: neither apt nor pkg-config nor the system's
copies of the libraries.

Arguments: the project's root, the compiler's command.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT = os.path.abspath(sys.argv[1])
COMPILER = sys.argv[2:] or ["g++"]
MESON = shlex.split(os.environ.get("MESON", "meson"))
# Of the programs of this machine, a machine with CUDA and nothing else has these.
TOOLS = "as ar awk basename cat cc1plus cut dirname env gcc-ar gcc-nm gcc-ranlib ld nm rm sed sh " \
        "strip uname python3 ninja".split()
LIBRARIES = re.compile(r"/(eigen3|Eigen|unsupported|fmt|boost|CLI|nlohmann|catch2|benchmark)/")
# A source of each library: fmt, Eigen, Boost, nlohmann-json, CLI11, Catch2.
OBJECTS = ["src/liblockstep_working.a.p/meson-generated_.._core_unit.cpp.o",
           "sim/liblockstep_sim.a.p/device_matrix.cpp.o",
           "sim/liblockstep_sim.a.p/meson-generated_.._engine_unit.cpp.o",
           "src/liblockstep_telling.a.p/meson-generated_.._text_unit.cpp.o",
           "program/liblockstep_program.a.p/command_line.cpp.o",
           "tests/core/core_tests.p/meson-generated_.._all_tests_unit.cpp.o"]


def pack(path, root=ROOT, environment=None):
    return subprocess.run([sys.executable, "-B", os.path.join(root, "gpu/bundle.py"), root, path,
                           *COMPILER], capture_output=True, text=True, check=False,
                          env=environment)


class Bundle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.holder.cleanup)
        cls.folder = cls.holder.name
        cls.file = os.path.join(cls.folder, "bundle.tar.gz")
        done = pack(cls.file)
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        with tarfile.open(cls.file) as archive:
            cls.names = archive.getnames()
            archive.extractall(cls.folder)
        cls.tree = os.path.join(cls.folder, cls.names[0].split("/")[0])

    def environment(self):
        """The PATH of such a machine, with pkg-config and apt that fail if they are called."""
        folder = os.path.join(self.folder, "bin")
        if not os.path.isdir(folder):
            os.mkdir(folder)
            for name in [*TOOLS, *MESON[:1], *COMPILER]:
                if shutil.which(name) and not os.path.lexists(f"{folder}/{os.path.basename(name)}"):
                    os.symlink(shutil.which(name), f"{folder}/{os.path.basename(name)}")
            for name in ("pkg-config", "cmake", "apt-get", "dpkg-query"):
                with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
                    file.write(f"#!/bin/sh\necho {name} >>{self.folder}/called\nexit 1\n")
                os.chmod(f"{folder}/{name}", 0o755)
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("PKG_CONFIG", "CMAKE", "MESON", "NINJA"))}
        return environment | {"PATH": folder, "CXX": shlex.join(COMPILER)}

    def test_it_is_one_folder_small_and_without_what_git_ignores(self):
        self.assertEqual({name.split("/")[0] for name in self.names},
                         {os.path.basename(self.tree)})
        self.assertLess(os.path.getsize(self.file), 40 << 20)
        for name in ("lockstep", "gpu/verify.sh", "bundled/meson.build", "bundled/commit",
                     "bundled/include/Eigen/Core", "bundled/lib/libboost_context.a"):
            self.assertTrue(os.path.exists(os.path.join(self.tree, name)), name)
        self.assertTrue(os.access(os.path.join(self.tree, "lockstep"), os.X_OK))
        for name in self.names:
            self.assertNotIn("__pycache__", name)
            self.assertNotRegex(name, r"^[^/]+/(\.git|build[^/]*)/")

    def test_the_same_tree_gives_the_same_bytes(self):
        files = [os.path.join(self.folder, name) for name in ("one.tar.gz", "other.tar.gz")]
        for file in files:
            pack(file, self.tree)
        with open(files[0], "rb") as one, open(files[1], "rb") as other:
            self.assertEqual(one.read(), other.read())

    def test_a_bundle_packs_itself_with_its_libraries(self):
        again = os.path.join(self.folder, "nested.tar.gz")
        done = pack(again, self.tree, {"PATH": "/nowhere"})   # no git, no pkg-config
        self.assertEqual(done.returncode, 0, done.stderr)
        with tarfile.open(again) as archive:
            self.assertEqual(sorted(archive.getnames()), sorted(self.names))

    def test_it_builds_from_what_it_has(self):
        build = os.path.join(self.folder, "build")
        environment = self.environment()
        setup = subprocess.run([*MESON, "setup", "-Dbuildtype=plain", "-Dnative=false",
                                "-Dgpu=disabled", build, self.tree], env=environment,
                               capture_output=True, text=True, check=False)
        self.assertEqual(setup.returncode, 0, setup.stdout[-2000:] + setup.stderr)
        done = subprocess.run(["ninja", "-C", build, *OBJECTS], env=environment,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout[-2000:])
        called = os.path.join(self.folder, "called")
        if os.path.exists(called):   # Meson itself may ask, for a library that is not there
            with open(called, encoding="utf-8") as file:
                self.assertFalse({"apt-get", "dpkg-query"} & set(file.read().split()))
        deps = subprocess.run(["ninja", "-C", build, "-t", "deps"], capture_output=True, text=True,
                              check=True).stdout
        used = {os.path.normpath(os.path.join(build, line.strip()))
                for line in deps.splitlines() if LIBRARIES.search(line)}
        for library in ("Eigen", "fmt", "boost", "CLI", "nlohmann", "catch2"):
            self.assertTrue(any(f"/bundled/include/{library}/" in path for path in used), library)
        self.assertEqual([path for path in used
                          if not path.startswith(os.path.join(self.tree, "bundled/include"))], [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
