#!/usr/bin/env python3
"""Another program, with only the standard library, recomputes the first two lessons'
records.

This test reads inputs.safetensors, trains by the formulas of the lessons' READMEs, and compares
the results with outputs.safetensors. Arguments: the program.
"""

import math
import os
import sys
import unittest

from records import add_scaled, assert_close, dot, flat, rows_of, run_lesson, zeros

PROGRAM = os.path.abspath(sys.argv[1])
MOMENTUM = 0.9


class Regression:
    """y = x W^T + b. The loss is the sum of the parts' weighted means."""

    def __init__(self, inputs):
        self.x = rows_of(inputs["regression/inputs"])
        self.target = rows_of(inputs["regression/targets"])
        self.weight = rows_of(inputs["regression/initial/linear.weight"])
        self.bias = list(inputs["regression/initial/linear.bias"][1])

    def gradients(self, parts):
        """Returns loss and gradients. A part's factor is parts * B_i / B, a row's is parts / B."""
        loss = 0
        weight, bias = zeros(self.weight), [0.0] * len(self.bias)
        factor = parts / (len(self.x) * len(self.bias))
        for x, target in zip(self.x, self.target):
            for out, row in enumerate(self.weight):
                error = dot(row, x) + self.bias[out] - target[out]
                loss += factor * error * error
                slope = 2 * factor * error
                bias[out] += slope
                weight[out] = [w + slope * value for w, value in zip(weight[out], x)]
        return loss, weight, bias

    def step(self, parts, rate):
        loss, weight, bias = self.gradients(parts)
        add_scaled(self.weight, weight, -rate)
        add_scaled([self.bias], [bias], -rate)
        return loss, flat(weight), bias


class LanguageModel:
    """Embedding, linear, tanh, linear, softmax; SGD with momentum."""

    NAMES = ["embedding.weight", "hidden.weight", "hidden.bias", "output.weight", "output.bias"]

    def __init__(self, inputs):
        self.ids = inputs["language_model/ids"][1]
        self.positions = rows_of(inputs["language_model/positions"])
        self.values = {name: rows_of(inputs["language_model/initial/" + name])
                       for name in self.NAMES}
        self.context = (len(self.values["hidden.weight"][0])
                        // len(self.values["embedding.weight"][0]))
        self.velocity = {name: zeros(rows) for name, rows in self.values.items()}

    def row(self, position, factor, gradients):
        """Adds a row's gradients and returns the row's loss. Both are multiplied by factor."""
        embedding, hidden, hidden_bias, output, output_bias = (
            self.values[name] for name in self.NAMES)
        seen = self.ids[position - self.context:position]
        x = flat([embedding[i] for i in seen])
        h = [math.tanh(dot(w, x) + b) for w, b in zip(hidden, hidden_bias[0])]
        logits = [dot(w, h) + b for w, b in zip(output, output_bias[0])]
        largest = max(logits)
        powers = [math.exp(logit - largest) for logit in logits]
        total = sum(powers)

        d_logits = [factor * power / total for power in powers]
        d_logits[self.ids[position]] -= factor
        d_h = [0.0] * len(h)
        for slope, w in zip(d_logits, output):
            d_h = [d + slope * value for d, value in zip(d_h, w)]
        d_sum = [d * (1 - value * value) for d, value in zip(d_h, h)]
        d_x = [0.0] * len(x)
        for slope, w in zip(d_sum, hidden):
            d_x = [d + slope * value for d, value in zip(d_x, w)]
        width = len(embedding[0])
        for place, i in enumerate(seen):
            add_scaled([gradients["embedding.weight"][i]],
                       [d_x[place * width:(place + 1) * width]], 1)
        for name, slopes, came in (("hidden", d_sum, x), ("output", d_logits, h)):
            add_scaled(gradients[name + ".bias"], [slopes], 1)
            for to, slope in zip(gradients[name + ".weight"], slopes):
                to[:] = [t + slope * value for t, value in zip(to, came)]
        return factor * (math.log(total) + largest - logits[self.ids[position]])

    def step(self, step, rate):
        gradients = {name: zeros(rows) for name, rows in self.values.items()}
        positions = [int(p) for p in self.positions[step]]
        loss = sum(self.row(p, 1 / len(positions), gradients) for p in positions)
        for name in self.NAMES:
            add_scaled(gradients[name], self.velocity[name], MOMENTUM)
            self.velocity[name] = gradients[name]
            add_scaled(self.values[name], gradients[name], -rate)
        return loss, self.velocity


class Recompute(unittest.TestCase):
    def record(self, *options, lesson="gradient-accumulation", files=None):
        """Returns the lesson's inputs and outputs."""
        return run_lesson(PROGRAM, lesson, *options, files=files)[1:]

    def check_regression(self, inputs, outputs, parts, epochs=100, rate=0.01):
        model = Regression(inputs)
        losses = []
        for epoch in range(epochs):
            loss, *gradients = model.step(parts, rate)
            losses.append(loss)
            if epoch == 0:
                first = gradients
        expected = {"loss": losses, "grad/linear.weight": first[0],
                    "grad/linear.bias": first[1], "linear.weight": flat(model.weight),
                    "linear.bias": model.bias}
        for variant in ("reference", "accumulation", "data_parallel"):
            for name, values in expected.items():
                with self.subTest(variant=variant, name=name):
                    assert_close(name, values, outputs[f"{variant}/{name}"][1])

    def check_language_model(self, inputs, outputs, steps, rate=0.2, variants=(
            "language_model_accumulation", "language_model_data_parallel")):
        model = LanguageModel(inputs)
        self.assertEqual(len(model.positions), steps)
        losses = []
        expected = {}
        for step in range(steps):
            loss, gradients = model.step(step, rate)
            losses.append(loss)
            if step == 0:  # velocity still equals the gradient
                expected = {"grad/" + name: flat(rows) for name, rows in gradients.items()}
        expected |= {name: flat(rows) for name, rows in model.values.items()}
        expected["loss"] = losses
        for variant in variants:
            for name, values in expected.items():
                if name.startswith("grad/") and f"{variant}/{name}" not in outputs:
                    continue  # a sharded form: no rank has the whole value
                with self.subTest(variant=variant, name=name):
                    assert_close(name, values, outputs[f"{variant}/{name}"][1])

    def test_the_lesson_as_it_is(self):
        inputs, outputs = self.record("--set", "steps=2")
        self.check_regression(inputs, outputs, parts=4)
        self.check_language_model(inputs, outputs, steps=2)

    def test_each_form_of_data_parallelism(self):
        forms = ("accumulation", "server", "two_servers", "servers_everywhere", "one_process",
                 "in_buckets")
        for ranks in ("1", "3"):
            inputs, outputs = self.record(
                "--ranks", ranks, "--step", "4", "--set", "steps=3", "--set", "rows=5",
                lesson="data-parallel")
            self.check_language_model(inputs, outputs, steps=3, variants=forms)

    def test_each_stage_of_zero(self):
        for ranks in ("1", "3"):
            inputs, outputs = self.record(
                "--ranks", ranks, "--step", "7", "--set", "steps=3", "--set", "rows=5",
                lesson="zero")
            self.check_language_model(inputs, outputs, steps=3, variants=(
                "accumulation", "zero_1", "zero_2", "by_rows", "flat", "offload"))

    def test_a_table_and_a_text_dealt_out_unevenly(self):
        verse = "床前明月光，疑是地上霜。举头望明月，低头思故乡。\n" * 4
        table = "a,b,c,d\n" + "".join(
            f"{i / 10},{math.sin(i):.6f},{math.cos(3 * i):.6f},{i % 5 - 2}\n"
            for i in range(17))
        inputs, outputs = self.record(
            "--ranks", "3", "--text", "text", "--data", "table", "--set", "targets=2",
            "--set", "epochs=20", "--set", "steps=4", "--set", "rows=5", "--set", "context=3",
            "--set", "width=2", "--set", "hidden=7", "--set", "learning_rate=0.05",
            "--set", "text_learning_rate=0.1", files={"text": verse, "table": table})
        vocabulary = inputs["language_model/vocabulary"][1]
        ids = inputs["language_model/ids"][1]
        self.assertEqual("".join(chr(vocabulary[i]) for i in ids), verse)
        self.check_regression(inputs, outputs, parts=3, epochs=20, rate=0.05)
        self.check_language_model(inputs, outputs, steps=4, rate=0.1)

    def test_a_formula_that_is_wrong_is_caught(self):
        inputs, outputs = self.record("--step", "2", "--set", "epochs=3")
        with self.assertRaises(AssertionError):
            loss, *_ = Regression(inputs).step(1, 0.01)  # a mean, but the lesson sums
            assert_close("loss", [loss], outputs["reference/loss"][1][:1])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
