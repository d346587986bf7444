#!/usr/bin/env python3
"""The PyTorch program on the third lesson's page, as it stands there, recomputes the GPTs that
three lessons record. Skipped where PyTorch is not installed. Arguments: the program, the page.
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM, PAGE = map(os.path.abspath, sys.argv[1:3])
BOUND = 1e-10  # f64, over three steps
SMALL = ["--set", "steps=3", "--set", "context=8", "--set", "hidden=16", "--dtype", "f64"]


def has_pytorch(python):
    try:
        return subprocess.run([python, "-c", "import torch"], capture_output=True,
                              check=False).returncode == 0
    except OSError:
        return False


# The distribution's PyTorch belongs to the distribution's Python.
PYTHON = next(filter(has_pytorch, [sys.executable, "/usr/bin/python3"]), None)
if PYTHON is None:
    print("skipped: PyTorch is not installed")
    sys.exit(77)


def program_of_page():
    with open(PAGE, encoding="utf-8") as file:
        [program] = re.findall(r"^```python\n(.*?)^```$", file.read(), re.M | re.S)
    return program


class PyTorch(unittest.TestCase):
    def check(self, lesson, *options):
        with tempfile.TemporaryDirectory() as folder:
            record = os.path.join(folder, "record")
            subprocess.run([PROGRAM, "lesson", lesson, "--out", record, *SMALL, *options],
                           check=True, capture_output=True, timeout=120)
            program = program_of_page().replace("DIR/", record + "/")
            done = subprocess.run([PYTHON, "-c", program], capture_output=True, text=True,
                                  check=False, timeout=120)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        ratios = dict(line.split() for line in done.stdout.splitlines())
        self.assertIn("loss", ratios)
        self.assertIn("grad/transformer.h.1.attn.c_attn.weight", ratios)
        for name, ratio in ratios.items():
            self.assertLess(float(ratio), BOUND, name)

    def test_tensor_parallelism(self):
        self.check("tensor-parallel-block", "--step", "6")

    def test_a_pipeline_whose_head_is_tied(self):
        self.check("pipeline-1f1b", "--set", "tied=1", "--ranks", "2", "--step", "10")

    def test_a_context_with_fewer_heads_of_keys(self):
        self.check("ring-self-attention", "--set", "kv_heads=1", "--ranks", "2", "--step", "10")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
