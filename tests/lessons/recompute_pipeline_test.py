#!/usr/bin/env python3
"""Another program, with only the standard library, recomputes the fourth lesson's record.

This test reads inputs.safetensors and trains the GPT on each step's whole batch, without a
pipeline. It compares the results with those of every schedule in outputs.safetensors. Arguments:
the program.
"""

import math
import os
import sys
import unittest

from gpt import TABLE, Gpt, Sgd, recompute
from records import BOUND, add_scaled, assert_close, differing, run_lesson, zeros

PROGRAM = os.path.abspath(sys.argv[1])
TEXT = "To be, or not to be, that is the question:\nWhether ’tis nobler in the mind\n"
SMALL = {"heads": 2, "hidden": 8, "context": 6, "steps": 3}
PIPELINES = ["naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2"]
REPLICAS = "1f1b_replicas"
# The largest measured difference is 5e-7, about eight roundings of f32.
BOUND_F32 = 5e-6


def record(ranks, dtype="f64", seed=1, **settings):
    """Returns run.json, inputs and outputs of training. The default micro-batch has 2 sequences."""
    defaults = SMALL | {"layers": ranks, "micro_batches": ranks,
                        "batch": 2 * settings.get("micro_batches", ranks)}
    chosen = [f"--set={key}={value}" for key, value in (defaults | settings).items()]
    return run_lesson(PROGRAM, "pipeline-1f1b", "--step", "10", "--ranks", str(ranks), "--seed",
                      str(seed), "--text", "text", *chosen, files={"text": TEXT}, dtype=dtype)


def other_bits(outputs, variant, reference):
    """Returns the names of values that have different bits in the two variants."""
    names = [name.split("/", 1)[1] for name in outputs if name.startswith(f"{reference}/")]
    return {name for name in names
            if outputs[f"{variant}/{name}"] != outputs[f"{reference}/{name}"]}


class RecomputePipeline(unittest.TestCase):
    def check(self, variants, ranks, dtype="f64", **settings):
        """Checks that all variants recorded the recomputed values. Returns the record's outputs."""
        run, inputs, outputs = record(ranks, dtype, **settings)
        recomputed = recompute(run, inputs)
        self.assertEqual(len(recomputed["loss"]), SMALL["steps"])
        self.assertEqual(set(outputs), {f"{variant}/{name}" for variant in variants
                                        for name in recomputed})
        bound = BOUND if dtype == "f64" else BOUND_F32
        for variant in variants:
            with self.subTest(variant=variant, ranks=ranks, dtype=dtype, **settings):
                self.assertEqual(differing(recomputed, outputs, variant, bound), set())
        return outputs

    def check_untied(self, *about, replicas=(), **settings):
        outputs = self.check(["gpt_1", *PIPELINES, *replicas], *about, **settings)
        for variant in PIPELINES:
            self.assertEqual(other_bits(outputs, variant, "gpt_1"), set(), variant)

    def check_tied(self, *about, replicas=(), **settings):
        """A tied table's gradients are added in another order than on one device."""
        outputs = self.check(["gpt_1", *PIPELINES, *replicas], *about, tied=1, **settings)
        self.assertNotIn("gpt_1/lm_head.weight", outputs)
        for variant in PIPELINES:
            gradients = {name for name in other_bits(outputs, variant, "gpt_1")
                         if name.startswith("grad/")}
            self.assertLessEqual(gradients, {f"grad/{TABLE}.weight"}, variant)
            self.assertEqual(other_bits(outputs, variant, "naive"), set(), variant)

    def test_two_stages(self):
        self.check_untied(2)
        self.check_tied(2, seed=4)

    def test_three_stages_with_parts_that_are_not_even(self):
        self.check_untied(3, layers=2, micro_batches=6, batch=6)
        self.check_tied(3, layers=4, heads=1, context=7, learning_rate=0.05)

    def test_four_stages_and_two_replicas_of_two(self):
        self.check_untied(4, replicas=[REPLICAS])
        self.check_tied(4, replicas=[REPLICAS], micro_batches=8, batch=8)

    def test_in_f32(self):
        self.check_untied(3, "f32")
        self.check_tied(4, "f32", replicas=[REPLICAS])

    def test_too_few_layers_for_two_chunks_a_stage(self):
        variants = [name for name in PIPELINES if name != "interleaved"]
        self.check(["gpt_1", *variants, REPLICAS], 4, layers=3)

    def test_inputs_are_those_documented(self):
        for tied in (0, 1):
            run, inputs, _ = record(2, tied=tied)
            self.assertEqual(inputs["gpt/starts"][0], [SMALL["steps"], 4])
            self.assertEqual("gpt/initial/lm_head.weight" in inputs, not tied)
            vocabulary = inputs["gpt/vocabulary"][1]
            self.assertEqual("".join(chr(vocabulary[i]) for i in inputs["gpt/ids"][1]), TEXT)
            self.assertEqual({key: run["settings"][key] for key in SMALL},
                             {key: str(value) for key, value in SMALL.items()})


class LastMicroBatch(Gpt):
    """A mistake: the backward of each micro-batch overwrites the gradients of the previous one."""

    def batch(self, text, starts):
        whole = super().batch(text, starts)
        super().batch(text, starts[-2:])
        for gradient in self.gradients.values():
            add_scaled(gradient, gradient, 2 / len(starts) - 1)
        return whole


class SumOfMicroBatches(Gpt):
    """A mistake: the gradients of micro-batches' means are summed, but not averaged."""

    def batch(self, text, starts):
        loss = super().batch(text, starts)
        for gradient in self.gradients.values():
            add_scaled(gradient, gradient, len(starts) / 2 - 1)
        return loss


class HeadAlone(Gpt):
    """A mistake: a tied table gets only the last stage's gradient."""

    def look_up_backward(self, ids, dx):
        pass


class StaleByAStep(Sgd):
    """A mistake: gradients are used one step late, as in a pipeline that is never flushed."""

    def __init__(self, gpt, rate):
        super().__init__(gpt, rate)
        self.late = {name: zeros(value) for name, value in gpt.values.items()}

    def step(self):
        self.late, self.gpt.gradients = self.gpt.gradients, self.late
        super().step()


class WrongPipelines(unittest.TestCase):
    def test_micro_batches_that_are_lost_or_weighed_wrongly_differ_in_every_gradient(self):
        run, inputs, outputs = record(2, steps=1)
        gradients = {name.split("/", 1)[1] for name in outputs
                     if name.startswith("1f1b/grad/")}
        for model in (LastMicroBatch, SumOfMicroBatches):
            with self.subTest(model=model.__name__):
                names = differing(recompute(run, inputs, model), outputs, "1f1b")
                self.assertLessEqual(gradients, names)
                self.assertNotIn("loss", names)

    def test_a_tied_table_without_its_first_use_differs_in_that_gradient_alone(self):
        run, inputs, outputs = record(2, tied=1, steps=1)
        names = differing(recompute(run, inputs, HeadAlone), outputs, "1f1b")
        self.assertEqual(names, {f"grad/{TABLE}.weight", f"{TABLE}.weight"})

    def test_stale_weights_differ_in_later_losses(self):
        run, inputs, outputs = record(2)
        recomputed = recompute(run, inputs, optimizer=StaleByAStep)
        names = differing(recomputed, outputs, "1f1b", BOUND_F32)
        self.assertFalse([name for name in names if name.startswith("grad/")])
        self.assertIn("loss", names)
        assert_close("loss", recomputed["loss"][:1], outputs["1f1b/loss"][1][:1])

    def test_one_bit_of_one_value_is_seen(self):
        _, _, outputs = record(2, steps=1)
        name = "zb-h2/transformer.h.1.mlp.c_fc.weight"
        shape, (first, *others) = outputs[name]
        outputs[name] = shape, (math.nextafter(first, math.inf), *others)
        self.assertEqual(other_bits(outputs, "zb-h2", "gpt_1"), {name.split("/", 1)[1]})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
