#!/usr/bin/env python3
"""The PyTorch programs in two lessons' READMEs run unchanged and recompute lessons' records. They
train GPTs, and a language model with PyTorch's own DistributedDataParallel. The GPT also loads a
checkpoint. Skipped if PyTorch is not installed.
Arguments: the program, the folder of lessons, the tests of checkpoints.
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM, LESSONS, CHECKPOINT_TESTS = map(os.path.abspath, sys.argv[1:4])
BOUND = 1e-10  # for f64, over three steps
SMALL = ["--set", "steps=3", "--set", "context=8", "--set", "hidden=16", "--dtype", "f64"]
GPT = "04_tensor_parallel_block"
# Runs after the code of the GPT's classes. Loads the file that the tests of checkpoints write.
LOAD = """
import sys
whole, expected = (read(f"{sys.argv[1]}/{name}.safetensors") for name in ("whole", "expected"))
gpt = Gpt(dict(vocabulary=11, hidden=8, heads=2, kv_heads=2, head_width=4, inner=32, context=5,
               layers=2, norm_epsilon=1e-5, tied=False)).double()
print(gpt.load_state_dict(whole, strict=True))
logits = gpt(expected["ids"].long().T).transpose(0, 1)
print((logits - expected["logits"]).abs().max().item() / logits.abs().max().item())
"""


def has_pytorch(python):
    try:
        return subprocess.run([python, "-c", "import torch"], capture_output=True,
                              check=False).returncode == 0
    except OSError:
        return False


# A PyTorch from the system's packages can be used only by the system's Python.
PYTHON = next(filter(has_pytorch, [sys.executable, "/usr/bin/python3"]), None)
if PYTHON is None:
    print("skipped: PyTorch is not installed")
    sys.exit(77)


def program_of(folder):
    with open(os.path.join(LESSONS, folder, "README.md"), encoding="utf-8") as file:
        [program] = re.findall(r"^```python\n(.*?)^```$", file.read(), re.M | re.S)
    return program


class PyTorch(unittest.TestCase):
    def ratios(self, page, lesson, *options):
        """Runs the page's program on a record. All printed numbers must be within the bound."""
        with tempfile.TemporaryDirectory() as folder:
            record = os.path.join(folder, "record")
            subprocess.run([PROGRAM, "lesson", lesson, "--out", record, *SMALL, *options],
                           check=True, capture_output=True)
            program = program_of(page).replace("DIR/", record + "/")
            done = subprocess.run([PYTHON, "-c", program], capture_output=True, text=True,
                                  check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        ratios = dict(line.split() for line in done.stdout.splitlines())
        for name, ratio in ratios.items():
            self.assertLess(float(ratio), BOUND, name)
        return ratios

    def check(self, lesson, *options):
        ratios = self.ratios(GPT, lesson, *options)
        self.assertIn("loss", ratios)
        self.assertIn("grad/transformer.h.1.attn.c_attn.weight", ratios)

    def test_data_parallelism(self):
        ratios = self.ratios("02_data_parallel", "data-parallel", "--ranks", "3", "--step", "4")
        for form in ("server", "two_servers", "servers_everywhere", "one_process", "in_buckets"):
            self.assertIn(form + "/loss", ratios)
            self.assertIn(form + "/hidden.weight", ratios)

    def test_tensor_parallelism(self):
        self.check("tensor-parallel-block", "--step", "6")

    def test_a_pipeline_whose_head_is_tied(self):
        self.check("pipeline-1f1b", "--set", "tied=1", "--ranks", "2", "--step", "10")

    def test_a_context_with_fewer_heads_of_keys(self):
        self.check("ring-self-attention", "--set", "kv_heads=1", "--ranks", "2", "--step", "10")

    def test_the_whole_file_of_a_checkpoint(self):
        program = program_of(GPT)
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([CHECKPOINT_TESTS, "[.whole]"], check=True, capture_output=True,
                           env=os.environ | {"LOCKSTEP_WHOLE": folder})
            done = subprocess.run(
                [PYTHON, "-c", program[:program.index("model = json.load")] + LOAD, folder],
                capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        loaded, ratio = done.stdout.splitlines()
        self.assertEqual(loaded, "<All keys matched successfully>")
        self.assertLess(float(ratio), 1e-12)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
