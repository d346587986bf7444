#!/usr/bin/env python3
"""Another program, with only the standard library, recomputes the record of the lesson on
pipelines that do not stop.

This test reads inputs.safetensors and trains the GPT, micro-batch by micro-batch and without a
pipeline, with the versions of weights that each rule's paper demands. It compares the results with
outputs.safetensors. Arguments: the program.
"""

import os
import sys
import unittest

from gpt import Gpt, initial
from records import BOUND, add_scaled, differing, flat, run_lesson, zeros

PROGRAM = os.path.abspath(sys.argv[1])
TEXT = "To be, or not to be, that is the question:\nWhether ’tis nobler in the mind\n"
SMALL = {"heads": 2, "hidden": 8, "context": 6, "steps": 4, "learning_rate": 0.3}
BOUND_F32 = 5e-6
KEPT = 0.1  # factor by which the average step decays during a stage's delay


class Rule:
    """Which weights micro-batch i uses on stage s of p: the number of updates that they contain,
    and the number of average steps that are added to them."""

    per_update = 1

    def __init__(self, stages):
        self.stages = stages

    def newest(self, i):
        return i // self.per_update

    def late(self, s):
        return self.stages - 1 - s

    def forward(self, s, i):
        return max(0, i - self.late(s)), 0

    def backward(self, s, i):
        return self.forward(s, i)


class Flush(Rule):
    def forward(self, s, i):
        return self.newest(i), 0


class Vertical(Rule):
    def late(self, s):
        return self.stages - 1


class Unstashed(Rule):
    def backward(self, s, i):
        return self.newest(i), 0


class Predicted(Unstashed):
    def forward(self, s, i):
        there, _ = super().forward(s, i)
        return there, self.newest(i) - there


class Corrected(Rule):
    def backward(self, s, i):
        there, _ = self.forward(s, i)
        return self.newest(i), there - self.newest(i)


class TwoBuffers(Rule):
    def forward(self, s, i):
        return max(0, self.newest(i) - 1), 0


RULES = {"flush_each": Flush, "stashed": Rule, "vertical": Vertical, "unstashed": Unstashed,
         "predicted": Predicted, "corrected": Corrected, "flush": Flush, "two_buffers": TwoBuffers}
BY_STEP = {"flush", "two_buffers"}


def stage_of(name, stages):
    """Each stage has a block. The first also has embeddings, the last norm and head."""
    words = name.split(".")
    if words[1] == "h":
        return int(words[2])
    return stages - 1 if words[0] == "lm_head" or words[1] == "ln_f" else 0


def copied(values):
    return {name: [list(row) for row in value] for name, value in values.items()}


class Versions:
    """All versions of a model's weights, and for each version the average of the steps so far."""

    def __init__(self, values, stages):
        self.stages = stages
        self.weights = [copied(values)]
        self.averages = [{name: zeros(value) for name, value in values.items()}]

    def read(self, reads):
        """Returns each parameter in the version that reads(stage) returns for its stage."""
        made = {}
        for name in self.weights[0]:
            version, ahead = reads(stage_of(name, self.stages))
            made[name] = [list(row) for row in self.weights[version][name]]
            add_scaled(made[name], self.averages[version][name], ahead)
        return made

    def update(self, gradients, rate):
        now, average = copied(self.weights[-1]), copied(self.averages[-1])
        for name, gradient in gradients.items():
            add_scaled(now[name], gradient, -rate)
            late = self.stages - 1 - stage_of(name, self.stages)
            kept = KEPT ** (1 / late) if late else 0
            add_scaled(average[name], average[name], kept - 1)
            for version, factor in ((now, 1 - kept), (self.weights[-1], kept - 1)):
                add_scaled(average[name], version[name], factor)
        self.weights.append(now)
        self.averages.append(average)


def recompute(run, inputs, rule):
    """Returns everything that a variant records: each micro-batch's loss, and the last weights."""
    rate = float(run["settings"]["learning_rate"])
    values = initial(inputs)
    versions = Versions(values, rule.stages)
    text, losses = inputs["gpt/ids"][1], []
    gpt = Gpt(values, int(run["settings"]["heads"]), int(run["settings"]["heads"]))
    length = len(values["transformer.wpe.weight"])
    for i, start in enumerate(inputs["gpt/starts"][1]):
        gpt.values = versions.read(lambda s: rule.forward(s, i))
        if i % rule.per_update == 0:
            gpt.zero_gradients()
        loss, backward = gpt.begin(text[start:start + length], text[start + 1:start + length + 1],
                                   1 / (length * rule.per_update))
        losses.append(loss * rule.per_update)
        # Backward uses the same row objects as forward, so the new values are put into these rows.
        for name, value in versions.read(lambda s: rule.backward(s, i)).items():
            for row, other in zip(gpt.values[name], value):
                row[:] = other
        backward()
        if (i + 1) % rule.per_update == 0:
            versions.update(gpt.gradients, rate)
    return {"loss": losses} | {name: flat(value) for name, value in versions.weights[-1].items()}


def record(ranks, dtype="f64", seed=1, **settings):
    chosen = [f"--set={key}={value}"
              for key, value in (SMALL | {"micro_batches": ranks} | settings).items()]
    return run_lesson(PROGRAM, "pipedream", "--step", "8", "--ranks", str(ranks), "--seed",
                      str(seed), "--text", "text", *chosen, files={"text": TEXT}, dtype=dtype)


def rule_of(variant, ranks, micro_batches):
    rule = RULES[variant](ranks)
    if variant in BY_STEP:
        rule.per_update = micro_batches
    return rule


class RecomputePipedream(unittest.TestCase):
    def check(self, ranks, dtype="f64", **settings):
        run, inputs, outputs = record(ranks, dtype, **settings)
        names = set()
        for variant in RULES:
            with self.subTest(variant=variant, ranks=ranks, dtype=dtype, **settings):
                rule = rule_of(variant, ranks, settings.get("micro_batches", ranks))
                recomputed = recompute(run, inputs, rule)
                names |= {f"{variant}/{name}" for name in recomputed}
                bound = BOUND if dtype == "f64" else BOUND_F32
                self.assertEqual(differing(recomputed, outputs, variant, bound), set())
        self.assertEqual(set(outputs), names)

    def test_two_stages(self):
        self.check(2, micro_batches=3)

    def test_three_stages(self):
        self.check(3, seed=2)
        self.check(3, "f32")

    def test_four_stages_and_more_micro_batches_an_update(self):
        self.check(4, micro_batches=5, steps=2)


class Earlier(Rule):
    """A wrong rule: all stages use weights with one update fewer than in Rule."""

    def forward(self, s, i):
        return max(0, i - self.late(s) - 1), 0


class WrongRules(unittest.TestCase):
    def test_another_version_on_any_stage_is_seen(self):
        run, inputs, outputs = record(3)
        for right in RULES:
            for wrong in {*RULES.values(), Earlier} - {RULES[right]}:
                with self.subTest(right=right, wrong=wrong.__name__):
                    rule = rule_of(right, 3, 3)
                    mistaken = wrong(3)
                    mistaken.per_update = rule.per_update
                    if rule.per_update > 1 and wrong not in (Flush, TwoBuffers):
                        continue
                    if rule.per_update == 1 and wrong is TwoBuffers:
                        continue
                    names = differing(recompute(run, inputs, mistaken), outputs, right)
                    self.assertIn("loss", names)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
