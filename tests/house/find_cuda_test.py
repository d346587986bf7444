#!/usr/bin/env python3
"""Runs find_cuda.py on toolkits of empty files.  Arguments: the folder of find_cuda.py."""

import os
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "gpu"))
import find_cuda  # noqa: E402

NCCL_H = "#define NCCL_MAJOR {}\n#define NCCL_MINOR {}\n"


class FindCuda(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.realpath(folder.name)
        for patch in (mock.patch.object(find_cuda, "USUAL_TOOLKITS", [self.path("usual-*")]),
                      mock.patch.object(find_cuda, "SYSTEM", [self.path("system")]),
                      mock.patch.object(find_cuda.sysconfig, "get_paths", lambda: {
                          "purelib": self.path("python"), "platlib": self.path("python")}),
                      mock.patch.dict(os.environ, {"PATH": self.path("bin")}, clear=True)):
            patch.start()
            self.addCleanup(patch.stop)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def write(self, *parts, text="", mode=0o644):
        path = self.path(*parts)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, mode)
        return path

    def nvcc(self, *parts, release="13.0"):
        return self.write(*parts, "bin", "nvcc", mode=0o755,
                          text=f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V'\n")

    def gpus(self, *capabilities, nvcc_knows):
        smi = "".join(f"echo {capability};" for capability in capabilities)
        self.write("bin", "nvidia-smi", mode=0o755, text=f"#!/bin/sh\n{smi}\n")
        known = "".join(f"echo compute_{arch};" for arch in nvcc_knows)
        return self.write("a-toolkit", "bin", "nvcc", mode=0o755, text=f"#!/bin/sh\n{known}\n")

    def toolkit(self, root, major=13, nccl=(2, 28)):
        self.nvcc(root, release=f"{major}.0")
        for header in ("cuda_runtime.h", "cublas_v2.h"):
            self.write(root, "include", header)
        for name in ("cudart", "cublas"):
            self.library(root, "lib64", name, major)
        if nccl:
            self.nccl(root, "lib64", nccl)

    def library(self, root, place, name, major):
        self.write(root, place, f"lib{name}.so.{major}")
        os.symlink(f"lib{name}.so.{major}", self.path(root, place, f"lib{name}.so"))

    def nccl(self, root, place, version=(2, 28)):
        self.write(root, "include", "nccl.h", text=NCCL_H.format(*version))
        self.library(root, place, "nccl", 2)

    def missing(self, given=""):
        with self.assertRaises(find_cuda.Missing) as raised:
            find_cuda.find(given)
        self.assertNotIn("=", str(raised.exception))   # Meson splits the lines at "="
        return str(raised.exception)

    def found(self, given=""):
        lines = find_cuda.find(given)
        return dict(lines), [value for key, value in lines if key == "include"]

    def test_without_nvcc_it_says_so(self):
        self.assertEqual(self.missing(), "nvcc was not found")
        self.assertIn("not a program", self.missing(self.path("no-such-nvcc")))

    def test_a_toolkit_in_the_usual_folder_is_found_without_a_path(self):
        self.toolkit("usual-13")
        found, includes = self.found()
        self.assertEqual(found["nvcc"], self.path("usual-13/bin/nvcc"))
        self.assertEqual(found["cublas"], self.path("usual-13/lib64/libcublas.so"))
        self.assertEqual(includes, [self.path("usual-13/include")])

    def test_what_the_environment_names_comes_first(self):
        for root in ("usual-13", "mine", "bin-has-it"):
            self.toolkit(root)
        os.symlink(self.path("bin-has-it/bin"), self.path("bin"))
        self.assertEqual(self.found()[0]["nvcc"], self.path("bin-has-it/bin/nvcc"))
        os.environ["CUDA_HOME"] = self.path("mine")
        self.assertEqual(self.found()[0]["nvcc"], self.path("mine/bin/nvcc"))
        given = self.path("usual-13/bin/nvcc")
        self.assertEqual(self.found(given)[0]["nvcc"], given)

    def test_nccl_may_come_from_the_system_from_its_own_folder_or_from_python(self):
        self.toolkit("usual-13", nccl=None)
        self.assertEqual(self.missing(), "nccl.h was not found")
        self.write("python", "nvidia", "nccl", "include", "nccl.h", text=NCCL_H.format(2, 28))
        self.assertEqual(self.missing(), "libnccl.so.2 was not found")
        # Python's packages have a library's versioned name only, not its name for linking.
        self.write("python", "nvidia", "nccl", "lib", "libnccl.so.2")
        found, includes = self.found()
        self.assertEqual(found["nccl"], self.path("python/nvidia/nccl/lib/libnccl.so.2"))
        self.assertEqual(includes[1:], [self.path("python/nvidia/nccl/include")])
        self.nccl("system", "lib/x86_64-linux-gnu")
        self.assertEqual(self.found()[0]["nccl"],
                         self.path("system/lib/x86_64-linux-gnu/libnccl.so"))
        self.nccl("own", "lib")
        os.environ["NCCL_HOME"] = self.path("own")
        self.assertEqual(self.found()[0]["nccl"], self.path("own/lib/libnccl.so"))

    def test_a_whole_toolkit_may_come_from_python(self):
        self.toolkit("python/nvidia/cu13")
        self.assertEqual(self.found()[0]["nvcc"], self.path("python/nvidia/cu13/bin/nvcc"))

    def test_header_and_library_come_from_one_place_where_one_has_both(self):
        self.toolkit("usual-13", nccl=None)
        self.write("usual-13", "include", "nccl.h", text=NCCL_H.format(2, 28))
        self.nccl("system", "lib")
        found, includes = self.found()
        self.assertEqual(found["nccl"], self.path("system/lib/libnccl.so"))
        self.assertEqual(includes, [self.path("usual-13/include"), self.path("system/include")])

    def test_libraries_of_another_cuda_are_passed_over(self):
        self.toolkit("usual-13")
        for name in ("libcublas.so", "libcublas.so.13"):
            os.remove(self.path("usual-13/lib64", name))
        self.library("system", "lib", "cublas", 12)
        self.assertEqual(self.missing(), "libcublas.so.13 was not found")

    def test_what_is_too_old_is_named(self):
        self.toolkit("usual-11", major=11)
        self.assertIn("CUDA 11.0 and C++20 needs 12.0 or later", self.missing())
        self.toolkit("usual-13", nccl=(2, 17))
        self.assertIn("is 2.17 and 2.18 or later is needed", self.missing())

    def test_without_gpus_kernels_are_for_all_since_ampere(self):
        self.toolkit("usual-13")
        self.assertEqual(self.found()[0]["arch"], "80")
        self.write("bin", "nvidia-smi", mode=0o755,
                   text="#!/bin/sh\necho 'NVIDIA-SMI has failed'; exit 9\n")
        self.assertEqual(self.found()[0]["arch"], "80")

    def test_kernels_are_for_each_capability_of_this_machine(self):
        for gpus, known, expected in (
                (("9.0", "8.0", "9.0"), (75, 80, 90), [80, 90]),
                (("8.6", "12.0"), (75, 80, 86, 89, 90), [86, 90]),    # newer than nvcc
                (("7.0", "8.0"), (75, 80, 90), [80]),                 # nvcc does not compile for it
                (("7.0",), (75, 80, 90), [80]),
                (("[N/A]", "8.9"), (75, 80, 89), [89])):
            nvcc = self.gpus(*gpus, nvcc_knows=known)
            self.assertEqual(find_cuda.compute_capabilities(nvcc), expected)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
