#!/usr/bin/env python3
"""Lessons on GPUs, in one or many processes, have the results of the simulator.

Arguments: the program (with CUDA and NCCL emulated, or real), the number of GPUs to use.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = os.path.abspath(sys.argv[1])
GPUS = int(sys.argv[2])
LESSON = ["lesson", "gradient-accumulation", "--set", "epochs=10", "--set", "steps=4",
          "--set", "rows=16", "--set", "hidden=32"]
FORMS = ["lesson", "data-parallel", "--set", "steps=5", "--step", "4"]
STAGES = ["lesson", "zero", "--set", "steps=5", "--step", "7"]
EXPERTS = ["lesson", "experts", "--set", "layers=1", "--set", "hidden=16", "--set", "steps=2", "--step",
           "9"]
COLUMNS = ["lesson", "column-linear", "--set", "rows=16"]
BLOCK = ["lesson", "tensor-parallel-block", "--set", "layers=1", "--set", "hidden=16",
         "--set", "batch=2", "--set", "steps=3"]
PIPELINE = ["lesson", "pipeline-1f1b", "--set", "heads=2", "--set", "hidden=8", "--set",
            "context=4", "--set", "steps=2"]
ENDLESS = ["lesson", "pipedream", "--set", "hidden=8", "--set", "context=4",
           "--set", "steps=2"]
RINGS = ["lesson", "ring-self-attention", "--set", "hidden=16", "--set", "context=24", "--set",
         "batch=2", "--set", "steps=2"]


def run(arguments, environment=None, **options):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, env={**os.environ, **(environment or {})},
                          **options)


def without_values(runs):
    """Returns the figures of time, bytes and memory of all runs in metrics.json."""
    for entry in runs:
        for rank in entry["ranks"]:
            rank.pop("series", None)
    return runs


def outputs_of(folder):
    """Returns the names, types and shapes of a record's outputs."""
    with open(os.path.join(folder, "outputs.safetensors"), "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    return {name: (entry["dtype"], entry["shape"]) for name, entry in header.items()}


class Lessons(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def run_to(self, name, *options, lesson=None):
        done = run([*(lesson or LESSON), "--out", self.path(name), *options])
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr)
        return done

    def assert_equal_within_bound(self, a, b):
        done = run(["compare", self.path(a), self.path(b), "--json"])
        self.assertEqual(done.returncode, 0, done.stdout[-3000:] + done.stderr)
        self.assertTrue(json.loads(done.stdout)["passed"])

    def test_virtual_devices_with_numbers_from_cuda(self):
        for dtype in ("f32", "f64", "bf16"):
            with self.subTest(dtype=dtype):
                self.run_to("sim", "--dtype", dtype)
                done = self.run_to("cuda", "--backend", "cuda", "--dtype", dtype)
                self.assertIn("checks passed", done.stdout)
                self.assert_equal_within_bound("sim", "cuda")
                with open(self.path("cuda/run.json"), encoding="utf-8") as file:
                    record = json.load(file)
                self.assertEqual(record["backend"], "cuda")
                self.assertEqual(set(record["machine"]["gpu"]), {"name", "driver", "cuda", "nccl"})

    def test_the_clock_of_cuda_is_the_simulators(self):
        self.run_to("sim")
        self.run_to("cuda", "--backend", "cuda")
        for name in ("sim/trace.json", "sim/metrics.json"):
            with open(self.path(name), encoding="utf-8") as file:
                simulated = json.load(file)
            with open(self.path(name.replace("sim", "cuda")), encoding="utf-8") as file:
                real = json.load(file)
            if name.endswith("metrics.json"):
                simulated, real = (without_values(metrics["runs"])
                                   for metrics in (simulated, real))
            self.assertEqual(simulated, real)

    def test_processes_with_nccl_between_them(self):
        for ranks in (1, 2, 4):
            if ranks > GPUS:
                continue
            with self.subTest(ranks=ranks):
                self.run_to("sim", "--ranks", str(ranks))
                done = self.run_to("nccl", "--backend", "nccl", "--ranks", str(ranks))
                self.assertEqual(len(re.findall(r"All \d+ checks passed", done.stdout)), 1)
                self.assertEqual(done.stderr, "")
                self.assertEqual(outputs_of(self.path("sim")), outputs_of(self.path("nccl")))
                self.assert_equal_within_bound("sim", "nccl")
                with open(self.path("nccl/metrics.json"), encoding="utf-8") as file:
                    runs = json.load(file)["runs"]
                together = next(entry for entry in runs if entry["name"] == "data_parallel")
                self.assertEqual(len(together["ranks"]), ranks)

    def test_a_cluster_is_fitted_to_what_processes_measure(self):
        for ranks in (1, 2):
            if ranks > GPUS:
                continue
            with self.subTest(ranks=ranks):
                done = run(["calibrate", "--backend", "nccl", "--cluster", "classroom", "--ranks", str(ranks),
                            "--largest", "1024", "--to", self.path("mine.json"), "--csv",
                            self.path("own.csv"), "--json"])
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                measured = json.loads(done.stdout)
                self.assertEqual(len(measured["rows"]), 6 if ranks == 1 else 6 + 4 * 6)
                self.assertTrue(any(each["fitted"] != each["before"] for each in measured["constants"]))
                shown = json.loads(run(["cluster", self.path("mine.json"), "--json"]).stdout)
                self.assertEqual(shown["error"]["rows"], len(measured["rows"]))

    def check_forms(self, lesson):
        for dtype in ("f32", "f64", "bf16"):
            with self.subTest(dtype=dtype):
                self.run_to("sim", "--dtype", dtype, lesson=lesson)
                self.run_to("cuda", "--dtype", dtype, "--backend", "cuda", lesson=lesson)
                self.assert_equal_within_bound("sim", "cuda")
        for ranks in (2, 4):
            if ranks > GPUS:
                continue
            with self.subTest(ranks=ranks):
                self.run_to("sim", "--ranks", str(ranks), lesson=lesson)
                done = self.run_to("nccl", "--backend", "nccl", "--ranks", str(ranks),
                                   lesson=lesson)
                self.assertEqual(done.stderr, "")
                self.assertEqual(outputs_of(self.path("sim")), outputs_of(self.path("nccl")))
                self.assert_equal_within_bound("sim", "nccl")

    def test_forms_of_data_parallelism(self):
        self.check_forms(FORMS)

    def test_stages_of_zero(self):
        self.check_forms(STAGES)

    def test_experts_that_ranks_share(self):
        self.check_forms(EXPERTS)

    def test_a_layer_that_ranks_share(self):
        for dtype in ("f32", "f64", "bf16"):
            self.run_to("sim", "--dtype", dtype, lesson=COLUMNS)
            self.run_to("cuda", "--dtype", dtype, "--backend", "cuda", lesson=COLUMNS)
            self.assert_equal_within_bound("sim", "cuda")
        for ranks in (1, 2, 3, 4):
            if ranks > GPUS:
                continue
            with self.subTest(ranks=ranks):
                self.run_to("sim", "--ranks", str(ranks), lesson=COLUMNS)
                done = self.run_to("nccl", "--backend", "nccl", "--ranks", str(ranks),
                                   lesson=COLUMNS)
                self.assertEqual(len(re.findall(r"All \d+ checks passed", done.stdout)), 1)
                said = " ".join(done.stdout.split())
                self.assertEqual("the three of the example are virtual" in said, ranks < 3)
                self.assertEqual(outputs_of(self.path("sim")), outputs_of(self.path("nccl")))
                self.assert_equal_within_bound("sim", "nccl")

    def test_what_nccl_says_is_told_from_a_record(self):
        words = ["compare", COLUMNS[1], "--backends", "sim,nccl", "--ranks", "1", *COLUMNS[2:]]
        done = run(words, {"NCCL_DEBUG": "INFO"})
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("NCCL_DEBUG_FILE=nccl.%p.log", " ".join(done.stderr.split()))
        done = run(words, {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": self.path("nccl.%p.log")})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    @unittest.skipUnless("emulated" in PROGRAM, "a GPU may have no tensor cores")
    def test_tf32_reaches_the_products_of_both_backends(self):
        for backend in ("cuda", "nccl"):
            outputs = {}
            for setting in ("0", "1"):
                self.run_to("out", "--backend", backend, "--ranks", "2", "--set",
                            "tf32=" + setting, lesson=BLOCK)
                with open(self.path("out/outputs.safetensors"), "rb") as file:
                    outputs[setting] = file.read()
            self.assertNotEqual(outputs["0"], outputs["1"])

    def test_a_shared_transformer_as_in_the_simulator(self):
        self.run_to("sim", lesson=BLOCK)
        self.run_to("cuda", "--backend", "cuda", lesson=BLOCK)
        self.assert_equal_within_bound("sim", "cuda")
        for ranks in (1, 2, 4):
            if ranks > GPUS:
                continue
            with self.subTest(ranks=ranks):
                self.run_to("sim", "--ranks", str(ranks), lesson=BLOCK)
                self.run_to("nccl", "--backend", "nccl", "--ranks", str(ranks), lesson=BLOCK)
                self.assertEqual(outputs_of(self.path("sim")), outputs_of(self.path("nccl")))
                self.assert_equal_within_bound("sim", "nccl")

    def test_a_pipeline_by_every_schedule_as_in_the_simulator(self):
        for backend, ranks, options in (
                ("cuda", 2, []), ("cuda", 3, ["--dtype", "f64", "--set", "tied=1"]),
                ("nccl", 2, ["--dtype", "f64", "--set", "tied=1"]), ("nccl", 4, []),
                ("nccl", 2, ["--dtype", "bf16"])):
            if backend == "nccl" and ranks > GPUS:
                continue
            with self.subTest(backend=backend, ranks=ranks, options=options):
                chosen = ["--ranks", str(ranks), "--set", f"micro_batches={ranks}", *options]
                self.run_to("sim", *chosen, lesson=PIPELINE)
                done = self.run_to("gpu", "--backend", backend, *chosen, lesson=PIPELINE)
                self.assertEqual(len(re.findall(r"All \d+ checks passed", done.stdout)), 1)
                self.assertEqual(done.stderr, "")
                self.assertEqual(outputs_of(self.path("sim")), outputs_of(self.path("gpu")))
                self.assert_equal_within_bound("sim", "gpu")

    def test_pipelines_that_do_not_stop_as_in_the_simulator(self):
        for backend, ranks, dtype in (("cuda", 2, "f32"), ("cuda", 3, "f64"), ("nccl", 2, "f64"),
                                      ("nccl", 4, "f32")):
            if backend == "nccl" and ranks > GPUS:
                continue
            with self.subTest(backend=backend, ranks=ranks, dtype=dtype):
                chosen = ["--ranks", str(ranks), "--dtype", dtype]
                self.run_to("sim", *chosen, lesson=ENDLESS)
                done = self.run_to("gpu", "--backend", backend, *chosen, lesson=ENDLESS)
                self.assertEqual(len(re.findall(r"All \d+ checks passed", done.stdout)), 1)
                self.assertEqual(outputs_of(self.path("sim")), outputs_of(self.path("gpu")))
                self.assert_equal_within_bound("sim", "gpu")

    def test_a_shared_context_as_in_the_simulator(self):
        for backend, ranks, options in (
                ("cuda", 4, []), ("cuda", 4, ["--dtype", "f64", "--set", "kv_heads=2"]),
                ("nccl", 2, ["--set", "method=ulysses", "--set", "order=striped"]),
                ("nccl", 3, ["--dtype", "f64", "--set", "method=gather"]), ("nccl", 4, []),
                ("nccl", 2, ["--dtype", "bf16"])):
            if backend == "nccl" and ranks > GPUS:
                continue
            with self.subTest(backend=backend, ranks=ranks, options=options):
                chosen = ["--ranks", str(ranks), *options]
                self.run_to("sim", *chosen, lesson=RINGS)
                done = self.run_to("gpu", "--backend", backend, *chosen, lesson=RINGS)
                self.assertEqual(len(re.findall(r"All \d+ checks passed", done.stdout)), 1)
                self.assertEqual(done.stderr, "")
                self.assertEqual(outputs_of(self.path("sim")), outputs_of(self.path("gpu")))
                self.assert_equal_within_bound("sim", "gpu")

    def test_one_json_document_from_many_processes(self):
        ranks = min(2, GPUS)
        done = run([*LESSON, "--backend", "nccl", "--ranks", str(ranks), "--json"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(json.loads(done.stdout)["passed"])

    def test_a_step_alone(self):
        ranks = min(2, GPUS)
        done = run([*LESSON, "--backend", "nccl", "--ranks", str(ranks), "--step", "4"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("The ring by hand", done.stdout)

    def test_gpu_says_what_it_takes(self):
        done = run([*LESSON, "--backend", "gpu", "--ranks", "1", "--step", "1"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("--backend gpu is nccl here", done.stderr)
        done = run([*LESSON, "--backend", "gpu", "--ranks", str(GPUS + 1), "--step", "1"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("--backend gpu is cuda here", done.stderr)

    def test_more_ranks_than_gpus_are_refused(self):
        done = run([*LESSON, "--backend", "nccl", "--ranks", str(GPUS + 1)])
        self.assertEqual(done.returncode, 3)
        self.assertIn(f"need {GPUS + 1} GPUs, but this machine has {GPUS}", done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)

    def test_wrong_options_are_said_once(self):
        ranks = min(2, GPUS)
        for options, sentence in ((["--set", "rows=-1"], "--set rows=-1"),
                                  (["--step", "99"], "--step 99"),
                                  (["--cluster", "cray"], "--cluster")):
            done = run([*LESSON, "--backend", "nccl", "--ranks", str(ranks), *options])
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertEqual(done.stderr.count(sentence), 1, done.stderr)

    def test_a_full_record_folder_is_said_once(self):
        ranks = min(2, GPUS)
        os.makedirs(self.path("taken"))
        with open(self.path("taken/thesis.tex"), "w", encoding="utf-8") as file:
            file.write("years of work")
        done = run([*LESSON, "--backend", "nccl", "--ranks", str(ranks), "--out",
                    self.path("taken")])
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stderr.count("--out"), 1, done.stderr)

    def test_a_killed_rank_ends_all(self):
        if GPUS < 2:
            self.skipTest("needs two GPUs")
        program = subprocess.Popen(
            [PROGRAM, "lesson", "gradient-accumulation", "--backend", "nccl", "--ranks", "2",
             "--set", "epochs=1000000"],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            stdin=subprocess.DEVNULL)
        time.sleep(3)
        with open(f"/proc/{program.pid}/task/{program.pid}/children", encoding="utf-8") as file:
            children = file.read().split()
        self.assertEqual(len(children), 2)
        os.kill(int(children[1]), signal.SIGKILL)
        _, errors = program.communicate()
        self.assertEqual(program.returncode, 1, errors)
        self.assertIn("rank 1 was killed by signal 9", errors)
        for child in children:
            self.assertFalse(os.path.exists(f"/proc/{child}"))

    @unittest.skipUnless(shutil.which("mpirun"), "needs mpirun")
    def test_under_mpirun(self):
        ranks = min(2, GPUS)
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks), PROGRAM,
                   *LESSON, "--backend", "nccl", "--step", "2"]
        done = subprocess.run(command, capture_output=True, text=True, check=False,
                              stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("The same batches on as many devices"), 1)
        done = subprocess.run([*command, "--ranks", "3"], capture_output=True, text=True,
                              check=False, stdin=subprocess.DEVNULL)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(f"mpirun started {ranks} process", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
