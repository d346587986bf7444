#!/usr/bin/env python3
"""Another program, with only the standard library, recomputes the record of the lesson on experts.

This test reads inputs.safetensors and trains the GPT of experts that the lesson's README
describes. It computes each expert separately, token by token. It compares the results with
outputs.safetensors. Arguments: the program.
"""

import math
import os
import sys
import unittest

from gpt import Gpt, plus, recompute
from records import add_scaled, differing, dot, run_lesson, turned

PROGRAM = os.path.abspath(sys.argv[1])
TEXT = "To be, or not to be, that is the question:\nWhether ’tis nobler in the mind\n"
SMALL = {"layers": 2, "heads": 2, "hidden": 8, "experts": 4, "inner": 6, "context": 6, "batch": 2,
         "steps": 3}


class ExpertGpt(Gpt):
    """A GPT whose blocks have a gate and experts instead of an MLP, and RMS norms."""

    EXPERTS, INNER, CHOSEN = 4, 6, 2
    ALPHA, RATE = 0.0, 0.0
    NORMALIZED = True

    def __init__(self, initial, heads, kv_heads):
        super().__init__(initial, heads, kv_heads)
        self.layers = sum(name.endswith("ln_1.weight") for name in self.values)
        self.biases = {}

    def norm(self, name, x):
        (weight,) = self.values[f"{name}.weight"]
        size = len(weight)
        inverse = [1 / math.sqrt(dot(row, row) / size + self.EPSILON) for row in x]
        n = [[value * r for value in row] for row, r in zip(x, inverse)]
        y = [[value * w for value, w in zip(row, weight)] for row in n]

        def backward(dy):
            self.add(name + ".weight", [list(map(dot, turned(dy), turned(n)))])
            dx = []
            for slopes, row, r in zip(dy, n, inverse):
                dn = [slope * w for slope, w in zip(slopes, weight)]
                along = dot(dn, row) / size
                dx.append([r * (d - value * along) for d, value in zip(dn, row)])
            return dx
        return y, backward

    def expert(self, name, e, row):
        """Returns the output of expert e for a token, and a function that returns the token's
        gradient."""
        h, wide = len(row), 2 * self.INNER
        up_name, down_name = (f"{name}.experts.{part}.weight"
                              for part in ("gate_up_proj", "down_proj"))
        up = self.values[up_name][e * wide:(e + 1) * wide]
        down = self.values[down_name][e * h:(e + 1) * h]
        made = [dot(weights, row) for weights in up]
        gates, rest = made[:self.INNER], made[self.INNER:]
        sigmas = [1 / (1 + math.exp(-g)) for g in gates]
        inner = [g * s * u for g, s, u in zip(gates, sigmas, rest)]
        y = [dot(weights, inner) for weights in down]

        def backward(dy):
            d_inner = [dot(dy, column) for column in turned(down)]
            d_made = [d * u * s * (1 + g * (1 - s))
                      for d, u, s, g in zip(d_inner, rest, sigmas, gates)]
            d_made += [d * g * s for d, g, s in zip(d_inner, gates, sigmas)]
            add_scaled(self.gradients[up_name][e * wide:(e + 1) * wide],
                       [[d * value for value in row] for d in d_made], 1)
            add_scaled(self.gradients[down_name][e * h:(e + 1) * h],
                       [[d * value for value in inner] for d in dy], 1)
            return [dot(d_made, column) for column in turned(up)]
        return y, backward

    def mlp(self, name, x):
        logits, gate = self.linear(name + ".gate", x)
        counts, sums = self.load.setdefault(name, ([0] * self.EXPERTS, [0.0] * self.EXPERTS))
        bias = self.biases.setdefault(name, [0.0] * self.EXPERTS)
        tokens, y = [], []
        for row, own in zip(x, logits):
            powers = [math.exp(logit - max(own)) for logit in own]
            scores = [power / sum(powers) for power in powers]
            order = sorted(range(self.EXPERTS), key=lambda e: (-scores[e] - bias[e], e))
            chosen = order[:self.CHOSEN]
            whole = sum(scores[e] for e in chosen) if self.NORMALIZED else 1
            made = [self.expert(name, e, row) for e in chosen]
            y.append([0.0] * len(row))
            for e, (out, _) in zip(chosen, made):
                counts[e] += 1
                y[-1] = [a + scores[e] / whole * b for a, b in zip(y[-1], out)]
            for e, score in enumerate(scores):
                sums[e] += score
            tokens.append((scores, chosen, whole, made))

        def backward(dy):
            dx, d_logits = [], []
            copies = sum(counts)
            for slopes, (scores, chosen, whole, made) in zip(dy, tokens):
                d_row = [0.0] * len(slopes)
                d_scores = [self.ALPHA * self.EXPERTS * count / copies / self.tokens
                            for count in counts]
                d_weights = [dot(slopes, out) for out, _ in made]
                along = sum(d * scores[e] / whole for d, e in zip(d_weights, chosen))
                for d, e, (_, back) in zip(d_weights, chosen, made):
                    d_scores[e] += (d - (along if self.NORMALIZED else 0)) / whole
                    part = back([scores[e] / whole * slope for slope in slopes])
                    d_row = [a + b for a, b in zip(d_row, part)]
                mean = dot(scores, d_scores)
                d_logits.append([s * (d - mean) for s, d in zip(scores, d_scores)])
                dx.append(d_row)
            return plus(dx, gate(d_logits))
        return y, backward

    def batch(self, text, starts):
        length = len(self.values["transformer.wpe.weight"])
        self.zero_gradients()
        self.load, self.tokens = {}, length * len(starts)
        # A gate's gradient needs the counts of all tokens, so no backward runs before all forwards.
        passes = [self.begin(text[start:start + length], text[start + 1:start + length + 1],
                             1 / self.tokens) for start in starts]
        loss = sum(loss for loss, _ in passes)
        for counts, sums in self.load.values():
            loss += self.ALPHA * self.EXPERTS * sum(
                count / sum(counts) * score / self.tokens for count, score in zip(counts, sums))
        for _, backward in passes:
            backward()
        for name, (counts, _) in self.load.items():
            for e, count in enumerate(counts):
                above = count * self.EXPERTS - sum(counts)
                self.biases[name][e] -= self.RATE * ((above > 0) - (above < 0))
        return loss


class Balanced(ExpertGpt):
    ALPHA = 0.01


class Biased(ExpertGpt):
    RATE = 0.02


def record(ranks, step, seed=1, **settings):
    chosen = [f"--set={key}={value}" for key, value in (SMALL | settings).items()]
    return run_lesson(PROGRAM, "experts", "--step", str(step), "--ranks", str(ranks), "--seed",
                      str(seed), "--text", "text", *chosen, files={"text": TEXT})


class RecomputeExperts(unittest.TestCase):
    def check(self, model, variants, outputs, run, inputs):
        recomputed = recompute(run, inputs, model)
        self.assertEqual(len(recomputed["loss"]), SMALL["steps"])
        for variant in variants:
            with self.subTest(variant=variant):
                self.assertEqual({name for name in outputs if name.startswith(variant + "/")},
                                 {f"{variant}/{name}" for name in recomputed})
                self.assertEqual(differing(recomputed, outputs, variant), set())

    def test_left_alone_balanced_and_biased(self):
        run, inputs, outputs = record(1, 6, seed=3)
        for model, variant in ((ExpertGpt, "balance_none"), (Balanced, "balance_loss"),
                               (Biased, "balance_bias")):
            self.check(model, [variant], outputs, run, inputs)

    def test_experts_and_columns_on_two_devices(self):
        run, inputs, outputs = record(2, 9)
        self.check(Balanced, ["alone", "experts", "columns"], outputs, run, inputs)

    def test_both_on_four_devices(self):
        run, inputs, outputs = record(4, 9, heads=4, inner=8, batch=4, context=8)
        with_inner = type("Wider", (Balanced,), {"INNER": 8})
        self.check(with_inner, ["alone", "experts", "columns", "both"], outputs, run, inputs)

    def test_wrong_formulas_are_found(self):
        run, inputs, outputs = record(2, 9, steps=2)
        for change in ({"NORMALIZED": False}, {"ALPHA": 0.02}, {"CHOSEN": 1}):
            with self.subTest(change=change):
                wrong = recompute(run, inputs, type("Wrong", (Balanced,), change))
                self.assertIn("loss", differing(wrong, outputs, "alone"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
