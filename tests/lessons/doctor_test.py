#!/usr/bin/env python3
"""Tests `lockstep doctor` on a machine with and without MPI, Slurm and torchrun.

Arguments: the program.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.abspath(sys.argv[1])


class Doctor(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def stub(self, name, body):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\n{body}\n")
        os.chmod(path, 0o755)

    def run_doctor(self, *arguments, **environment):
        done = subprocess.run([PROGRAM, "doctor", *arguments], capture_output=True, text=True,
                              env=dict(os.environ, PATH=self.folder) | environment,
                              check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def findings(self, **environment):
        document = json.loads(self.run_doctor("--json", **environment))
        return document, {finding["part"]: finding for finding in document["findings"]}

    def test_what_is_missing_comes_with_what_it_gives_and_how_to_install_it(self):
        _, findings = self.findings()
        for name in ("mpirun", "srun", "torchrun"):
            self.assertFalse(findings[name]["there"])
            self.assertEqual(findings[name]["found"], f"{name} is not on the PATH")
            self.assertIn("--backend nccl", findings[name]["gives"])
            self.assertIn("install", findings[name]["install"])
        text = self.run_doctor()
        self.assertIn("MISSING: mpirun is not on the PATH\n", text)
        self.assertIn("                  sudo apt-get install openmpi-bin\n", text)

    def test_names_and_what_is_found_stay_apart(self):
        self.assertNotRegex(self.run_doctor(), r"[^ ]MISSING")

    def test_launchers_are_named_with_their_versions(self):
        self.stub("mpirun", "echo 'mpirun (Open MPI) 9.9.9'; echo more")
        self.stub("srun", "echo broken; exit 1")
        self.stub("torchrun", "touch was-run")
        _, findings = self.findings()
        self.assertEqual(findings["mpirun"],
                         {"part": "mpirun", "there": True, "found": "mpirun (Open MPI) 9.9.9"})
        self.assertEqual(findings["srun"]["found"], os.path.join(self.folder, "srun"))
        self.assertTrue(findings["torchrun"]["there"])
        self.assertFalse(os.path.exists("was-run"))

    def test_a_launcher_that_never_answers_is_given_up(self):
        self.stub("mpirun", "exec /bin/sleep 60")
        _, findings = self.findings()
        self.assertTrue(findings["mpirun"]["there"])

    def test_the_build_the_machine_and_the_backends_are_told(self):
        document, findings = self.findings()
        self.assertEqual(document["backends"][0], "sim")
        self.assertGreater(document["machine"]["memory_bytes"], 1 << 20)
        for part in ("compiler", "Eigen", "Boost", "fmt"):
            self.assertRegex(findings[part]["found"], r"\d+\.\d+")
        for finding in document["findings"]:
            if not finding["there"]:
                self.assertTrue(finding["gives"], finding)
        text = self.run_doctor()
        self.assertIn(f"Backends that work here: {', '.join(document['backends'])}.\n", text)
        self.assertTrue(all(len(line) <= 80 for line in text.splitlines()), text)

    def test_what_keeps_a_gpu_from_being_used_is_what_the_backend_says(self):
        document, findings = self.findings()
        missing = [finding for name, finding in findings.items()
                   if name in ("GPU twin", "driver", "driver and GPU", "GPU 0")
                   and not finding["there"]]
        if not missing:
            self.assertIn("cuda", document["backends"])
            return
        for backend in ("cuda", "nccl", "gpu"):
            done = subprocess.run([PROGRAM, "lesson", "gradient-accumulation", "--backend",
                                   backend], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stdout), (3, ""))
            self.assertTrue(done.stderr.startswith(f"lockstep: --backend {backend}: "), done)
            self.assertIn(missing[0]["found"], done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1)

    @unittest.skipUnless("EMULATED_GPUS" in os.environ, "needs GPUs that are emulated")
    def test_a_gpu_or_nccl_that_does_not_fit_the_build_is_named(self):
        for environment, part, sentence, backends in (
                ({"EMULATED_CAPABILITY": "75"}, "GPU 0",
                 "compute capability 8.0 and later, but GPU 0 (Emulated GPU) has 7.5;", ["sim"]),
                ({"EMULATED_MEMORY_POOLS": "0"}, "GPU 0", "in stream order", ["sim"]),
                ({"EMULATED_NCCL_VERSION": "22707"}, "NCCL",
                 "NCCL 2.27 was loaded, but this was built against 2.28:", ["sim", "cuda"])):
            document, findings = self.findings(**environment)
            self.assertFalse(findings[part]["there"])
            self.assertIn(sentence, findings[part]["found"])
            self.assertEqual(document["backends"], backends)
            done = subprocess.run([PROGRAM, "lesson", "gradient-accumulation", "--backend", "nccl"],
                                  capture_output=True, text=True, check=False,
                                  env=os.environ | environment)
            self.assertEqual((done.returncode, done.stdout), (3, ""))
            self.assertEqual(done.stderr,
                             f"lockstep: --backend nccl: {findings[part]['found']}\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
