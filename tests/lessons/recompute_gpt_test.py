#!/usr/bin/env python3
"""Another program, with only the standard library, recomputes the third lesson's record.

This test reads inputs.safetensors, trains the GPT of the lesson's README, and compares the
results with outputs.safetensors. Arguments: the program.
"""

import math
import os
import sys
import unittest

from gpt import INITIAL, Gpt, Sgd, initial, recompute
from records import add_scaled, assert_close, differing, run_lesson

PROGRAM = os.path.abspath(sys.argv[1])
TEXT = "To be, or not to be, that is the question:\nWhether ’tis nobler in the mind\n"
SMALL = {"layers": 2, "heads": 2, "hidden": 8, "context": 6, "batch": 2, "steps": 3}

BLOCK_NAMES = {f"{layer}.{part}" for part in ("weight", "bias") for layer in (
    "ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj")}
OTHER_NAMES = {"transformer.wte.weight", "transformer.wpe.weight", "transformer.ln_f.weight",
               "transformer.ln_f.bias", "lm_head.weight"}


def record(ranks, seed=1, **settings):
    """Returns run.json, the inputs and the outputs of training."""
    chosen = [f"--set={key}={value}" for key, value in (SMALL | settings).items()]
    return run_lesson(PROGRAM, "tensor-parallel-block", "--step", "6", "--ranks", str(ranks),
                      "--seed", str(seed), "--text", "text", *chosen, files={"text": TEXT})


class RecomputeGpt(unittest.TestCase):
    def check(self, variants, *about, **settings):
        run, inputs, outputs = record(*about, **settings)
        recomputed = recompute(run, inputs)
        self.assertEqual(len(recomputed["loss"]), (SMALL | settings)["steps"])
        self.assertEqual(set(outputs), {f"{variant}/{name}" for variant in variants
                                        for name in recomputed})
        for variant in variants:
            with self.subTest(variant=variant, settings=settings):
                self.assertEqual(differing(recomputed, outputs, variant), set())

    def test_one_device(self):
        self.check(["gpt_1"], 1, seed=3, heads=1, context=7)

    def test_two_devices(self):
        self.check(["gpt_1", "gpt_2", "gpt_2_sequence"], 2)

    def test_three_devices(self):
        self.check(["gpt_1", "gpt_3", "gpt_3_sequence"], 3, heads=3, hidden=9, layers=1,
                   learning_rate=0.05)

    def test_four_devices(self):
        self.check(["gpt_1", "gpt_2", "gpt_4", "gpt_4_sequence"], 4, heads=4, context=8)

    def test_inputs_are_those_documented(self):
        run, inputs, _ = record(2)
        names = OTHER_NAMES | {f"transformer.h.{layer}.{name}" for layer in range(2)
                               for name in BLOCK_NAMES}
        self.assertEqual(set(initial(inputs)), names)
        self.assertEqual(set(inputs), {INITIAL + name for name in names}
                         | {"gpt/ids", "gpt/vocabulary", "gpt/starts"})
        self.assertEqual({key: run["settings"][key] for key in SMALL},
                         {key: str(value) for key, value in SMALL.items()})
        self.assertEqual(inputs["gpt/starts"][0], [SMALL["steps"], SMALL["batch"]])
        vocabulary = inputs["gpt/vocabulary"][1]
        self.assertEqual("".join(chr(vocabulary[i]) for i in inputs["gpt/ids"][1]), TEXT)

    def test_sizes_that_were_not_set_are_recorded(self):
        run, *_ = run_lesson(PROGRAM, "tensor-parallel-block", "--step", "6", "--ranks", "5",
                             "--set", "steps=1", "--set", "batch=1")
        sizes = {"layers": "2", "heads": "5", "hidden": "80", "context": "35"}
        self.assertEqual({key: run["settings"][key] for key in sizes}, sizes)


class RoughGelu(Gpt):
    @staticmethod
    def gelu(x):
        return x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


class HeadByHead(Gpt):
    """Stores c_attn as Megatron does: the first head's queries, keys and values, then ..."""

    def places(self, hidden):
        width = hidden // self.heads
        return [[(3 * head + part) * width for part in range(3)] for head in range(self.heads)]


class OtherEpsilon(Gpt):
    EPSILON = 1e-6


class OneHead(Gpt):
    def __init__(self, initial, heads, kv_heads):
        super().__init__(initial, heads // 2, kv_heads // 2)


class MomentumForgotten(Sgd):
    MOMENTUM = 0


class Decayed(Sgd):
    def step(self):
        for name, value in self.gpt.values.items():
            add_scaled(self.gpt.gradients[name], value, 1e-6)
        super().step()


class WrongFormulas(unittest.TestCase):
    def test_a_wrong_model_differs_in_the_first_loss(self):
        run, inputs, outputs = record(2, steps=1)
        for model in (RoughGelu, HeadByHead, OtherEpsilon, OneHead):
            with self.subTest(model=model.__name__):
                names = differing(recompute(run, inputs, model), outputs, "gpt_1")
                self.assertIn("loss", names)
                self.assertIn("grad/transformer.h.0.attn.c_attn.weight", names)

    def test_a_wrong_optimizer_differs_in_later_losses(self):
        run, inputs, outputs = record(2)
        for optimizer in (MomentumForgotten, Decayed):
            with self.subTest(optimizer=optimizer.__name__):
                recomputed = recompute(run, inputs, optimizer=optimizer)
                names = differing(recomputed, outputs, "gpt_1")
                self.assertFalse([name for name in names if name.startswith("grad/")])
                self.assertIn("loss", names)
                assert_close("loss", recomputed["loss"][:1], outputs["gpt_1/loss"][1][:1])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
