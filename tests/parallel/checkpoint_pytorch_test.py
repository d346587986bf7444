#!/usr/bin/env python3
"""A checkpoint's whole file loads into a PyTorch GPT, by name and strictly, and that one
computes the same logits. The GPT is the one of a lesson's README. Skipped where PyTorch is
not installed. Arguments: the checkpoint tests, the folder of lessons.
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

TESTS, LESSONS = map(os.path.abspath, sys.argv[1:3])

LOAD = """
import sys
folder = sys.argv[1]
whole = read(folder + "/whole.safetensors")
expected = read(folder + "/expected.safetensors")
about = dict(vocabulary=11, hidden=8, heads=2, kv_heads=2, head_width=4, inner=32, context=5,
             layers=2, norm_epsilon=1e-5, tied=False)
gpt = Gpt(about).double()
print(gpt.load_state_dict(whole, strict=True))
logits = gpt(expected["ids"].long().T)               # batch first
print((logits.transpose(0, 1) - expected["logits"]).abs().max().item())
print(logits.abs().max().item())
"""


def has_pytorch(python):
    try:
        return subprocess.run([python, "-c", "import torch"], capture_output=True,
                              check=False).returncode == 0
    except OSError:
        return False


PYTHON = next(filter(has_pytorch, [sys.executable, "/usr/bin/python3"]), None)
if PYTHON is None:
    print("skipped: PyTorch is not installed")
    sys.exit(77)


class Whole(unittest.TestCase):
    def test_pytorch_computes_the_same(self):
        with open(os.path.join(LESSONS, "04_tensor_parallel_block", "README.md"),
                  encoding="utf-8") as file:
            [program] = re.findall(r"^```python\n(.*?)^```$", file.read(), re.M | re.S)
        model = program[:program.index('model = json.load')]
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([TESTS, "[.whole]"], env=os.environ | {"LOCKSTEP_WHOLE": folder},
                           check=True, capture_output=True, timeout=120)
            done = subprocess.run([PYTHON, "-c", model + LOAD, folder], capture_output=True,
                                  text=True, check=False, timeout=120)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        loaded, difference, largest = done.stdout.splitlines()
        self.assertEqual(loaded, "<All keys matched successfully>")
        self.assertGreater(float(largest), 0.1)
        self.assertLess(float(difference), 1e-12 * float(largest))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
