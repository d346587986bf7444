#!/usr/bin/env python3
"""Another program, with only the standard library, recomputes the record of the lesson on meshes.

This test reads inputs.safetensors and trains the GPT on each step's whole batch, without a mesh.
It compares the results with those of one device and of the mesh in outputs.safetensors. With its
own formulas, it also counts the bytes that the devices sent along each axis. Arguments: the
program.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import unittest

from gpt import Sgd, recompute
from records import BOUND, differing, flat, read_tensors, rows_of

PROGRAM = os.path.abspath(sys.argv[1])
TEXT = "To be, or not to be, that is the question:\nWhether ’tis nobler in the mind\n"
VARIANTS = ["alone", "mesh"]
LAYERS, STEPS = 2, 2


class WithNorms(Sgd):
    """Keeps the norm of each step's gradients."""

    def __init__(self, gpt, rate):
        super().__init__(gpt, rate)
        self.norms = []
        WithNorms.last = self

    def step(self):
        self.norms.append(math.sqrt(sum(g * g for gradient in self.gpt.gradients.values()
                                        for g in flat(gradient))))
        super().step()


def record(*axes):
    """Returns run.json, metrics.json, inputs and outputs of the lesson's first four steps."""
    sizes = [f"--set={name}={size}" for name, size in zip(("dp", "pp", "cp", "tp"), axes)]
    small = [f"--set=layers={max(LAYERS, axes[1])}", f"--set=steps={STEPS}",
             f"--set=context={4 * axes[2] * axes[3]}", f"--set=hidden={8 * max(2, axes[3])}"]
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/text", "w", encoding="utf-8") as file:
            file.write(TEXT)
        subprocess.run([PROGRAM, "lesson", "mesh", "--step", "4", "--ranks", str(math.prod(axes)),
                        "--dtype", "f64", "--text", "text", "--out", "out", *sizes, *small],
                       check=True, capture_output=True, cwd=folder)
        described = []
        for name in ("run", "metrics"):
            with open(f"{folder}/out/{name}.json", encoding="utf-8") as file:
                described.append(json.load(file))
        return [*described, *(read_tensors(f"{folder}/out/{name}.safetensors")
                              for name in ("inputs", "outputs"))]


def sent_by_group(metrics):
    """Returns, by group, the bytes that all devices sent in the run that computes only shapes."""
    sent = {}
    for run in metrics["runs"]:
        if run["name"] == "step":
            for rank in run["ranks"]:
                for traffic in rank["traffic"]:
                    sent[traffic["group"]] = (sent.get(traffic["group"], 0)
                                              + traffic["bytes_sent"])
    sent.pop("world", None)
    return {group: count for group, count in sent.items() if count}


def formulas(run, inputs):
    """Computes sent_by_group by formulas. The GPT is tied, in f64, with sequence parallelism."""
    settings = {name: int(value) for name, value in run["settings"].items() if value.isdigit()}
    dp, pp, cp, tp = (settings[name] for name in ("dp", "pp", "cp", "tp"))
    h, s, layers = settings["hidden"], settings["context"], settings["layers"]
    heads, kv_heads = settings["heads"], settings["kv_heads"]
    micro_batches = settings["micro_batches"]
    own = s // cp * settings["batch"] // micro_batches  # a rank's tokens in a micro-batch
    vocabulary = len(inputs["gpt/vocabulary"][1])
    rows = -(-vocabulary // tp) * tp

    # Per tensor group and micro-batch: gathers and scatters of tokens, all-reduces of the loss.
    passes = 10 * layers + 2 + 3
    at_tokens = (tp - 1) * (passes * own * h + 6 * own)
    alike = layers * (2 * 2 * h + 2 * h) + 2 * h + s * h  # norms, biases after sums, positions
    tensor = micro_batches * cp * at_tokens + dp * cp * 2 * (tp - 1) * alike
    # Keys and values go around the ring in forward and in backward, gradients in backward.
    block = own * 2 * h * kv_heads // heads // tp
    context = micro_batches * cp * tp * layers * block * ((cp - 1) * 2 + cp) if cp > 1 else 0
    pipeline = micro_batches * cp * 2 * (pp - 1) * own * h
    inside = (12 * h * h - 2 * h * (h - h * kv_heads // heads)  # matrices of a block
              + 13 * h - 2 * (h - h * kv_heads // heads))  # biases and norms of a block
    whole = layers * inside + s * h + 2 * h
    held = whole + (tp - 1) * alike + (2 if pp > 1 else 1) * rows * h
    replicas = 2 * (dp * cp - 1) * held
    tied = 2 * rows * h * dp * cp if pp > 1 else 0
    name = " x ".join(["dp"] + (["cp"] if cp > 1 else []))
    sent = {"tp": tensor, "cp": context, "pp": pipeline, name: replicas, "tied": tied}
    return {group: 8 * count for group, count in sent.items() if count}


class RecomputeMesh(unittest.TestCase):
    def check(self, *axes):
        run, metrics, inputs, outputs = record(*axes)
        recomputed = recompute(run, inputs, optimizer=WithNorms)
        recomputed["norm"] = WithNorms.last.norms
        self.assertEqual(len(recomputed["loss"]), STEPS)
        self.assertEqual(set(outputs), {f"{variant}/{name}" for variant in VARIANTS
                                        for name in recomputed})
        for variant in VARIANTS:
            with self.subTest(variant=variant, axes=axes):
                self.assertEqual(differing(recomputed, outputs, variant, BOUND), set())
        self.assertEqual(sent_by_group(metrics), formulas(run, inputs))

    def test_each_axis(self):
        for axes in ((2, 1, 1, 1), (1, 2, 1, 1), (1, 1, 2, 1), (1, 1, 1, 2)):
            self.check(*axes)

    def test_two_axes(self):
        for axes in ((2, 2, 1, 1), (1, 2, 1, 2), (1, 1, 2, 2), (3, 1, 2, 1)):
            self.check(*axes)

    def test_all_axes(self):
        self.check(2, 2, 2, 2)

    def test_a_wrong_norm_differs(self):
        run, _, inputs, outputs = record(1, 1, 1, 2)
        recomputed = recompute(run, inputs, optimizer=WithNorms)
        # As if parameters that the tensor group replicates counted twice in the norm.
        norms = WithNorms.last.norms
        recomputed["norm"] = [norm * 1.0001 for norm in norms]
        self.assertEqual(differing(recomputed, outputs, "mesh"), {"norm"})

    def test_a_wrong_batch_differs_in_the_first_loss(self):
        run, _, inputs, outputs = record(2, 1, 1, 1)
        starts = rows_of(inputs["gpt/starts"])
        # As if the second replica trained on the first replica's sequences.
        half = len(starts[0]) // 2
        doubled = [row[:half] * 2 for row in starts]
        inputs["gpt/starts"] = inputs["gpt/starts"][0], tuple(flat(doubled))
        self.assertIn("loss", differing(recompute(run, inputs), outputs, "mesh"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
