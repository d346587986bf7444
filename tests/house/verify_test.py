#!/usr/bin/env python3
"""gpu/verify.sh where program, build and GPU are stubs: it runs everything, cuts what takes too
long, and fails where a step that must pass did not.

Arguments: the project's root.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else ".")
PROGRAM = """case "$1 $*" in
    lessons*) printf 'ring\\n    The ring\\nline\\n    The line\\n' ;;
    doctor*) echo '{doctor}' ;;
    *ring*--help*) printf 'Settings:\\n  steps    of the model (400)\\n' ;;
    *line*--help*) printf 'Settings:\\n  steps    of training (40)\\n' ;;
    *line*"--ranks 1"*) echo 'lockstep: --ranks 1: from 2' >&2; exit 2 ;;
    *--backends*) echo '{compared}' ;;
    *"$BREAK"*) echo 'lockstep: it broke' >&2; exit 1 ;;
    *"$SLOW"*) sleep 60 ;;
    *) echo 'All 7 checks passed.' ;;
esac"""
DOCTOR = {"cuda": "13.0", "driver": "13.1", "nccl": "2.28.9", "backends": ["sim", "cuda", "nccl"],
          "gpus": [{"name": "Some GPU"}],
          "findings": [{"part": "srun", "there": False, "found": "no srun", "gives": "more"}]}
COMPARED = {"comparison": {"tensors": [
    {"passed": True, "largest_relative": 2e-7, "bound": 1e-5},
    {"passed": True, "largest_relative": 0.0, "bound": 1e-5}]}}
SPEED = {"benchmarks": [{"name": "matmul/4096", "time_over_cublas": 1.01, "tflops": 50.0},
                        {"name": "attention/forward/4096/iterations:10",
                         "time_over_products": 0.6, "tflops": 20.0},
                        {"name": "add/x", "of_copy": 0.97}, {"name": "sum/x", "of_copy": 0.9}]}


class Verify(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        for name in ("verify.sh", "verify_figures.py"):
            os.makedirs(self.path("gpu"), exist_ok=True)
            shutil.copy(os.path.join(ROOT, "gpu", name), self.path("gpu", name))
        self.write("bundled/commit", "abc123\n", mode=0o644)
        self.script("lockstep", "echo '12 passed, 0 failed, 0 skipped'")
        self.script("bin/ninja", "exit 0")
        self.script("bin/compute-sanitizer", "echo '========= ERROR SUMMARY: 0 errors'")
        self.script("bin/nvidia-smi", "echo 'Some GPU, 80 GB, 580.1'")
        for tests in ("gpu_device_tests", "gpu_comm_tests"):
            self.script(f"build/tests/gpu/{tests}",
                        "echo 'All tests passed (9 assertions in 3 test cases)'")
        self.bench(SPEED)
        self.doctor(DOCTOR)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def write(self, name, text, mode=0o755):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(self.path(name), mode)

    def script(self, name, body):
        self.write(name, f"#!/bin/bash\n{body}\n")

    def doctor(self, document):
        self.script("build/lessons/lockstep", PROGRAM.replace("{doctor}", json.dumps(document))
                    .replace("{compared}", json.dumps(COMPARED)))

    def bench(self, document):
        self.script("build/tests/bench/gpu_bench", f"echo '{json.dumps(document)}'")

    def verify(self, **environment):
        run = subprocess.run([self.path("gpu/verify.sh"), self.path("out")], capture_output=True,
                             text=True, check=False,
                             env={"PATH": self.path("bin") + ":" + os.environ["PATH"],
                                  "BREAK": "nothing", "SLOW": "nothing"} | environment)
        with open(self.path("out/table.md"), encoding="utf-8") as file:
            self.assertEqual(file.read(), run.stdout)
        rows = [[cell.strip() for cell in line.strip("|").split(" | ")]
                for line in run.stdout.splitlines() if line.startswith("| ")]
        return run, {row[0]: row for row in rows}

    def test_where_all_is_well_it_says_so_with_figures(self):
        run, rows = self.verify()
        self.assertEqual((run.returncode, run.stderr), (0, ""), run.stdout)
        for part in ("- commit: abc123\n", "- GPU: Some GPU, 80 GB, 580.1\n",
                     "- CUDA, driver, NCCL: 13.0, 13.1, 2.28.9\n"):
            self.assertIn(part, run.stdout)
        self.assertEqual({row[2] for name, row in rows.items() if name not in ("what", "---")},
                         {"ok"})
        self.assertIn("lesson ring --backend cuda --ranks 4 --set steps=100",
                      rows["ring on 4 virtual devices, cuda"][1])
        for what, figure in (
                ("ring, sim against cuda", "2 tensors, largest relative difference 2.0e-07"),
                ("ring on 1 rank, nccl", "All 7 checks passed."),
                ("memcheck of the device's contract", "ERROR SUMMARY: 0 errors"),
                ("memcheck of the communicator's contract", "ERROR SUMMARY: 0 errors"),
                ("the device's contract on the GPU", "9 assertions in 3 test cases"),
                ("the communicator's contract on the GPUs", "9 assertions in 3 test cases"),
                ("attention, of the time of cuBLAS, softmax and cuBLAS",
                 "attention/forward/4096 0.60, 20.0 TFLOP/s"),
                ("kernels, at least 85 % of copy bandwidth", "2 kernels, the lowest sum 0.90"),
                ("the suite", "12 passed, 0 failed, 0 skipped")):
            self.assertIn(figure, rows[what][3])

    def test_a_lesson_that_needs_two_ranks_shares_the_only_gpu_or_takes_two(self):
        shared, alone = ("line, sim against two NCCL ranks that share the GPU",
                         "line, sim against nccl")
        run, rows = self.verify(BREAK="--backend nccl --ranks 2 --set nccl=shared")
        self.assertEqual(run.returncode, 0, run.stdout)
        self.assertIn("--ranks 2 --json --set nccl=shared", rows[shared][1])
        self.assertNotIn("steps", rows[shared][1])
        self.assertNotIn(alone, rows)
        self.doctor(DOCTOR | {"gpus": [{}, {}]})
        run, rows = self.verify(BREAK="line --backend nccl --ranks 2")
        self.assertEqual(run.returncode, 1)
        self.assertIn("--ranks 2 --json", rows[alone][1])
        self.assertEqual(rows["line on 2 ranks, nccl"][2], "FAILED with status 1")
        self.assertEqual(rows["ring on 1 rank, nccl"][2], "ok")
        self.assertNotIn(shared, rows)

    def test_a_failure_stops_nothing_and_is_told(self):
        run, rows = self.verify(BREAK="--backend nccl --ranks 1")
        self.assertEqual(run.returncode, 1)
        row = rows["ring on 1 rank, nccl"]
        self.assertEqual(row[2], "FAILED with status 1")
        self.assertIn("it broke", row[3])
        self.assertEqual(rows["the suite"][2], "ok")
        self.assertIn("1 of the steps that must pass did not.", run.stdout)

    def test_two_ranks_on_one_gpu_may_fail(self):
        run, rows = self.verify(BREAK="nccl=shared")
        self.assertEqual(run.returncode, 0)
        self.assertEqual(rows["ring, two NCCL ranks share the GPU"][2], "FAILED with status 1")

    def test_what_takes_too_long_is_cut_and_what_comes_after_it_is_not_run(self):
        run, rows = self.verify(SLOW="--backend nccl --ranks 1", VERIFY_SECONDS="8")
        self.assertEqual(run.returncode, 1)
        self.assertRegex(rows["ring on 1 rank, nccl"][2], r"^cut after \d+ s$")
        self.assertEqual(rows["the suite"][2], "not run: no time was left")

    def test_a_goal_of_speed_that_is_missed_is_a_failure(self):
        self.bench({"benchmarks": [{"name": "matmul", "time_over_cublas": 1.2, "tflops": 9.0},
                                   {"name": "add/x", "of_copy": 0.5}]})
        run, rows = self.verify()
        self.assertIn("2 of the steps that must pass did not.", run.stdout)
        self.assertIn("below the goal: add 0.50",
                      rows["kernels, at least 85 % of copy bandwidth"][3])

    def test_without_a_gpu_it_says_what_is_missing(self):
        self.doctor(DOCTOR | {"backends": ["sim"], "findings": [
            {"part": "driver", "there": False, "found": "no driver", "gives": "--backend cuda"}]})
        run, rows = self.verify()
        self.assertEqual(run.returncode, 1)
        self.assertIn("backends sim; no driver", rows["what this machine can do"][3])

    def test_what_is_not_there_is_told(self):
        for name in ("bin/compute-sanitizer", "build/tests/bench/gpu_bench"):
            os.remove(self.path(name))
        if shutil.which("compute-sanitizer"):
            self.skipTest("this machine has compute-sanitizer")
        run, rows = self.verify()
        self.assertEqual(rows["speed"][2], "not built")
        self.assertEqual(rows["racecheck of the device's contract"][2], "not run")
        self.assertEqual(run.returncode, 0)

    def test_a_build_that_fails_ends_it(self):
        self.script("lockstep", "echo 'a.cpp: error' >&2; exit 1")
        run = subprocess.run([self.path("gpu/verify.sh"), self.path("out")], capture_output=True,
                             text=True, check=False)
        self.assertEqual(run.returncode, 1)
        self.assertIn("a.cpp: error", run.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
