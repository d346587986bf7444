"""Helpers of tests that recompute a lesson's record: functions that make, read and compare records,
and matrices as lists of rows. They use only the standard library."""

import json
import math
import os
import struct
import subprocess
import tempfile

BOUND = 1e-10  # the largest difference, relative to the largest value of its tensor


def read_tensors(path):
    """Returns the file's tensors as {name: (shape, values)}, with flat values."""
    with open(path, "rb") as file:
        content = file.read()
    (header_bytes,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8:8 + header_bytes])
    tensors = {}
    for name, about in header.items():
        begin, end = (8 + header_bytes + offset for offset in about["data_offsets"])
        code = {"F64": "d", "F32": "f", "I32": "i"}[about["dtype"]]
        count = (end - begin) // struct.calcsize(code)
        tensors[name] = about["shape"], struct.unpack(f"<{count}{code}", content[begin:end])
    return tensors


def run_lesson(program, slug, *options, files=None, dtype="f64"):
    """Returns the record of a lesson: run.json, inputs and outputs. `files` maps the names of files
    in the lesson's folder to their texts."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (files or {}).items():
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        subprocess.run([program, "lesson", slug, "--dtype", dtype, "--out", "out", *options],
                       check=True, capture_output=True, cwd=folder)
        out = os.path.join(folder, "out")
        with open(os.path.join(out, "run.json"), encoding="utf-8") as file:
            run = json.load(file)
        return [run, *(read_tensors(os.path.join(out, f"{name}.safetensors"))
                       for name in ("inputs", "outputs"))]


def assert_close(name, recomputed, recorded, bound=BOUND):
    """Checks that flat values differ by at most `bound` times the largest recorded value."""
    largest = max(map(abs, recorded))
    if largest == 0 or len(recomputed) != len(recorded):
        raise AssertionError(f"{name}: {len(recomputed)} values, and {len(recorded)} of at "
                             f"most {largest}")
    for ours, theirs in zip(recomputed, recorded):
        if not abs(ours - theirs) <= bound * largest:
            raise AssertionError(f"{name}: {ours} and {theirs}")


def differing(recomputed, outputs, variant, bound=BOUND):
    """Returns the names of values that a variant recorded differently."""
    names = set()
    for name, ours in recomputed.items():
        try:
            assert_close(name, ours, outputs[f"{variant}/{name}"][1], bound)
        except AssertionError:
            names.add(name)
    return names


def dot(a, b):
    return sum(map(float.__mul__, a, b))


def rows_of(tensor):
    shape, values = tensor
    return [list(values[i:i + shape[-1]]) for i in range(0, len(values), shape[-1])]


def flat(rows):
    return [value for row in rows for value in row]


def zeros(matrix):
    return [[0.0] * len(matrix[0]) for _ in matrix]


def turned(matrix):
    return [list(column) for column in zip(*matrix)]


def product(a, b):
    """Returns the product a b."""
    columns = turned(b)
    return [[dot(row, column) for column in columns] for row in a]


def each(function, *matrices):
    return [[function(*values) for values in zip(*rows)] for rows in zip(*matrices)]


def add_scaled(target, source, factor):
    """Adds factor * source to target. Both are matrices."""
    for to, row in zip(target, source):
        to[:] = [t + factor * s for t, s in zip(to, row)]


def gelu(x):
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


def gelu_slope(x):
    density = math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    return (1 + math.erf(x / math.sqrt(2))) / 2 + x * density
