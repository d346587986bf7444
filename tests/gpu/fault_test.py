#!/usr/bin/env python3
"""If a kernel of a lesson touches memory that is not its own, the run ends with one message.

Argument: the program with CUDA and NCCL emulated.
"""

import os
import subprocess
import sys
import unittest

PROGRAM = os.path.abspath(sys.argv[1])
LESSON = ["lesson", "gradient-accumulation", "--set", "epochs=2", "--set", "steps=2", "--set",
          "rows=8", "--set", "hidden=8", "--set", "timeout=20"]
LACKING = 3


def run(launch, gpu, *options):
    """Runs with a fault at launch number `launch` of the GPU. The seed changes orders."""
    environment = {**os.environ, "EMULATED_FAULT_AT_LAUNCH": str(launch),
                   "EMULATED_FAULT_GPU": str(gpu), "EMULATED_GPU_SEED": str(launch)}
    return subprocess.run([PROGRAM, *LESSON, *options], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, env=environment, check=False)


class Faults(unittest.TestCase):
    def assert_sentence(self, done, begin):
        """Checks that no signal ended the process, and that it printed one line with one rank."""
        self.assertEqual(done.returncode, LACKING, done.stderr)
        self.assertRegex(done.stderr, begin)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertEqual(done.stderr.count("rank "), 1, done.stderr)
        self.assertIn("cudaErrorIllegalAddress", done.stderr)

    def test_of_one_process(self):
        for launch in (1, 3, 6, 25, 60, 120):
            with self.subTest(launch=launch):
                done = run(launch, 0, "--backend", "nccl", "--ranks", "1")
                self.assert_sentence(done, "^lockstep: rank 0: ")
                self.assertIn("an earlier operation may be the cause: use --set sync=1 to see "
                              "which", done.stderr)

    def test_of_one_of_two_processes_that_communicate(self):
        for gpu in (0, 1):
            for launch in (1, 4, 5, 6, 8, 15, 40, 90, 100, 133):
                with self.subTest(launch=launch, gpu=gpu):
                    done = run(launch, gpu, "--backend", "nccl", "--ranks", "2")
                    self.assert_sentence(done, f"^lockstep: rank {gpu}: ")

    def test_of_virtual_devices(self):
        for launch in (1, 2, 10, 33, 100):
            with self.subTest(launch=launch):
                done = run(launch, 0, "--backend", "cuda", "--ranks", "2")
                self.assert_sentence(done, "^lockstep: rank [01]: [a-z_]+ at [a-z]")

    def test_of_the_operation_that_is_waited_for(self):
        for backend, first in (("nccl", 5), ("cuda", 1)):
            operations = []
            for launch in range(first, first + 6):
                with self.subTest(backend=backend, launch=launch):
                    done = run(launch, 0, "--backend", backend, "--ranks", "2", "--set", "sync=1")
                    self.assert_sentence(done, "^lockstep: rank 0: [a-z_]+ at [a-z]")
                    self.assertNotIn("earlier", done.stderr)
                    operations.append(done.stderr.split()[3])
            known = [name for name in ("random_uniform", "matmul", "add_bias", "squared_error")
                     if name in operations]
            self.assertEqual(known, list(dict.fromkeys(operations)), "as the program asks")
            self.assertGreater(len(known), 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
