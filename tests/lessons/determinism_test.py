#!/usr/bin/env python3
"""Workers, executor and scheduling seed must not change the bits of a lesson's record.

Arguments: the program.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.abspath(sys.argv[1])
FILES = ["inputs.safetensors", "outputs.safetensors", "metrics.json", "trace.json",
         "timeline.svg"]
WORLDS = [["workers=1"], ["workers=2"], ["workers=4"], ["executor=threads"],
          ["executor=threads", "workers=2", "schedule_seed=11"]]
WORLDS += [[f"schedule_seed={seed}", f"workers={1 + seed % 2}"] for seed in range(10)]


class Determinism(unittest.TestCase):
    lesson = "gradient-accumulation"

    def record(self, settings, *options):
        with tempfile.TemporaryDirectory() as folder:
            command = [PROGRAM, "lesson", self.lesson, "--out", folder + "/out", *options]
            for setting in settings:
                command += ["--set", setting]
            subprocess.run(command, check=True, capture_output=True)
            return {name: self.bytes_of(f"{folder}/out/{name}") for name in FILES}

    @staticmethod
    def bytes_of(path):
        with open(path, "rb") as file:
            return file.read()

    def check(self, *options):
        first = self.record(WORLDS[0], *options)
        for world in WORLDS[1:]:
            with self.subTest(world=world):
                self.assertEqual(self.record(world, *options), first)

    def test_in_f32(self):
        self.check()

    def test_in_f64_on_seven_devices_of_another_cluster(self):
        self.check("--dtype", "f64", "--ranks", "7", "--cluster", "v100", "--set", "steps=40")

    def test_a_layer_that_ranks_share(self):
        self.lesson = "column-linear"
        self.check("--ranks", "4", "--set", "rows=24", "--set", "hidden=48")

    def test_a_pipeline_by_every_schedule(self):
        self.lesson = "pipeline-1f1b"
        self.check("--ranks", "4", "--set", "heads=2", "--set", "hidden=16", "--set", "context=8",
                   "--set", "steps=2", "--set", "tied=1")

    def test_pipelines_that_do_not_stop(self):
        self.lesson = "pipedream"
        self.check("--ranks", "3", "--set", "hidden=16", "--set", "context=8", "--set", "steps=2",
                   "--step", "8")

    def test_rings_and_a_context_that_ranks_share(self):
        self.lesson = "ring-self-attention"
        short = ("--set", "hidden=16", "--set", "context=32", "--set", "steps=2")
        self.check("--ranks", "4", "--set", "kv_heads=2", *short)
        self.check("--ranks", "2", "--set", "method=ulysses", "--set", "order=striped", "--dtype",
                   "f64", *short)

    def test_experts_that_ranks_share(self):
        self.lesson = "experts"
        self.check("--ranks", "4", "--set", "layers=1", "--set", "hidden=16", "--set",
                   "steps=2")

    def test_a_mesh_of_every_axis(self):
        self.lesson = "mesh"
        self.check("--step", "4", "--set", "hidden=16", "--set", "steps=2")

    def test_answers_of_a_service(self):
        self.lesson = "inference"
        self.check("--ranks", "4", "--set", "steps=2", "--step", "6")

    def test_shapes_only_give_the_same_times_bytes_and_memory(self):
        for self.lesson in ("gradient-accumulation", "column-linear", "pipeline-1f1b",
                            "ring-self-attention"):
            with self.subTest(lesson=self.lesson):
                figures = []
                for numerics in ("on", "off"):
                    metrics = json.loads(self.record([f"numerics={numerics}"])["metrics.json"])
                    for run in metrics["runs"]:
                        for rank in run["ranks"]:
                            rank.pop("series", None)  # the losses, which depend on the numbers
                    figures.append(metrics["runs"])
                self.assertEqual(*figures)

    def test_another_seed_gives_other_bits(self):
        self.assertNotEqual(self.record([], "--set", "steps=5")["outputs.safetensors"],
                            self.record([], "--set", "steps=5", "--seed", "2")
                            ["outputs.safetensors"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
