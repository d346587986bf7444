#!/usr/bin/env python3
"""`lockstep compare SLUG --backends A,B` makes two runs and one comparison, and leaves no files.

Arguments: the program.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = os.path.abspath(sys.argv[1])
COMPARE = ("compare", "gradient-accumulation", "--backends")
SHORT = ("--step", "1")


class CompareBackends(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.temporary = os.path.join(self.folder, "tmp")
        os.mkdir(self.temporary)

    def start(self, *arguments, **environment):
        return subprocess.Popen([PROGRAM, *arguments], cwd=self.folder, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env=dict(os.environ, TMPDIR=self.temporary) | environment)

    def run_program(self, *arguments, **environment):
        process = self.start(*arguments, **environment)
        output, errors = process.communicate()
        self.assertEqual(os.listdir(self.temporary), [])
        return process.returncode, output, errors

    def test_the_same_backend_twice_is_equal(self):
        status, output, errors = self.run_program(*COMPARE, "sim,sim", *SHORT)
        self.assertEqual((status, errors), (0, ""))
        lines = output.splitlines()
        self.assertEqual(lines[0], "A is gradient-accumulation on sim: its check passed.")
        self.assertEqual(lines[1], "B is gradient-accumulation on sim: its check passed.")
        self.assertEqual(lines[2], "Both ran on 4 ranks.")
        self.assertRegex(lines[4], r"tensor +shape +absolute +relative +bound +at$")
        self.assertRegex(lines[-1], r"^\d+ tensors: all equal\.$")

    def test_it_says_what_compare_says_of_two_records(self):
        status, output, _ = self.run_program(*COMPARE, "sim,sim", *SHORT, "--out", "kept",
                                             "--ranks", "3")
        self.assertEqual(status, 0)
        self.assertEqual(sorted(os.listdir(os.path.join(self.folder, "kept"))),
                         ["sim-1", "sim-2"])
        with open(os.path.join(self.folder, "kept", "sim-1", "run.json"),
                  encoding="utf-8") as file:
            self.assertEqual(json.load(file)["ranks"], 3)
        status, table, _ = self.run_program("compare", "kept/sim-1", "kept/sim-2")
        self.assertEqual(status, 0)
        self.assertTrue(output.endswith("\n" + table))

    def test_records_of_unlike_runs_say_in_what_they_differ(self):
        for name, ranks, seed in (("a", "4", "1"), ("b", "2", "7")):
            subprocess.run([PROGRAM, "lesson", "gradient-accumulation", *SHORT, "--ranks", ranks,
                            "--seed", seed, "--out", name], cwd=self.folder, check=True,
                           capture_output=True)
        _, output, _ = self.run_program("compare", "a", "b")
        self.assertEqual(output.splitlines()[0],
                         "The runs differ in ranks (4 and 2) and seed (1 and 7).")
        _, output, _ = self.run_program("compare", "a", "b", "--json")
        self.assertEqual(json.loads(output)["differs"],
                         [{"option": "ranks", "a": "4", "b": "2"},
                          {"option": "seed", "a": "1", "b": "7"}])

    def test_json_is_one_document(self):
        status, output, errors = self.run_program(*COMPARE, "sim,sim", *SHORT, "--json")
        self.assertEqual((status, errors), (0, ""))
        document = json.loads(output)
        self.assertTrue(document["passed"])
        self.assertEqual([run["backend"] for run in document["runs"]], ["sim", "sim"])
        self.assertEqual([run["failed"] for run in document["runs"]], [[], []])
        self.assertEqual(document["ranks"], 4)
        self.assertEqual(document["comparison"]["differs"], [])
        self.assertTrue(document["comparison"]["tensors"])

    def test_where_there_is_a_gpu_it_agrees_with_the_simulator(self):
        doctor = subprocess.run([PROGRAM, "doctor", "--json"], capture_output=True, check=True)
        if "cuda" not in json.loads(doctor.stdout)["backends"]:
            self.skipTest("this machine has no GPU")
        for backend in ("cuda", "gpu"):
            status, output, _ = self.run_program(*COMPARE, f"sim,{backend}", *SHORT, "--ranks",
                                                 "2", "--json")
            document = json.loads(output)
            self.assertEqual((status, document["passed"]), (0, True))
            self.assertEqual(document["runs"][0]["backend"], "sim")
            # The document has the backend that was chosen for `gpu`.
            self.assertIn(document["runs"][1]["backend"], ("cuda", "nccl"))
            status, output, _ = self.run_program(*COMPARE, f"sim,{backend}", *SHORT, "--ranks",
                                                 "2", "--bound", "0")
            self.assertEqual(status, 1)
            self.assertRegex(output, r"\d+ FAILED\.\n$")

    @unittest.skipUnless("EMULATED_GPUS" in os.environ, "needs GPUs that are emulated")
    def test_both_runs_take_the_same_number_of_ranks(self):
        for gpus, backend, takes, ranks in ((1, "gpu", "cuda", 4), (3, "gpu", "cuda", 4),
                                            (4, "gpu", "nccl", 4), (2, "nccl", "nccl", 2)):
            status, output, _ = self.run_program(*COMPARE, f"sim,{backend}", *SHORT, "--json",
                                                 EMULATED_GPUS=str(gpus))
            document = json.loads(output)
            self.assertEqual((status, document["ranks"]), (0, ranks))
            self.assertEqual(document["runs"][1]["backend"], takes)

    @unittest.skipUnless("EMULATED_GPUS" in os.environ, "needs GPUs that are emulated")
    def test_a_ring_has_as_many_ranks_as_there_are_gpus(self):
        for gpus in (2, 3):
            status, output, _ = self.run_program(
                "compare", "ring-self-attention", "--backends", "sim,nccl", "--step", "5", "--json",
                EMULATED_GPUS=str(gpus))
            document = json.loads(output)
            self.assertEqual((status, document["ranks"]), (0, gpus))
            shapes = {tensor["name"]: tensor["shape"]
                      for tensor in document["comparison"]["tensors"]}
            self.assertEqual(shapes["scores"][2:], [4 * gpus, 4 * gpus])
            self.assertIn("ring-attention_causal/dx", shapes)

    @unittest.skipUnless("EMULATED_GPUS" in os.environ, "needs GPUs that are emulated")
    def test_a_mesh_of_processes_is_the_simulators(self):
        for gpus, backend, axes in ((1, "cuda", "dp=2 pp=2 cp=2 tp=2"),
                                    (4, "nccl", "dp=1 pp=1 cp=2 tp=2"),
                                    (4, "nccl", "dp=2 pp=2 cp=1 tp=1"),
                                    (8, "nccl", "dp=2 pp=2 cp=1 tp=2")):
            settings = [word for axis in axes.split() for word in ("--set", axis)]
            ranks = 16 if backend == "cuda" else gpus
            with self.subTest(backend=backend, axes=axes):
                status, output, _ = self.run_program(
                    "compare", "mesh", "--backends", f"sim,{backend}", "--step", "2", "--json",
                    "--ranks", str(ranks), "--set", "steps=2", *settings,
                    EMULATED_GPUS=str(gpus))
                document = json.loads(output)
                self.assertEqual((status, document["ranks"]), (0, ranks))
                names = {tensor["name"] for tensor in document["comparison"]["tensors"]}
                self.assertLessEqual({"mesh/loss", "mesh/norm",
                                      "mesh/grad/transformer.wte.weight"}, names)

    @unittest.skipUnless("EMULATED_GPUS" in os.environ, "needs GPUs that are emulated")
    def test_a_model_writes_what_the_simulators_writes(self):
        for gpus, backend, kv_heads in ((1, "cuda", 4), (4, "nccl", 4), (4, "nccl", 2)):
            with self.subTest(backend=backend, kv_heads=kv_heads):
                status, output, _ = self.run_program(
                    "compare", "inference", "--backends", f"sim,{backend}", "--step", "1",
                    "--json", "--ranks", "4", "--dtype", "f64", "--set", "steps=2", "--set",
                    "heads=4", "--set", f"kv_heads={kv_heads}", EMULATED_GPUS=str(gpus))
                document = json.loads(output)
                self.assertEqual((status, document["ranks"]), (0, 4))
                difference = {tensor["name"]: tensor["largest_absolute"]
                              for tensor in document["comparison"]["tensors"]}
                self.assertEqual(difference["written/tokens"], 0)
                self.assertLess(difference["written/logits"], 1e-10)

    @unittest.skipUnless("EMULATED_GPUS" in os.environ, "needs GPUs that are emulated")
    def test_what_is_wrong_with_a_setting_is_said_once(self):
        for backend in ("sim", "cuda", "nccl", "gpu"):
            done = subprocess.run([PROGRAM, "lesson", "gradient-accumulation", "--backend",
                                   backend, "--set", "timeout=0"], capture_output=True,
                                  text=True, check=False)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertEqual(done.stderr, "lockstep: --set timeout=0: a number from 1 to 86400 "
                                          "is expected\n")

    def test_it_is_not_started_once_a_rank(self):
        place = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
                 "PMIX_NAMESPACE": "job"}
        for rank, ending in (("0", 2), ("1", 0)):
            status, output, errors = self.run_program(
                *COMPARE, "sim,sim", *SHORT, OMPI_COMM_WORLD_RANK=rank,
                OMPI_COMM_WORLD_LOCAL_RANK=rank, **place)
            self.assertEqual((status, output), (ending, ""))
            self.assertEqual("run it without mpirun" in errors, rank == "0")

    def test_a_pipe_is_refused(self):
        pipe = os.path.join(self.folder, "pipe")
        os.mkfifo(pipe)
        status, output, errors = self.run_program("compare", "gradient-accumulation",
                                                  "--backends", "sim,sim", "--text", pipe)
        self.assertEqual((status, output), (2, ""))
        self.assertEqual(len(errors.splitlines()), 1)

    def test_a_check_of_the_lesson_that_fails_is_named_and_is_no_success(self):
        arguments = (*COMPARE, "sim,sim", "--set", "learning_rate=1000", *SHORT)
        status, output, errors = self.run_program(*arguments)
        self.assertEqual((status, errors), (1, ""))
        self.assertRegex(output, r"^A is .* on sim: 1 of 1 checks FAILED: accumulation .*\.\n"
                                 r"B is .* on sim: 1 of 1 checks FAILED: ")
        # A NaN equals no number, not even itself.
        self.assertRegex(output, r"\d+ tensors: \d+ FAILED\.\n$")
        status, output, _ = self.run_program(*arguments, "--json")
        document = json.loads(output)
        self.assertEqual((status, document["passed"]), (1, False))
        self.assertEqual(len(document["runs"][0]["failed"]), 1)
        self.assertFalse(document["comparison"]["passed"])

    def test_a_backend_that_is_missing_says_so_itself(self):
        for backend in ("cuda", "nccl", "gpu"):
            alone = subprocess.run([PROGRAM, "lesson", "gradient-accumulation", "--backend",
                                    backend, *SHORT], capture_output=True, text=True, check=False)
            if alone.returncode == 0:
                self.skipTest("this machine has a GPU")
            status, output, errors = self.run_program(*COMPARE, f"sim,{backend}", *SHORT)
            self.assertEqual((status, output, errors), (3, "", alone.stderr))

    def test_what_the_lesson_refuses_is_refused_in_its_words(self):
        for arguments, part in ((("--set", "nonsense=1"), "--set nonsense=1"),
                                (("--text", "no-such-file"), "no-such-file"),
                                (("--cluster", "cray"), "--cluster")):
            status, output, errors = self.run_program(*COMPARE, "sim,sim", *arguments)
            self.assertEqual((status, output), (2, ""))
            self.assertIn(part, errors)
            self.assertEqual(len(errors.splitlines()), 1)

    def test_an_unknown_lesson_is_refused(self):
        status, _, errors = self.run_program("compare", "gradient-acumulation", "--backends",
                                             "sim,sim")
        self.assertEqual(status, 2)
        self.assertIn("did you mean gradient-accumulation?", errors)

    def test_an_interruption_ends_both_and_leaves_nothing(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            process = self.start(*COMPARE, "sim,sim")
            deadline = time.monotonic() + 300
            while not os.listdir(self.temporary) and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(0.2)
            process.send_signal(number)
            process.communicate()
            self.assertEqual(process.returncode, -number)
            self.assertEqual(os.listdir(self.temporary), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
