#!/usr/bin/env python3
"""Another program, with only the standard library, recomputes the record of the lesson on
inference.

This test reads the trained weights and the text from the record and computes all characters at
once without a cache. It compares the logits with those from which the devices chose each character.
With its own formulas, it also counts the bytes that the devices sent. Arguments: the program.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

from gpt import Gpt, TABLE, plus
from records import BOUND, flat, read_tensors, rows_of

PROGRAM = os.path.abspath(sys.argv[1])
TEXT = "To be, or not to be, that is the question:\nWhether ’tis nobler in the mind\n" * 2
LAYERS, PROMPT, WRITTEN, TOP = 2, 16, 40, 3


def record(ranks, heads, kv_heads):
    """Returns run.json, metrics.json, the inputs and the outputs of the lesson's first step."""
    small = [f"--set=layers={LAYERS}", "--set=steps=2", "--set=batch=2", f"--set=heads={heads}",
             f"--set=kv_heads={kv_heads}", f"--set=hidden={4 * heads}"]
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/text", "w", encoding="utf-8") as file:
            file.write(TEXT)
        subprocess.run([PROGRAM, "lesson", "inference", "--step", "1", "--ranks", str(ranks),
                        "--dtype", "f64", "--text", "text", "--out", "out", *small],
                       check=True, capture_output=True, cwd=folder)
        with open(f"{folder}/out/metrics.json", encoding="utf-8") as file:
            metrics = json.load(file)
        return [metrics, *(read_tensors(f"{folder}/out/{name}.safetensors")
                           for name in ("inputs", "outputs"))]


def logits_of(weights, heads, kv_heads, ids):
    """Returns the logits of all tokens, which are computed without a cache."""
    gpt = Gpt(weights, heads, kv_heads)
    wte, wpe = (gpt.values[f"{name}.weight"] for name in (TABLE, "transformer.wpe"))
    x = plus([wte[i] for i in ids], wpe[:len(ids)])
    for block in (f"transformer.h.{i}" for i in range(gpt.layers)):
        for layer, name, norm in ((gpt.attention, "attn", "ln_1"), (gpt.mlp, "mlp", "ln_2")):
            x, _ = gpt.residual(layer, f"{block}.{name}", f"{block}.{norm}", x)
    x, _ = gpt.norm("transformer.ln_f", x)
    return gpt.linear(TABLE, x)[0]


class RecomputeInference(unittest.TestCase):
    def check(self, ranks, heads, kv_heads):
        metrics, inputs, outputs = record(ranks, heads, kv_heads)
        weights = {name.removeprefix("alone/"): rows_of(tensor)
                   for name, tensor in outputs.items()
                   if name.startswith("alone/transformer")}
        tokens = [int(token) for token in outputs["written/tokens"][1]]
        text = [int(character) for character in inputs["gpt/ids"][1]]
        self.assertEqual(len(tokens), WRITTEN)
        ids = text[:PROMPT] + tokens
        expected = logits_of(weights, heads, kv_heads, ids[:-1])[PROMPT - 1:]
        given = rows_of(outputs["written/logits"])
        self.assertEqual(len(given), WRITTEN)
        largest = max(abs(logit) for logit in flat(expected))
        for row, own, token in zip(given, expected, tokens):
            for a, b in zip(row, own):
                self.assertLessEqual(abs(a - b), BOUND * largest)
            self.assertIn(token, sorted(range(len(own)), key=lambda i: -own[i])[:TOP])
        # Each computed token needs two all-reduces in each block, and one at the table.
        numbers = (2 * LAYERS + 1) * (PROMPT + WRITTEN - 1) * 4 * heads
        (run,) = [run for run in metrics["runs"] if run["name"] == "written"]
        sent = sum(traffic["bytes_sent"] for rank in run["ranks"] for traffic in rank["traffic"]
                   if traffic["verb"] == "all_reduce")
        self.assertEqual(sent, 8 * 2 * (ranks - 1) * numbers)
        # The bytes of all devices' caches. Devices that share a head of keys have a copy each.
        pages = -(-64 // 16) * 16
        held = sum(rank["memory_bytes"]["category_peak"]["cache"] for rank in run["ranks"])
        self.assertEqual(held, pages * LAYERS * 2 * max(ranks, kv_heads) * 4 * 8)

    def test_one_device(self):
        self.check(1, 4, 2)

    def test_ranks_share_out_heads(self):
        for ranks in (2, 4):
            with self.subTest(ranks=ranks):
                self.check(ranks, 4, 4)

    def test_more_ranks_than_heads_of_keys(self):
        self.check(4, 4, 1)
        self.check(8, 8, 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
