#!/usr/bin/env python3
"""The program loads the GPU twin on request, or says why it cannot.

Arguments: the program, a module that uses the emulator, the compiler…
"""

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM, MODULE = (os.path.abspath(path) for path in sys.argv[1:3])
COMPILER = sys.argv[3:]
LESSON = ["lesson", "gradient-accumulation", "--step", "2", "--set", "epochs=5"]


def run(arguments, module=MODULE, **environment):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, check=False,
                          env={**os.environ, "LOCKSTEP_GPU_MODULE": module, **environment})


class Modules(unittest.TestCase):
    def assert_refused(self, done, status, sentence):
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertIn(sentence, done.stderr)
        self.assertEqual(done.stderr.count("lockstep: "), 1, done.stderr)

    def test_devices_and_processes_come_from_the_module(self):
        for options in (["--backend", "cuda"], ["--backend", "nccl", "--ranks", "1"],
                        ["--backend", "nccl", "--ranks", "2"]):
            done = run([*LESSON, *options])
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("checks passed", done.stdout)

    def test_what_the_module_throws_is_understood(self):
        for options in (["--backend", "cuda"], ["--backend", "nccl", "--ranks", "2"]):
            done = run([*LESSON, *options], EMULATED_GPU_BYTES="30000")
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertEqual(done.stderr.count("F30: a device is out of memory"), 1, done.stderr)
        self.assert_refused(run([*LESSON, "--backend", "cuda"], EMULATED_GPUS="0"), 3,
                            "--backend cuda: ")

    def test_a_module_that_is_not_there(self):
        self.assert_refused(run([*LESSON, "--backend", "cuda"], module="/nowhere/twin.so"), 3,
                            "/nowhere/twin.so, which the GPU twin needs, was not found")

    def test_a_program_without_its_module_says_first_whether_there_is_a_driver(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        program = shutil.copy(PROGRAM, folder)
        done = subprocess.run([program, *LESSON, "--backend", "cuda"], capture_output=True,
                              text=True, check=False)
        if "the GPU twin was not built, because" in done.stderr:
            self.skipTest("this build found no CUDA toolkit")
        try:
            ctypes.CDLL("libcuda.so.1")
            expected = "liblockstep_gpu.so was not found in the build"
        except OSError:
            expected = "this machine has no NVIDIA driver: "
        self.assert_refused(done, 3, expected)

    def test_a_library_that_is_not_there(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        for name, text, flags in (("libnccl-away.so", "int away() { return 0; }", []),
                                  ("twin.so", "int away(); int here() { return away(); }",
                                   ["libnccl-away.so"])):
            subprocess.run([*COMPILER, "-shared", "-fPIC", "-x", "c++", "-", "-x", "none", *flags,
                            "-o", name], input=text, text=True, check=True, cwd=folder)
        os.remove(os.path.join(folder, "libnccl-away.so"))
        self.assert_refused(run([*LESSON, "--backend", "nccl"],
                                module=os.path.join(folder, "twin.so")), 3,
                            "libnccl-away.so, which the GPU twin needs, was not found")

    def test_another_library(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        path = os.path.join(folder, "other.so")
        subprocess.run([*COMPILER, "-shared", "-fPIC", "-x", "c++", "-", "-o", path],
                       input="int other() { return 0; }", text=True, check=True)
        self.assert_refused(run([*LESSON, "--backend", "cuda"], module=path), 3,
                            "is no GPU twin of Lockstep")

    def test_without_gpus_nothing_is_loaded(self):
        done = run(["lessons"], module="/nowhere/twin.so")
        self.assertEqual(done.returncode, 0, done.stderr)
        done = run(LESSON, module="/nowhere/twin.so")
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
