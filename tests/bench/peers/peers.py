#!/usr/bin/env python3
"""Runs the same training step in Lockstep and in PyTorch in turns. Prints the ratios of CPU time
and of wall time (PyTorch's divided by Lockstep's), the range of the middle half of the rounds, and
the page faults of both. A rank of PyTorch has one thread. Lockstep has one thread per rank, but not
more threads than processors. With one rank, both have their default numbers of threads. The
threads may spend CPU time on waiting, so compare wall times.

usage: peers.py GPT_STEP [--rounds N] [--python PYTHON]

GPT_STEP is the program of gpt_step.cpp; PYTHON must have torch, for example Debian's python3-torch.
Both programs begin with the same weights, and their losses must be equal within 1e-5.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
# Ranks, hidden size, tokens per sequence, sequences per rank, layers, heads, vocabulary, untimed
# steps, timed steps. With a single rank, the heap becomes stable after ten steps.
SIZES = [
    (4, 128, 64, 1, 4, 4, 256, 5, 40),
    (4, 128, 64, 4, 4, 4, 256, 5, 20),
    (4, 256, 128, 1, 4, 4, 256, 3, 15),
    (4, 256, 128, 4, 4, 4, 256, 2, 5),
    (1, 256, 128, 4, 4, 4, 256, 15, 15),
]


def run(command, **more):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def spread(ratios):
    low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return f"{middle:5.2f} ({low:.2f} to {high:.2f})"


def compare(sizes, asked, folder):
    words = [str(size) for size in sizes] + [os.path.join(folder, "weights")]
    # Each of several ranks has one thread. A single rank has PyTorch's default number.
    environment = dict(os.environ, OMP_NUM_THREADS="1") if sizes[0] > 1 else os.environ
    ours, theirs = [], []
    def run_ours():
        ours.append(run([asked.gpt_step, *words]))

    def run_theirs():
        theirs.append(run([asked.python, "-B", os.path.join(HERE, "gpt_step.py"), *words,
                           free_port()], env=environment))

    run_ours()  # leaves the weights for PyTorch
    ours.clear()
    for i in range(asked.rounds):
        for way in (run_ours, run_theirs) if i % 2 == 0 else (run_theirs, run_ours):
            way()
    apart = [abs(a - b) for a, b in zip(ours[0]["losses"], theirs[0]["losses"], strict=True)]
    if not all(one <= 1e-5 for one in apart):  # also false for NaN
        sys.exit(f"losses differ: {ours[0]['losses']}, {theirs[0]['losses']}")
    ratios = {key: [b[key] / a[key] for a, b in zip(ours, theirs)] for key in ("cpu", "wall")}
    milliseconds = [1e3 * statistics.median(one["cpu"] for one in way) for way in (ours, theirs)]
    faults = [statistics.median(one["faults"] for one in way) for way in (ours, theirs)]
    print(f"{sizes[0]} x {sizes[1]} hidden, {sizes[2]:>3} x {sizes[3]} tokens:"
          f" CPU {spread(ratios['cpu'])}, {milliseconds[0]:.1f} and {milliseconds[1]:.1f} ms;"
          f" wall {spread(ratios['wall'])}; faults {faults[0]:.0f} and {faults[1]:.0f};"
          f" losses within {max(apart):.0e}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gpt_step")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--python", default="/usr/bin/python3")
    asked = parser.parse_args()
    if subprocess.run([asked.python, "-c", "import torch"], capture_output=True,
                      check=False).returncode != 0:
        print(f"{asked.python} has no torch (python3-torch): nothing is compared")
        return
    with tempfile.TemporaryDirectory() as folder:
        for sizes in SIZES:
            compare(sizes, asked, folder)


if __name__ == "__main__":
    main()
