#!/usr/bin/env python3
"""An unpacked bundle must build from its own contents, without apt, pkg-config or the system's
copies of the libraries. A bundle with binaries must build nothing.

Arguments: the project's root, the compiler's command.
"""

import json
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
# These programs exist even on a machine with only CUDA.
TOOLS = "as ar awk basename cat cc1plus cut dirname env gcc-ar gcc-nm gcc-ranlib ld nm rm sed sh " \
        "strip uname python3 ninja".split()
LIBRARIES = re.compile(r"/(eigen3|Eigen|unsupported|fmt|boost|CLI|nlohmann|catch2|benchmark)/"
                       r"|/cmark-gfm")
# One object file for each library: fmt, Eigen, Boost, nlohmann-json, CLI11, cmark, Catch2.
OBJECTS = ["src/liblockstep_working.a.p/meson-generated_.._core_unit.cpp.o",
           "sim/liblockstep_sim.a.p/device_matrix.cpp.o",
           "sim/liblockstep_sim.a.p/meson-generated_.._engine_unit.cpp.o",
           "src/liblockstep_telling.a.p/meson-generated_.._text_unit.cpp.o",
           "program/liblockstep_program.a.p/command_line.cpp.o",
           "lessons/liblockstep_lessons.a.p/meson-generated_.._page_unit.cpp.o",
           "tests/core/core_tests.p/meson-generated_.._all_tests_unit.cpp.o"]


TREE_MARK = ".lockstep-tree"   # marks a folder in which we may write
BINARIES = ("lessons/lockstep", "gpu/liblockstep_gpu.so", "tests/gpu/gpu_device_tests",
            "tests/gpu/gpu_comm_tests", "tests/bench/gpu_bench")


def pack(path, root=ROOT, environment=None, options=()):
    return subprocess.run([sys.executable, "-B", os.path.join(root, "gpu/bundle.py"), *options,
                           root, path, *COMPILER], capture_output=True, text=True, check=False,
                          env=environment)


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


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
        """Returns the environment of a machine where pkg-config and apt fail when called."""
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

    def test_a_tree_is_the_bundle_and_only_what_changed_is_written(self):
        tree = os.path.join(self.folder, "tree")
        for number in range(2):
            done = pack(tree, self.tree, options=["--tree"])
            self.assertEqual(done.returncode, 0, done.stderr)
            if number == 0:
                write(os.path.join(tree, "sim/cluster.hpp"), "changed")
                write(os.path.join(tree, "sim/more.hpp"), "more")
                os.utime(os.path.join(tree, "lockstep"), (1, 1))
        names = {os.path.relpath(os.path.join(path, name), tree)
                 for path, _, names in os.walk(tree) for name in names}
        self.assertEqual(names, {name.split("/", 1)[1] for name in self.names} | {TREE_MARK})
        self.assertEqual(os.path.getmtime(os.path.join(tree, "lockstep")), 1)
        self.assertTrue(os.access(os.path.join(tree, "lockstep"), os.X_OK))
        compared = subprocess.run(["diff", "-r", "-x", TREE_MARK, tree, self.tree], check=False)
        self.assertEqual(compared.returncode, 0)

    def built(self):
        """A bundle with small binaries that is made with a stub of CUDA."""
        build, cuda = (os.path.join(self.folder, name) for name in ("made", "cuda"))
        write(os.path.join(build, "main.cpp"), "int main() {}\n")
        for name in BINARIES:
            os.makedirs(os.path.dirname(os.path.join(build, name)), exist_ok=True)
            subprocess.run([*COMPILER, "-g", os.path.join(build, "main.cpp"), "-o",
                            os.path.join(build, name)], check=True)
        write(os.path.join(build, "meson-info/intro-buildoptions.json"), json.dumps(
            [{"name": "gpu_arch", "value": "90"}, {"name": "nvcc", "value": ""}]))
        write(os.path.join(cuda, "bin/nvcc"), "#!/bin/sh\necho Cuda, release 13.0, V13.0.1\n")
        os.chmod(os.path.join(cuda, "bin/nvcc"), 0o755)
        for name in ("include/cuda_runtime.h", "include/cublas_v2.h", "lib64/libcudart.so.13",
                     "lib64/libcublas.so.13", "lib64/libnccl.so.2"):
            write(os.path.join(cuda, name), "")
        write(os.path.join(cuda, "include/nccl.h"), "#define NCCL_MAJOR 2\n#define NCCL_MINOR 28\n")
        file = os.path.join(self.folder, "built.tar.gz")
        done = pack(file, self.tree, os.environ | {"CUDA_HOME": cuda}, ["--built", build])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.endswith("&& gpu/verify.sh\n"), done.stdout)
        with tarfile.open(file) as archive:
            archive.extractall(os.path.join(self.folder, "there"))
            self.assertEqual(set(archive.getnames()) - set(self.names),
                             {f"{os.path.basename(self.tree)}/built/{name}"
                              for name in (*BINARIES, "built.json")})
        return build, os.path.join(self.folder, "there", os.path.basename(self.tree))

    def test_with_binaries_it_is_tried_without_a_compiler(self):
        build, tree = self.built()
        with open(os.path.join(tree, "built/built.json"), encoding="utf-8") as file:
            how = json.load(file)
        self.assertEqual((how["gpu_arch"], how["cuda_major"], how["nvcc"]), ("90", 13, "13.0"))
        for name in BINARIES:
            file = os.path.join(tree, "built", name)
            self.assertTrue(os.access(file, os.X_OK), name)
            self.assertLess(os.path.getsize(file), os.path.getsize(os.path.join(build, name)))
        tools = os.path.join(self.folder, "few")
        os.makedirs(tools)
        for name in ("bash", "dirname", "python3", "realpath"):
            os.symlink(shutil.which(name), os.path.join(tools, name))
        out = os.path.join(self.folder, "out")
        done = subprocess.run([os.path.join(tree, "gpu/verify.sh"), "--out", out],
                              env={"PATH": tools}, capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (3, ""), done.stdout)
        with open(os.path.join(out, "results.json"), encoding="utf-8") as file:
            results = json.load(file)
        self.assertEqual(results["reason"], "no GPU: nvidia-smi is not here")
        self.assertEqual((results["built"], results["versions"]["nvcc"]), ("elsewhere", "13.0"))

    def test_it_builds_from_what_it_has(self):
        build = os.path.join(self.folder, "build")
        environment = self.environment()
        setup = subprocess.run([*MESON, "setup", "-Dbuildtype=plain", "-Dnative=false",
                                "-Dgpu=disabled", "-Dcpp_args=-O0", build, self.tree],
                               env=environment, capture_output=True, text=True, check=False)
        self.assertEqual(setup.returncode, 0, setup.stdout[-2000:] + setup.stderr)
        done = subprocess.run(["ninja", "-C", build, *OBJECTS], env=environment,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout[-2000:])
        called = os.path.join(self.folder, "called")
        if os.path.exists(called):   # Meson itself may ask pkg-config for a missing library
            with open(called, encoding="utf-8") as file:
                self.assertFalse({"apt-get", "dpkg-query"} & set(file.read().split()))
        deps = subprocess.run(["ninja", "-C", build, "-t", "deps"], capture_output=True, text=True,
                              check=True).stdout
        used = {os.path.normpath(os.path.join(build, line.strip()))
                for line in deps.splitlines() if LIBRARIES.search(line)}
        for library in ("Eigen", "fmt", "boost", "CLI", "nlohmann", "catch2", "cmark-gfm.h"):
            self.assertTrue(any(f"/bundled/include/{library}" in path for path in used), library)
        self.assertEqual([path for path in used
                          if not path.startswith(os.path.join(self.tree, "bundled/include"))], [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
