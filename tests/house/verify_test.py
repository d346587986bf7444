#!/usr/bin/env python3
"""Tests gpu/verify.sh: what it runs, in which order, and what its results say if programs
fail, hang or crash. Programs, builds and GPUs are stubs, or the clock is simulated.

Arguments: the project's root.
"""

import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
from contextlib import redirect_stdout

ROOT = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else ".")
sys.path.insert(0, os.path.join(ROOT, "gpu"))
import verified          # noqa: E402
import verify_plan       # noqa: E402
import verify_run        # noqa: E402

STATUSES = {"passed", "failed", "hung", "crashed", "not built", "skipped", "not run", "running"}
PROGRAM = """case "$1 $*" in
    lessons*) printf 'ring\\n    The ring\\nline\\n    The line\\n' ;;
    doctor*) echo '{doctor}' ;;
    *ring*--help*) printf 'Settings:\\n  steps    of the model (1 to 1000; default 400)\\n' ;;
    *line*--help*) printf 'Settings:\\n  steps    of training (default 40)\\n' ;;
    *line*"--ranks 1"*) echo 'lockstep: --ranks 1: from 2' >&2; exit 2 ;;
    *"$SLOW"*) exec sleep 60 ;;
    *"$BREAK"*) echo 'lockstep: it broke' >&2; exit 1 ;;
    *--backends*) echo '{compared}' ;;
    *) echo "All 7 checks passed with $LD_LIBRARY_PATH" ;;
esac"""
NINJA = """echo "ninja $*" >>{folder}/compiled
case "$*" in
    *"-t targets"*) printf '%s: x\\n' {targets} ;;
    *-n*"$STALE"*) echo '[1/1] linking' ;;
    *-n*) echo 'ninja: no work to do.' ;;
    *) [ "$STALE" = nothing ] ;;
esac"""
DOCTOR = {"cuda": "13.0", "driver": "13.1", "nccl": "2.28.9", "backends": ["sim", "cuda", "nccl"],
          "gpus": [{"name": "Some GPU"}],
          "findings": [{"part": "srun", "there": False, "found": "no srun", "gives": "more"}]}
COMPARED = {"comparison": {"tensors": [
    {"passed": True, "largest_relative": 2e-7, "bound": 1e-5},
    {"passed": True, "largest_relative": 0.0, "bound": 1e-5}]}}
SPEED = {"benchmarks": [{"name": "matmul/4096", "time_over_cublas": 1.01, "tflops": 50.0},
                        {"name": "attention/forward/4096/iterations:10",
                         "time_over_products": 0.6, "tflops": 20.0,
                         "rate_over_matmul": 0.4},
                        {"name": "add/x", "of_best": 0.97, "goal": 0.85},
                        {"name": "sum/x", "of_best": 0.9, "goal": 0.85}]}
CASES = "All tests passed (9 assertions in 3 test cases)"
ORDER = ["a GPU", "configure, and build the program", "build what the steps run",
         "what this machine can do", "the device's contract on the GPU", "speed",
         "4096³ product, at most 1.05 of the time of plain cuBLAS",
         "attention, as a fraction of the time of cuBLAS, softmax and cuBLAS",
         "kernels: does each reach its goal", "memcheck of our own kernels",
         "the communicator's contract on the GPUs",
         "the communicator's contract, two processes share the GPU",
         "ring, sim against two NCCL ranks that share the GPU",
         "ring on 4 virtual devices, cuda", "ring, sim against cuda", "ring on 1 rank, nccl",
         "ring, sim against nccl", "line on 4 virtual devices, cuda", "line, sim against cuda",
         "the suite", "racecheck of our own kernels", "synccheck of our own kernels",
         "line, sim against two NCCL ranks that share the GPU"]
WELL = {verify_plan.figures.cases: CASES, verify_plan.figures.compared: json.dumps(COMPARED),
        verify_plan.figures.speed: json.dumps(SPEED),
        verify_plan.figures.doctor: json.dumps(DOCTOR),
        verify_plan.figures.sanitized: "ERROR SUMMARY: 0 errors\n" + CASES,
        verify_plan.figures.suite: "12 passed, 0 failed, 0 skipped",
        verify_plan.figures.gpus: "Some GPU, 80 GB, 580.1",
        verify_plan.figures.last_line: "ok"}


class Simulated(unittest.TestCase):
    """Runs steps in no time, with a clock that advances by their usual times."""

    def setUp(self):
        memory = "/dev/shm"   # thousands of files are written
        self.folder = tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else None)
        self.addCleanup(shutil.rmtree, self.folder)
        self.now = 0.0
        self.ends = {}        # step: its exit status, or None if it hangs
        self.ran = []

    def steps(self, lessons=2, gpus=1):
        machine = verify_plan.Machine(
            "build", gpus, [verify_plan.Lesson("ring", 1, 400), verify_plan.Lesson("line", 2, 40)]
            + [verify_plan.Lesson(f"more-{i}", 1, 100) for i in range(lessons - 2)], "sanitizer")
        return [verify_plan.gpu_step(), verify_plan.configure_step(),
                verify_plan.build_step("build", list(verify_plan.TARGETS)),
                verify_plan.doctor_step(machine),
                *verify_plan.all_steps(machine, list(verify_plan.PARTS))]

    def results(self):
        with open(os.path.join(self.folder, "results.json"), encoding="utf-8") as file:
            results = json.load(file)
        for row in results["steps"]:
            self.assertIn(row["status"], STATUSES)
        return results

    def execute(self, argv, limit, out, _errors, _folder, _environment):
        rows = self.results()["steps"]
        [here] = [i for i, row in enumerate(rows) if row["status"] == "running"]
        self.assertEqual(rows[here]["argv"], argv)
        self.assertEqual({row["status"] for row in rows[here + 1:]} - {"not run"}, set())
        step = self.by_name[rows[here]["name"]]
        self.ran.append(step.name)
        code = self.ends.get(step.name, 0)
        self.now += limit if code is None else min(step.typical, limit)
        out.write(WELL[step.reader].encode() if code == 0 else b"")
        return code

    def run_steps(self, steps, seconds=580):
        self.by_name = {step.name: step for step in steps}
        self.now, self.ran = 0.0, []
        run = verify_run.Run(self.folder, "/", {}, seconds, clock=lambda: self.now,
                             execute_step=self.execute)
        with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
            run.run_all(steps)
        status = run.end(run.exit_status())
        return status, {row["name"]: row for row in self.results()["steps"]}

    def test_the_steps_come_in_the_order_of_what_they_tell(self):
        self.assertEqual([step.name for step in self.steps()], ORDER)

    def test_several_gpus_are_not_shared(self):
        names = [step.name for step in self.steps(gpus=2)]
        self.assertIn("line on 2 ranks, nccl", names)
        self.assertFalse([name for name in names if "share" in name])

    def test_all_of_it_takes_less_than_ten_minutes_as_far_as_times_are_known(self):
        status, rows = self.run_steps(self.steps(lessons=5))
        self.assertEqual(status, 0)
        self.assertEqual({row["status"] for row in rows.values()}, {"passed"})
        self.assertGreater(self.now, 300)   # the clock runs
        self.assertLess(self.now, 600)
        self.assertEqual(self.results()["seconds"], self.now)

    def test_when_all_hang_the_first_steps_still_have_their_turn(self):
        steps = self.steps(lessons=5)
        self.ends = {step.name: None for step in steps}
        status, rows = self.run_steps(steps)
        self.assertEqual(status, 1)
        self.assertLessEqual(self.now, 580)
        device = rows["the device's contract on the GPU"]
        self.assertEqual((device["status"], device["reason"]),
                         ("hung", "cut after 90 s, when no time was left"))
        self.assertEqual((rows["the suite"]["status"], rows["the suite"]["reason"]),
                         ("not run", "no time was left"))

    def test_what_may_fail_takes_25_seconds_at_most(self):
        steps = self.steps(lessons=5)
        optional = [step.name for step in steps if step.need == "may" and not step.goal_of]
        self.ends = {name: None for name in optional}
        status, rows = self.run_steps(steps, seconds=10000)
        self.assertEqual(status, 0)
        self.assertEqual({rows[name]["seconds"] for name in optional
                          if rows[name]["status"] == "hung"}, {verify_run.OPTIONAL_SECONDS})

    def test_after_a_hang_of_two_that_share_the_gpu_no_others_share_it(self):
        shared = [step.name for step in self.steps(lessons=5) if step.shares_gpu]
        self.assertEqual(len(shared), 1 + verify_plan.MOST_SHARED)
        for broken in (0, 2):
            self.ends = {shared[broken]: None}
            status, rows = self.run_steps(self.steps(lessons=5))
            self.assertEqual(status, 0)
            for name in shared[broken + 1:]:
                self.assertEqual(rows[name]["status"], "skipped")
                self.assertIn(shared[broken], rows[name]["reason"])
                self.assertNotIn(name, self.ran)
            self.assertEqual(rows[shared[0]]["status"], "hung" if broken == 0 else "passed")
            self.assertEqual(rows["racecheck of our own kernels"]["status"], "passed")

    def test_each_step_in_turn_may_fail_hang_or_crash(self):
        steps = self.steps()
        for step in (step for step in steps if not step.goal_of):
            for code, status in ((4, "failed"), (None, "hung"), (-11, "crashed")):
                self.ends = {step.name: code}
                exit_status, rows = self.run_steps(steps, seconds=5000)
                self.assertEqual(rows[step.name]["status"], status, step.name)
                self.assertEqual(exit_status, 1 if step.need == "must" else 0, step.name)
                others = {row["name"]: row["status"] for row in rows.values()
                          if row["name"] != step.name and row["status"] != "passed"}
                expected = {other.name for other in steps if other.goal_of == step.name}
                if code is None and step.shares_gpu:
                    expected |= {other.name for other in steps[steps.index(step) + 1:]
                                 if other.shares_gpu}
                self.assertEqual(set(others), expected, step.name)

    def test_a_crash_that_a_shell_reports_is_one_too(self):
        self.assertEqual([verify_run.status_of(code, 9)[0] for code in (0, 1, 77, 134, 139, -6)],
                         ["passed", "failed", "failed", "crashed", "crashed", "crashed"])

    def test_what_a_step_says_is_read_or_it_has_failed(self):
        for name, reader in ((step.name, step.reader) for step in self.steps()):
            if reader in (verify_plan.figures.last_line, verify_plan.figures.gpus):
                continue
            for text in ("", "{}", "nonsense"):
                with self.assertRaises((KeyError, ValueError, IndexError), msg=name):
                    reader(text)


class Stubs(unittest.TestCase):
    """Runs all of verify.sh, with stubs for programs."""

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        for file in (glob.glob(os.path.join(ROOT, "gpu/*.py")) +
                     [ROOT + "/gpu/verify.sh", ROOT + "/gpu/with_mps.sh"]):
            os.makedirs(self.path("gpu"), exist_ok=True)
            shutil.copy(file, self.path("gpu"))
        self.write("bundled/commit", "abc123\n", mode=0o644)
        self.script("lockstep", f"echo \"lockstep $*\" >>{self.folder}/compiled\n"
                                "echo '12 passed, 0 failed, 0 skipped'")
        self.script("bin/ninja", NINJA.replace("{targets}", " ".join(verify_plan.TARGETS))
                    .replace("{folder}", self.folder))
        self.script("bin/compute-sanitizer",
                    f"echo '========= ERROR SUMMARY: 0 errors'\necho '{CASES}'")
        self.script("bin/nvidia-smi", "echo 'Some GPU, 81559 MiB, 580.1'")
        self.cuda()
        for tests in ("gpu_device_tests", "gpu_comm_tests"):
            self.script(f"build/tests/gpu/{tests}", f"echo '{CASES}'")
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

    def cuda(self):
        self.script("cuda/bin/nvcc", "echo 'Cuda compilation tools, release 13.0, V13.0.88'")
        for header in ("cuda_runtime.h", "cublas_v2.h"):
            self.write(f"cuda/include/{header}", "")
        self.write("cuda/include/nccl.h", "#define NCCL_MAJOR 2\n#define NCCL_MINOR 28\n")
        for library in ("cudart.so.13", "cublas.so.13", "nccl.so.2"):
            self.write(f"cuda/lib64/lib{library}", "")

    def doctor(self, document):
        self.script("build/lessons/lockstep", PROGRAM.replace("{doctor}", json.dumps(document))
                    .replace("{compared}", json.dumps(COMPARED)))
        self.write("build/gpu/liblockstep_gpu.so", "")

    def bench(self, document):
        self.script("build/tests/bench/gpu_bench", f"echo '{json.dumps(document)}'")

    def environment(self, **changes):
        return {"PATH": self.path("bin") + ":" + os.environ["PATH"], "HOME": self.folder,
                "CUDA_HOME": self.path("cuda"), "BREAK": "nothing", "SLOW": "nothing",
                "STALE": "nothing"} | changes

    def results(self):
        with open(self.path("out/results.json"), encoding="utf-8") as file:
            return json.load(file)

    def verify(self, *parts, **environment):
        """Returns the exit status, the results, and the results' steps by name."""
        run = subprocess.run([self.path("gpu/verify.sh"), "--out", self.path("out"), *parts],
                             capture_output=True, text=True, check=False,
                             env=self.environment(**environment))
        self.assertEqual(run.stderr, "")
        results = self.results()
        self.assertTrue(run.stdout.endswith("\n" + verified.table(results)), run.stdout)
        self.assertEqual(run.returncode, results["exit_status"])
        self.assertTrue(results["ended"])
        self.assertLessEqual(set(os.listdir(self.path("out"))), {"results.json", "logs.tar.gz"})
        return run.returncode, results, {row["name"]: row for row in results["steps"]}

    def compiled(self):
        if not os.path.exists(self.path("compiled")):
            return ""
        with open(self.path("compiled"), encoding="utf-8") as file:
            return file.read()

    def test_where_all_is_well_it_says_so_with_figures(self):
        status, results, rows = self.verify()
        self.assertEqual(status, 0, results)
        self.assertEqual(list(rows), ORDER)
        self.assertEqual({row["status"] for row in rows.values()}, {"passed"})
        self.assertEqual((results["commit"], results["gpu"]), ("abc123", "Some GPU, 81559 MiB"))
        self.assertEqual({name: results["versions"][name] for name in
                          ("driver", "cuda", "nccl", "nvcc")},
                         {"driver": "580.1", "cuda": "13.0", "nccl": "2.28.9", "nvcc": "13.0"})
        self.assertRegex(results["versions"]["g++"], r"^\d+\.\d")
        self.assertRegex(results["date"], r"^\d{4}-\d\d-\d\dT")
        self.assertGreater(results["seconds"], 0)
        for what, figure, value in (
                ("ring, sim against cuda", "largest_relative", 2e-7),
                ("the device's contract on the GPU", "passed", 3),
                ("memcheck of our own kernels", "errors", 0),
                ("4096³ product, at most 1.05 of the time of plain cuBLAS", "tflops", 50.0),
                ("kernels: does each reach its goal", "of_best", {"add": 0.97, "sum": 0.9}),
                ("the suite", "passed", 12)):
            self.assertEqual(rows[what]["figures"][figure], value)
        self.assertEqual(rows["ring on 4 virtual devices, cuda"]["argv"][-2:],
                         ["--set", "steps=100"])
        self.assertNotIn("steps=100", rows["line on 4 virtual devices, cuda"]["argv"])
        with tarfile.open(self.path("out/logs.tar.gz")) as archive:
            logs = [name for name in archive.getnames() if name.endswith(".log")]
        self.assertEqual(len(logs), len(ORDER) - 3)   # the three goals have no log

    def test_only_the_parts_that_are_asked_for_are_run_and_built(self):
        status, results, rows = self.verify("memcheck", "device")
        self.assertEqual((status, results["parts"]), (0, ["memcheck", "device"]))
        self.assertEqual(list(rows), ORDER[:5] + ORDER[9:10] + ORDER[20:22])
        self.assertIn("gpu_device_tests", rows["build what the steps run"]["argv"][-1])
        self.assertNotIn("gpu_bench", self.compiled())
        self.assertEqual(self.verify("bench")[2]["speed"]["status"], "passed")
        self.assertIn("-k 0 lessons/lockstep gpu_twin tests/bench/gpu_bench", self.compiled())

    def test_programs_that_fail_hang_and_crash_are_told_apart(self):
        self.script("build/tests/gpu/gpu_device_tests", "echo 'it broke' >&2; exit 3")
        self.script("bin/compute-sanitizer", "kill -SEGV $$")
        self.script("build/tests/bench/gpu_bench", "sleep 60 & wait")
        status, _, rows = self.verify("device", "bench", "memcheck", VERIFY_STEP_SECONDS="1")
        self.assertEqual(status, 1)
        device, memcheck = rows[ORDER[4]], rows["memcheck of our own kernels"]
        self.assertEqual((device["status"], device["reason"], device["said"]),
                         ("failed", "exit status 3", "it broke"))
        self.assertEqual((rows["speed"]["status"], rows["speed"]["reason"]),
                         ("hung", "cut after 1 s"))
        self.assertLess(rows["speed"]["seconds"], 3)
        self.assertEqual(memcheck["status"], "crashed")
        self.assertIn("signal 11", memcheck["reason"])
        self.assertEqual(rows["kernels: does each reach its goal"]["status"], "not run")

    def test_a_failure_stops_nothing_and_is_told(self):
        status, _, rows = self.verify("lessons", "suite", BREAK="--backend nccl --ranks 1")
        self.assertEqual(status, 1)
        row = rows["ring on 1 rank, nccl"]
        self.assertEqual((row["status"], row["said"]), ("failed", "lockstep: it broke"))
        self.assertEqual(rows["the suite"]["status"], "passed")

    def test_a_target_that_does_not_compile_takes_only_its_own_steps_along(self):
        status, _, rows = self.verify("device", "bench", STALE="gpu_bench")
        self.assertEqual(status, 1)
        self.assertEqual(rows["build what the steps run"]["status"], "failed")
        self.assertEqual((rows["speed"]["status"], rows["speed"]["reason"]),
                         ("not built", "tests/bench/gpu_bench: its build failed"))
        self.assertEqual(rows[ORDER[4]]["status"], "passed")

    def test_a_build_that_cannot_be_configured_leaves_nothing_to_run(self):
        self.script("lockstep", "echo 'meson.build: error' >&2; exit 1")
        self.script("bin/ninja", f"echo \"ninja $*\" >>{self.folder}/compiled; exit 1")
        self.script("build/tests/gpu/gpu_device_tests", f"echo of yesterday >{self.folder}/ran")
        status, _, rows = self.verify("device")
        self.assertEqual((status, rows[ORDER[4]]["status"]), (1, "not built"))
        self.assertFalse(os.path.exists(self.path("ran")))
        self.assertNotIn("-k 0", self.compiled())

    def test_without_a_gpu_it_says_so_and_builds_nothing(self):
        self.script("bin/nvidia-smi", "echo 'No devices were found'; exit 6")
        status, results, rows = self.verify()
        self.assertEqual((status, list(rows)), (3, ORDER[:1]))
        self.assertEqual(results["reason"], "no GPU: No devices were found")
        self.assertEqual(self.compiled(), "")

    def test_what_the_machine_lacks_is_told_before_the_steps(self):
        self.doctor(DOCTOR | {"backends": ["sim"], "findings": [
            {"part": "driver", "there": False, "found": "no driver", "gives": "--backend cuda"}]})
        status, results, _ = self.verify()
        self.assertEqual((status, results["reason"]), (3, "no driver"))
        self.script("lockstep", "echo 'lockstep: missing here: meson' >&2; exit 3")
        status, results, _ = self.verify()
        self.assertEqual((status, results["reason"]), (3, "lockstep: missing here: meson"))
        os.remove(self.path("cuda/include/nccl.h"))
        os.remove(self.path("cuda/lib64/libnccl.so.2"))
        self.write("cuda/include/nccl.h", "#define NCCL_MAJOR 1\n")
        self.write("cuda/lib64/libnccl.so.2", "")
        status, results, _ = self.verify()
        self.assertEqual(status, 3)
        self.assertIn("2.18 or later is needed", results["reason"])

    def test_a_sanitizer_that_is_missing_is_told(self):
        os.remove(self.path("bin/compute-sanitizer"))
        if shutil.which("compute-sanitizer") or glob.glob("/usr/local/cuda*/bin/compute-sanitizer"):
            self.skipTest("this machine has compute-sanitizer")
        status, _, rows = self.verify("memcheck")
        self.assertEqual((status, rows["memcheck of our own kernels"]["reason"]),
                         (3, "compute-sanitizer is not here"))

    def test_goals_of_speed_that_are_missed_are_failures(self):
        self.bench({"benchmarks": [{"name": "matmul", "time_over_cublas": 1.2, "tflops": 9.0},
                                   {"name": "add/x", "of_best": 0.5, "goal": 0.85}]})
        status, _, rows = self.verify("bench")
        self.assertEqual((status, rows["speed"]["status"]), (1, "passed"))
        self.assertEqual(rows["kernels: does each reach its goal"]["reason"],
                         "below the goal: add 0.50 of 0.85")
        self.assertEqual(rows[ORDER[6]]["reason"], "above the goal: 1.200")

    def test_a_tag_that_no_test_has_is_not_a_pass(self):
        self.script("bin/compute-sanitizer",
                    "echo '========= ERROR SUMMARY: 0 errors'\necho 'No test cases matched'\n"
                    "exit $NO_TESTS")
        for exit_status in "02":   # of Catch2 v2 and v3
            _, _, rows = self.verify("memcheck", NO_TESTS=exit_status)
            self.assertEqual(rows["memcheck of our own kernels"]["status"], "not built")

    def test_two_that_share_the_gpu_do_so_under_mps_if_it_can_be_started(self):
        self.script("build/tests/gpu/gpu_comm_tests",
                    f"echo \"share ${{SHARE_GPU-0}} pipe ${{CUDA_MPS_PIPE_DIRECTORY-none}}\" "
                    f">>{self.path('asked')}; echo '{CASES}'")
        shared = "the communicator's contract, two processes share the GPU"
        for can, pipe in (("exit 1", "none"), ("exit 0", "/")):
            self.script("bin/nvidia-cuda-mps-control",
                        f"[ $# = 1 ] || {{ read line; echo $line >>{self.path('quit')}; }}\n{can}")
            self.write("asked", "")
            _, _, rows = self.verify("nccl")
            self.assertEqual(rows[shared]["status"], "passed")
            with open(self.path("asked"), encoding="utf-8") as asked:
                alone, together = asked.read().splitlines()
            self.assertEqual(alone, "share 0 pipe none")
            self.assertTrue(together.startswith(f"share 1 pipe {pipe}"), together)
        with open(self.path("quit"), encoding="utf-8") as quit_lines:
            self.assertIn("quit", quit_lines.read())

    def test_binaries_that_were_built_elsewhere_are_run_as_they_are(self):
        os.rename(self.path("build"), self.path("built"))
        self.write("built/built.json",
                   json.dumps({"cuda_major": 13, "g++": "12.2", "nvcc": "13.0"}))
        os.remove(self.path("built/tests/bench/gpu_bench"))
        status, results, rows = self.verify()
        self.assertEqual((status, results["built"]), (1, "elsewhere"))
        self.assertEqual(self.compiled(), "")
        self.assertEqual(results["versions"]["g++"], "12.2")
        self.assertEqual(rows["speed"]["status"], "not built")
        self.assertEqual((rows["the suite"]["status"], rows["the suite"]["need"]),
                         ("skipped", "may"))
        self.assertEqual(rows["ring on 1 rank, nccl"]["said"],
                         f"All 7 checks passed with {self.path('cuda/lib64')}")

    def interrupted(self, number):
        """Ends verify by a signal while the device's tests run, and returns the results."""
        self.script("build/tests/gpu/gpu_device_tests",
                    f"echo $$ >{self.path('pid')}; echo 'so far so good'; exec sleep 60")
        run = subprocess.Popen([self.path("gpu/verify.sh"), "--out", self.path("out"), "device",
                                "bench"], stdout=subprocess.PIPE, text=True,
                               env=self.environment())
        with run:
            for _ in range(500):
                if os.path.exists(self.path("pid")) and os.path.getsize(self.path("pid")):
                    break
                time.sleep(0.02)
            time.sleep(0.1)
            run.send_signal(number)
            output = run.stdout.read()
        with open(self.path("pid"), encoding="utf-8") as file:
            step = int(file.read())
        for _ in range(500):
            if not os.path.exists(f"/proc/{step}"):
                break
            time.sleep(0.02)
        else:
            self.fail("the step outlived the run")
        results = self.results()
        self.assertFalse(results["ended"])
        self.assertEqual([row["status"] for row in results["steps"]][:6],
                         ["passed"] * 4 + ["running", "not run"])
        self.assertIn("it was cut off" if number == signal.SIGKILL else "cut off by signal 15",
                      verified.table(results))
        return run.returncode, output

    def test_a_run_that_is_killed_leaves_what_it_has(self):
        status, _ = self.interrupted(signal.SIGKILL)
        self.assertEqual(status, -signal.SIGKILL)
        with open(self.path("out/running.log"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "so far so good\n")
        with tarfile.open(self.path("out/logs.tar.gz")) as archive:
            self.assertTrue(archive.getnames()[0].endswith("a-GPU.log"))

    def test_a_run_that_is_asked_to_end_packs_its_logs_and_prints_its_table(self):
        status, output = self.interrupted(signal.SIGTERM)
        self.assertEqual(status, 1)
        self.assertTrue(output.endswith("\n" + verified.table(self.results())))
        with tarfile.open(self.path("out/logs.tar.gz")) as archive:
            [name] = [name for name in archive.getnames() if "contract" in name]
            self.assertEqual(archive.extractfile(name).read(), b"so far so good\n")

    def test_what_is_no_part_is_refused_and_help_names_them(self):
        run = subprocess.run([self.path("gpu/verify.sh"), "speed"], capture_output=True, text=True,
                             check=False)
        self.assertEqual(run.returncode, 2)
        self.assertIn("the parts are device, bench, memcheck, nccl, lessons, suite", run.stderr)
        run = subprocess.run([self.path("gpu/verify.sh"), "--help"], capture_output=True, text=True,
                             check=True)
        for part in verify_plan.PARTS:
            self.assertRegex(run.stdout, rf"(?m)^  {part} .*about \d+ s$")

    def test_the_table_goes_between_the_markers(self):
        self.verify("bench")
        text = f"before\n{verified.BEGIN}\nold\n{verified.END}\nafter\n"
        self.write("VERIFIED.md", text, mode=0o644)
        command = [self.path("gpu/verified.py"), self.path("out/results.json"),
                   self.path("VERIFIED.md")]
        for _ in range(2):
            subprocess.run(command, check=True)
            with open(self.path("VERIFIED.md"), encoding="utf-8") as file:
                self.assertEqual(file.read(), text.replace(
                    "old", f"\n{verified.table(self.results())}"))
        self.assertIn("| speed | `build/tests/bench/gpu_bench --benchmark_format=json` | passed |",
                      verified.table(self.results()))

    def test_several_results_make_one_table_of_one_machine(self):
        self.verify("bench")
        bench = self.results()
        self.write("bench.json", json.dumps(bench), mode=0o644)
        self.verify("device")
        device = self.results()
        self.write("VERIFIED.md", f"{verified.BEGIN}\n{verified.END}\n", mode=0o644)

        def put(*names):
            return subprocess.run([self.path("gpu/verified.py"), *map(self.path, names)],
                                  capture_output=True, text=True, check=False)
        self.assertEqual(put("bench.json", "out/results.json", "VERIFIED.md").returncode, 0)
        with open(self.path("VERIFIED.md"), encoding="utf-8") as file:
            text = file.read()
        for step in bench["steps"] + device["steps"]:
            self.assertEqual(text.count(f"| {step['name']} |"), 1)
        self.write("other.json", json.dumps(device | {"gpu": "another"}), mode=0o644)
        refused = put("bench.json", "other.json", "VERIFIED.md")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("gpu is", refused.stderr)

    def test_a_machine_without_a_gpu_has_no_table(self):
        self.script("bin/nvidia-smi", "exit 6")
        self.verify()
        with open(os.path.join(ROOT, "gpu/VERIFIED.md"), encoding="utf-8") as file:
            self.write("VERIFIED.md", file.read(), mode=0o644)
        command = [self.path("gpu/verified.py"), self.path("out/results.json"),
                   self.path("VERIFIED.md")]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 1)
        self.assertIn("without a GPU", run.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
