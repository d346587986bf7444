#!/usr/bin/env python3
"""Another program, with only the standard library, recomputes the second lesson's record.

This test reads inputs.safetensors, computes by the formulas of the lesson's README, and compares
the results with outputs.safetensors. Arguments: the program.
"""

import os
import sys
import unittest

from records import (assert_close, each, flat, gelu, gelu_slope, product, rows_of, run_lesson,
                     turned)

PROGRAM = os.path.abspath(sys.argv[1])
SIZES = ("--set", "rows=5", "--set", "hidden=12", "--set", "inner=24")


class Layer:
    """Computes y = x weight^T + bias."""

    def __init__(self, inputs, name):
        self.name = name.split("/")[-1]
        self.weight = rows_of(inputs[name + ".weight"])
        self.bias = inputs[name + ".bias"][1]

    def forward(self, x):
        return [[value + bias for value, bias in zip(row, self.bias)]
                for row in product(x, turned(self.weight))]

    def backward(self, x, dy):
        """Returns dx and the named gradients."""
        return product(dy, self.weight), {
            f"grad/{self.name}.weight": flat(product(turned(dy), x)),
            f"grad/{self.name}.bias": [sum(column) for column in turned(dy)]}


class Recompute(unittest.TestCase):
    def record(self, *options):
        """Returns the lesson's inputs and outputs."""
        return run_lesson(PROGRAM, "column-linear", *SIZES, *options)[1:]

    def check_example(self, inputs, outputs):
        y = product(rows_of(inputs["example/x"]), rows_of(inputs["example/w"]))
        self.assertEqual(flat(y), list(outputs["example/y"][1]))

    def check_rows(self, inputs, outputs, ranks):
        layer = Layer(inputs, "rows/initial/linear")
        x, dy = rows_of(inputs["rows/x"]), rows_of(inputs["rows/dy"])
        dx, expected = layer.backward(x, dy)
        expected |= {"y": flat(layer.forward(x)), "dx": flat(dx)}
        for name, values in expected.items():
            assert_close(name, values, outputs["rows/" + name][1])
        own = [slice(2 * rank, 2 * rank + 2) for rank in range(ranks)]
        partial = [product([row[part] for row in x],
                           turned([row[part] for row in layer.weight])) for part in own]
        side_by_side = [flat(rows) for rows in zip(*partial)]
        self.assertEqual(flat(side_by_side), list(outputs["rows/partial"][1]))

    def check_mlp(self, inputs, outputs):
        first, second = (Layer(inputs, f"mlp/initial/{name}") for name in ("c_fc", "c_proj"))
        x, dy = rows_of(inputs["mlp/x"]), rows_of(inputs["mlp/dy"])
        before = first.forward(x)
        after = each(gelu, before)
        d_after, expected = second.backward(after, dy)
        dx, of_first = first.backward(x, each(lambda d, u: d * gelu_slope(u), d_after, before))
        expected |= of_first | {"y": flat(second.forward(after)), "dx": flat(dx)}
        for variant in ("mlp_alone", "mlp_columns_rows", "mlp_gathered"):
            for name, values in expected.items():
                with self.subTest(variant=variant, name=name):
                    assert_close(name, values, outputs[f"{variant}/{name}"][1])

    def test_whatever_the_ranks(self):
        for ranks in (1, 3, 4):
            with self.subTest(ranks=ranks):
                inputs, outputs = self.record("--ranks", str(ranks), "--seed", str(ranks))
                self.check_example(inputs, outputs)
                self.check_rows(inputs, outputs, ranks)
                self.check_mlp(inputs, outputs)

    def test_a_formula_that_is_wrong_is_caught(self):
        inputs, outputs = self.record("--step", "4")
        layer = Layer(inputs, "rows/initial/linear")
        layer.bias = [3 * bias for bias in layer.bias]  # as if each rank added it
        with self.assertRaises(AssertionError):
            assert_close("y", flat(layer.forward(rows_of(inputs["rows/x"]))),
                         outputs["rows/y"][1])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
